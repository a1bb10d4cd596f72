"""Sources of torrents, and the untrusted entries that they yield.

After an entry that cannot be read (BAD), a source continues if its format allows that.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from gzip import BadGzipFile
from typing import NamedTuple, Protocol


class EntryKind(Enum):
    """The kind of data in an entry."""

    LINE = "line"
    """A line of JSON; see `storage.core.torrent_line`."""
    TORRENT = "torrent"
    INFOHASH = "infohash"
    """A magnet link or an infohash: the metadata must be fetched from the network."""
    BAD = "bad"
    """An entry that cannot be read; `data` is the reason."""


class Entry(NamedTuple):
    """One torrent of a source. `done` is the progress after this entry, in the unit of `total`."""

    where: str
    kind: EntryKind
    data: bytes
    done: int


class TorrentSource(Protocol):
    """A source of torrents. `total` is in bytes, rows or files, 0 while it is not known."""

    name: str
    total: int

    def entries(self) -> Iterator[Entry]:
        """Yield the entries lazily. Raises `LycosaError`."""


def reason_of(error: Exception) -> str:
    """Return the text of a system error, in lower case."""
    if isinstance(error, BadGzipFile):  # its text shows the first bytes
        return "not a gzip file"
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
