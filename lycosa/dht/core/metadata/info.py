"""The info dict of a torrent: version 1 (BEP 3), version 2 (BEP 52), or both (hybrid).

Names and paths stay bytes: a torrent may use any encoding. name.utf-8 and path.utf-8 are preferred. The infohashes are
computed from the received bytes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from lycosa.core.errors import LycosaError
from lycosa.dht.core.bencode import BencodeError, decode

DEPTH_MAX = 64
"""Maximum depth of nested lists and dicts. In version 2, each level of folders is a dict."""

LENGTH_MAX = 2**63 - 1
"""Maximum length of a file, and of all files together, in bytes."""


class BadInfo(LycosaError):
    """An info dict that describes no torrent."""


class TorrentFileEntry(NamedTuple):
    """A file of a torrent. `path` has at least one part. `padding`: filler between files (BEP 47)."""

    path: tuple[bytes, ...]
    size_bytes: int
    padding: bool = False


@dataclass(frozen=True, slots=True)
class TorrentInfo:
    """The content of an info dict. A hybrid torrent has two infohashes."""

    name: bytes
    files: tuple[TorrentFileEntry, ...]
    piece_bytes: int
    private: bool
    infohash_v1: bytes | None
    """The SHA-1, 20 bytes; None if the torrent has version 2 only."""
    infohash_v2: bytes | None
    """The SHA-256, 32 bytes; None if the torrent has version 1 only."""
    encoding: bytes = b""
    """The declared encoding of the names, which may be wrong."""

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files if not file.padding)

    @property
    def infohashes(self) -> tuple[bytes, ...]:
        """20 bytes each, as in the DHT."""
        return tuple(each[:20] for each in (self.infohash_v1, self.infohash_v2) if each is not None)


def read_info(metadata: bytes) -> TorrentInfo:
    """Read an info dict. Raises `BadInfo`."""
    try:
        fields = decode(metadata, strict=False, max_depth=DEPTH_MAX)
    except BencodeError as error:
        raise BadInfo(f"no info dict: {error}") from error
    if not isinstance(fields, dict):
        raise BadInfo("no info dict")
    version_1, version_2 = b"pieces" in fields, fields.get(b"meta version") == 2
    if not version_1 and not version_2:
        raise BadInfo("an info dict without pieces and of an unknown version")
    name = fields.get(b"name.utf-8")
    if not _is_utf_8(name):
        name = fields.get(b"name")
    if not isinstance(name, bytes):
        raise BadInfo("a torrent without a name")
    encoding = fields.get(b"encoding")
    info = TorrentInfo(
        name=name,
        files=_files_v2(fields) if version_2 else _files_v1(fields, name),
        piece_bytes=_length(fields.get(b"piece length")),
        private=fields.get(b"private") == 1,
        infohash_v1=hashlib.sha1(metadata, usedforsecurity=False).digest() if version_1 else None,
        infohash_v2=hashlib.sha256(metadata).digest() if version_2 else None,
        encoding=encoding if isinstance(encoding, bytes) else b"",
    )
    if info.size_bytes > LENGTH_MAX:
        raise BadInfo("files that are together larger than 2^63-1 bytes")
    return info


def _files_v1(fields: dict[bytes, Any], name: bytes) -> tuple[TorrentFileEntry, ...]:
    files = fields.get(b"files")
    if files is None:
        return (TorrentFileEntry((name,), _length(fields.get(b"length"))),)
    if not isinstance(files, list):
        raise BadInfo("files that are not a list")
    return tuple(_file_v1(each) for each in files)


def _file_v1(file: Any) -> TorrentFileEntry:
    path = file.get(b"path.utf-8") if isinstance(file, dict) else None
    if not isinstance(path, list) or not path or not all(map(_is_utf_8, path)):
        path = file.get(b"path") if isinstance(file, dict) else None
    if not isinstance(path, list) or not path or not all(isinstance(part, bytes) for part in path):
        raise BadInfo("a file without a path")
    return TorrentFileEntry(tuple(path), _length(file.get(b"length")), _is_padding(file))


def _files_v2(fields: dict[bytes, Any]) -> tuple[TorrentFileEntry, ...]:
    """Return the files in the tree. Its depth was limited when it was decoded."""
    files: list[TorrentFileEntry] = []

    def walk(tree: Any, path: tuple[bytes, ...]) -> None:
        if not isinstance(tree, dict):
            raise BadInfo("a tree of files that is not a dict")
        for part, below in tree.items():
            if part:
                walk(below, (*path, part))
            elif path and isinstance(below, dict):
                files.append(TorrentFileEntry(path, _length(below.get(b"length")), _is_padding(below)))
            else:
                raise BadInfo("a file without a path")

    walk(fields.get(b"file tree"), ())
    return tuple(files)


def _is_utf_8(name: Any) -> bool:
    try:
        return isinstance(name, bytes) and bool(name.decode())
    except UnicodeDecodeError:
        return False


def _is_padding(file: dict[bytes, Any]) -> bool:
    attributes = file.get(b"attr")
    return isinstance(attributes, bytes) and b"p" in attributes


def _length(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value <= LENGTH_MAX:
        raise BadInfo("a length that is not a number of bytes")
    return value
