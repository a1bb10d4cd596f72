"""What is stored of a torrent, and which torrents are stored at all."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple

from lycosa.storage.core.content_facts import ContentFacts

HASH_BYTES = 20
HASHED_BYTES = 32
NUMBER_MAX = 2**63 - 1
PEERS_MAX = 65_535
EVICTED_S = 90 * 86_400
"""How long an evicted torrent is not stored again."""


class StoredFile(NamedTuple):
    """A file of a torrent; `path` has "/" between its parts."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class TorrentRecord:
    """The metadata of a torrent. Times are unix seconds. A hybrid torrent has both infohashes."""

    infohash_v1: bytes | None
    infohash_v2: bytes | None
    name: str
    files: tuple[StoredFile, ...]
    piece_bytes: int
    discovered: int
    private: bool = False
    comment: str = ""
    created: int | None = None
    content: ContentFacts | None = None
    """What its names say; None if nobody has looked."""

    def __post_init__(self) -> None:
        lengths = [len(each) for each in (self.infohash_v1, self.infohash_v2) if each is not None]
        if not lengths or lengths not in ([20], [32], [20, 32]):
            raise ValueError("a torrent has an infohash of 20 bytes (v1), one of 32 bytes (v2), or both")
        if len(set(self.keys)) != len(lengths):
            raise ValueError("the infohash of version 1 is the beginning of that of version 2")
        numbers = (self.piece_bytes, self.discovered, self.created or 0, *(file.size_bytes for file in self.files))
        if min(numbers) < 0 or max(numbers) > NUMBER_MAX:
            raise ValueError("sizes and times of a torrent are between 0 and 2^63-1")

    @property
    def size_bytes(self) -> int:
        """The size of the contents."""
        return sum(file.size_bytes for file in self.files)

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The infohashes as the DHT knows them, 20 bytes each."""
        return tuple(key_of(each) for each in (self.infohash_v1, self.infohash_v2) if each is not None)


class Popularity(NamedTuple):
    """A count of the peers of a torrent, and its time."""

    infohash: bytes
    seeders: int
    leechers: int
    counted: int

    def limited(self) -> Popularity:
        """Return it as it is stored: with PEERS_MAX seeders and leechers at most."""
        seeders, leechers = (min(max(each, 0), PEERS_MAX) for each in (self.seeders, self.leechers))
        return self._replace(seeders=seeders, leechers=leechers)


@dataclass(frozen=True, slots=True)
class StoredTorrent:
    """A stored record. `id` is never given to another torrent. `counted` is None until its peers were counted."""

    id: int
    record: TorrentRecord
    seen: int
    seeders: int = 0
    leechers: int = 0
    counted: int | None = None


class Standing(Enum):
    """Why an infohash need not be asked for."""

    STORED = 0
    DENIED = 1
    EVICTED = 2


class Refusal(NamedTuple):
    """Why an infohash may not be stored, and until when; None for ever. A deny-list may give its reason."""

    standing: Standing
    until: float | None
    reason: str = ""


class Change(NamedTuple):
    """A row that the index does not have yet. `torrent` is None if the row was removed."""

    id: int
    token: int
    torrent: StoredTorrent | None


class PutResult(NamedTuple):
    """How many records of a batch were new, known (perhaps completed or merged), and refused by policy or deny-list."""

    new: int = 0
    known: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class RecordPolicy:
    """Which torrents are stored. Those of closed trackers (`private`) are not, unless the user wants them."""

    store_private: bool = False

    def refuses(self, record: TorrentRecord) -> bool:
        """Return whether the record may not be stored."""
        return record.private and not self.store_private


def key_of(infohash: bytes) -> bytes:
    """Return the 20 bytes by which the DHT and the store know an infohash of either version."""
    return infohash[:HASH_BYTES]


def hashed_key(infohash: bytes) -> bytes:
    """Return the form in which deny-lists name an infohash without showing it: SHA-256 of its 20 bytes."""
    return hashlib.sha256(key_of(infohash)).digest()


def completed(known: TorrentRecord, new: TorrentRecord) -> TorrentRecord:
    """Return the known record with what only the new one says: the other infohash, comment, creation date."""
    v2 = known.infohash_v2 or new.infohash_v2
    # Other crawlers know no version 2, and call the 20 bytes of its infohash that the DHT uses one of version 1.
    v1s = [each for each in (known.infohash_v1, new.infohash_v1) if each and not (v2 and each == key_of(v2))]
    return replace(
        known,
        infohash_v1=v1s[0] if v1s else None,
        infohash_v2=v2,
        discovered=min(known.discovered, new.discovered),
        private=known.private or new.private,
        comment=known.comment or new.comment,
        created=new.created if known.created is None else known.created,
        content=known.content or new.content,
    )
