"""What a source of torrents yields: entries, of which nothing is trusted.

An entry that cannot be read is one of the kind BAD, and the source goes on behind it, as far as its format allows.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, Protocol


class EntryKind(Enum):
    """What an entry holds."""

    LINE = "line"
    """JSON; see `storage.core.torrent_line`."""
    TORRENT = "torrent"
    """The content of a torrent file."""
    INFOHASH = "infohash"
    """A magnet link or an infohash: the metadata must be fetched from the network."""
    BAD = "bad"
    """What cannot be read, and why."""


class Entry(NamedTuple):
    """One torrent of a source. `done`: how much of the source's `total` lies before the next entry."""

    where: str
    kind: EntryKind
    data: bytes
    done: int


class TorrentSource(Protocol):
    """See the module. `total` is in bytes or rows, 0 if it is not known."""

    name: str
    total: int

    def entries(self) -> Iterator[Entry]:
        """Yield the entries; they are read while the caller asks for them. Raises `LycosaError`."""


def reason_of(error: Exception) -> str:
    """Return what an error of the system says."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
