"""The stored metadata of torrents, and the policy that decides which torrents are stored."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from operator import itemgetter
from typing import NamedTuple

from lycosa.storage.core.content_facts import ContentFacts

HASH_BYTES = 20
HASHED_BYTES = 32
NUMBER_MAX = 2**63 - 1
PEERS_MAX = 65_535
EVICTED_S = 90 * 86_400
"""Seconds for which an evicted torrent is not stored again."""


class StoredFile(NamedTuple):
    """A file of a torrent; `path` has "/" between its parts."""

    path: str
    size_bytes: int


_size = itemgetter(1)  # faster than a generator: it runs for each file of each torrent


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
    """Facts found in its names; None if the names were not inspected."""

    def __post_init__(self) -> None:
        lengths = [len(each) for each in (self.infohash_v1, self.infohash_v2) if each is not None]
        if not lengths or lengths not in ([20], [32], [20, 32]):
            raise ValueError("a torrent has an infohash of 20 bytes (v1), one of 32 bytes (v2), or both")
        if len(set(self.keys)) != len(lengths):
            raise ValueError("the v1 infohash equals the first 20 bytes of the v2 infohash")
        numbers = (self.piece_bytes, self.discovered, self.created or 0, *map(_size, self.files))
        if min(numbers) < 0 or max(numbers) > NUMBER_MAX:
            raise ValueError("sizes and times of a torrent are between 0 and 2^63-1")

    @property
    def size_bytes(self) -> int:
        return sum(map(_size, self.files))

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The infohashes as the DHT uses them, 20 bytes each."""
        return tuple(key_of(each) for each in (self.infohash_v1, self.infohash_v2) if each is not None)


class Popularity(NamedTuple):
    """A count of the peers of a torrent, and its time."""

    infohash: bytes
    seeders: int
    leechers: int
    counted: int

    def limited(self) -> Popularity:
        seeders, leechers = (min(max(each, 0), PEERS_MAX) for each in (self.seeders, self.leechers))
        return self._replace(seeders=seeders, leechers=leechers)


class StoredFiles(NamedTuple):
    """The number of some files, and their total size."""

    files_count: int
    size_bytes: int


NO_FILES = StoredFiles(0, 0)


@dataclass(frozen=True, slots=True)
class StoredTorrent:
    """A stored record, possibly with only its first files. `id` is never reused. `counted` is None before the first
    count."""

    id: int
    record: TorrentRecord
    seen: int
    seeders: int = 0
    leechers: int = 0
    counted: int | None = None
    left_out: StoredFiles = NO_FILES
    """The number and size of the files that are stored, but not in `record`."""

    @property
    def files_count(self) -> int:
        return len(self.record.files) + self.left_out.files_count

    @property
    def size_bytes(self) -> int:
        return self.record.size_bytes + self.left_out.size_bytes


class SearchedTorrent(NamedTuple):
    """What an index needs of a stored torrent.

    `paths` are decoded when they are read. Compared with the paths in the record, letters may have another case, and
    spaces may replace dots and underscores.
    """

    id: int
    name: str
    paths: Iterable[str]
    files_count: int
    size_bytes: int
    discovered: int
    content: ContentFacts | None
    seeders: int
    counted: int | None


class Standing(Enum):
    """Why the metadata of an infohash need not be requested."""

    STORED = 0
    DENIED = 1
    EVICTED = 2


class Refusal(NamedTuple):
    """Why an infohash may not be stored, and until when (unix seconds; None: forever). `reason` comes from `deny`."""

    standing: Standing
    until: float | None
    reason: str = ""


class Change(NamedTuple):
    """A new, changed or removed row that is not indexed yet. `torrent` is None if the row was removed."""

    id: int
    token: int
    torrent: SearchedTorrent | None


class RemovedRows(NamedTuple):
    """The first removed rows that an index may still have. Unless `is_all`, there may be others."""

    ids: tuple[int, ...]
    is_all: bool


class PutResult(NamedTuple):
    """How many records of a batch were new, known (perhaps completed or merged), and refused.

    `evicted` is the number of stored torrents that were removed to make room for them.
    """

    new: int = 0
    known: int = 0
    refused: int = 0
    evicted: int = 0


@dataclass(frozen=True, slots=True)
class RecordPolicy:
    """Which torrents are stored. Torrents of private trackers are stored only with `store_private`."""

    store_private: bool = False

    def refuses(self, record: TorrentRecord) -> bool:
        return record.private and not self.store_private


def searched(torrent: StoredTorrent) -> SearchedTorrent:
    """Return what an index needs of a torrent."""
    record = torrent.record
    return SearchedTorrent(
        torrent.id,
        record.name,
        [file.path for file in record.files],
        len(record.files),
        record.size_bytes,
        record.discovered,
        record.content,
        torrent.seeders,
        torrent.counted,
    )


def key_of(infohash: bytes) -> bytes:
    """Return the 20 bytes that identify an infohash in the DHT and in the store."""
    return infohash[:HASH_BYTES]


def hashed_key(infohash: bytes) -> bytes:
    """Return the SHA-256 of the key. Deny-lists use it to name an infohash without revealing it."""
    return hashlib.sha256(key_of(infohash)).digest()


def other_keys(torrents: Iterable[Sequence[bytes]]) -> dict[bytes, bytes]:
    """Map each key of a hybrid torrent to its other key. `torrents` are the infohashes of each torrent."""
    pairs = [(key_of(v1), key_of(v2)) for v1, v2 in (each for each in torrents if len(each) == 2)]
    return dict(pairs) | {v2: v1 for v1, v2 in pairs}


def completed(known: TorrentRecord, new: TorrentRecord) -> TorrentRecord:
    """Return the known record, completed from the new one."""
    v2 = known.infohash_v2 or new.infohash_v2
    # The DHT uses truncated v2 infohashes. Crawlers without support for v2 mistake them for v1 infohashes.
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
