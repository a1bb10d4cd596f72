"""Records with names that a test chooses, and rules that a test gives as a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection, Inspector

Inspect = Callable[[TorrentRecord], Inspection]


class _Rules:
    def __init__(self, inspect: Inspect) -> None:
        self.inspect = inspect


def rules_of(inspect: Inspect) -> Inspector:
    """Return rules that inspect with this function."""
    return cast("Inspector", _Rules(inspect))


def record_named(name: str, *paths: str) -> TorrentRecord:
    """Return a record with files of 1000 bytes; without paths, one file with the name of the torrent."""
    files = tuple(StoredFile(path, 1000) for path in paths or (name,))
    return TorrentRecord(b"\1" * 20, None, name, files, 16_384, 0)
