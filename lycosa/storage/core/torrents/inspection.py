"""Inspects torrents before they are stored: cleans names, applies the deny rules, classifies the content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.core.torrents.content import ContentRules
from lycosa.storage.core.torrents.deny import DenyRules
from lycosa.storage.core.torrents.names import (
    COMMENT_MAX,
    bounded_files,
    clean_part,
    clean_stored_paths,
    clean_text,
)
from lycosa.storage.core.torrents.rules import CompilePattern, RuleFile


class Inspection(NamedTuple):
    """The cleaned record, with its content facts unless it is refused. `refused` is the reason why it may not be
    stored, or ""."""

    record: TorrentRecord
    refused: str = ""


class Inspector:
    """Applies rule files, each with the function that compiles its patterns. Raises `UsageError`."""

    def __init__(self, files: Sequence[tuple[RuleFile, CompilePattern]]) -> None:
        self._deny = DenyRules(files)
        self._content = ContentRules(files)

    def inspect(self, record: TorrentRecord) -> Inspection:
        cleaned = clean_record(record)
        if reason := self.refusal(cleaned):
            return Inspection(cleaned, reason)
        return Inspection(replace(cleaned, content=self.facts(cleaned)))

    def refusal(self, record: TorrentRecord) -> str:
        """Return why a record with clean names may not be stored, or ""."""
        return self._deny.reason_against([record.name, *(file.path for file in record.files)])

    def facts(self, record: TorrentRecord) -> ContentFacts:
        return self._content.facts(record.name, record.files)


def clean_record(record: TorrentRecord) -> TorrentRecord:
    """Return the record with names that are safe to show.

    A missing name is replaced by the first part of the first path, or else by the infohash.
    """
    files = bounded_files(record.files)
    paths = [file.path for file in files]
    if (cleaned := clean_stored_paths(paths)) != paths:
        files = tuple(StoredFile(path, file.size_bytes) for path, file in zip(cleaned, files, strict=True))
    first = files[0].path.partition("/")[0] if files else ""
    name = clean_part(record.name) or first.strip("_") or record.keys[0].hex()
    comment = clean_text(record.comment, COMMENT_MAX)
    if (name, comment) == (record.name, record.comment) and files is record.files:
        return record
    return replace(record, name=name, files=files, comment=comment)
