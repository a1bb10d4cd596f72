"""Recognises the kind of source that a user gives for an import."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from lycosa.core.errors import UsageError
from lycosa.dht.exchange.bitmagnet import SCHEMES, BitmagnetSource
from lycosa.dht.exchange.entries import TorrentSource, reason_of
from lycosa.dht.exchange.files import TORRENT_SUFFIX, LinesSource, TorrentFilesSource
from lycosa.dht.exchange.magnetico import MagneticoSource
from lycosa.infra.line_files import STREAM, SUFFIXES

SQLITE_MAGIC = b"SQLite format 3\0"


def find_source(written: str, open_stdin: Callable[[], BinaryIO]) -> TorrentSource:
    """Return the source for an argument of the command. Raises `UsageError`."""
    if written == STREAM:
        return LinesSource("standard input", open_stdin)
    if written.partition("://")[0] in SCHEMES:
        return BitmagnetSource(written)
    path = Path(written)
    try:
        if path.is_dir() or (path.suffix.lower() == TORRENT_SUFFIX and path.is_file()):
            return TorrentFilesSource(path)
        with path.open("rb") as file:
            beginning = file.read(len(SQLITE_MAGIC))
    except OSError as error:
        raise UsageError(f"{written} cannot be read: {reason_of(error)}") from None
    if beginning == SQLITE_MAGIC:
        return MagneticoSource(path)
    suffix = path.suffix.lower()
    return LinesSource(written, lambda: path.open("rb"), suffix if suffix in SUFFIXES else "")
