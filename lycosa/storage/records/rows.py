"""The tables of a record store, and the encoding of their rows.

    torrent_store       one row: the next id, the last indexed id, and the last listed id (returned for indexing).
                        Writers lock this row first, so only one writes at a time
    torrents            id -> both infohashes, content (see `content`); rarely changed
    torrent_popularity  id -> two 48-bit numbers by which queries sort: `worth` (seeders, then time last seen; the
                        smallest is evicted first) and `counted` (time of the peer count, then leechers)
    torrent_hashes      the first 6 bytes of each infohash, id; a match is confirmed by 20 bytes of the infohash
    torrent_denied      20 bytes of an infohash, or its `hashed_key` -> whether it is denied or evicted, until when, the
                        reason, and for a hybrid torrent 20 bytes of the other infohash
    torrent_changes     id -> token of a change that is not indexed yet; torrents after the last indexed id need no row

SQLite stores numbers near 0 in fewer bytes. So a count that rises from 0 would make its row grow, which may split a
full database page. Therefore 2^47 is subtracted from the 48-bit numbers: small ones take 6 bytes, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from lycosa.storage.core.torrent_record import NO_FILES, SearchedTorrent, StoredFiles, StoredTorrent
from lycosa.storage.records.content import ContentReader, damage, read_content, read_contents
from lycosa.storage.records.frames import FrameError

Row = tuple[Any, ...]

TABLES = (
    """CREATE TABLE torrent_store (one {integer} PRIMARY KEY, next_id {bigint} NOT NULL,
        indexed_id {bigint} NOT NULL, listed_id {bigint} NOT NULL){engine}""",
    "CREATE TABLE torrents (id {id} PRIMARY KEY, v1 {hash}, v2 {hash}, content {blob} NOT NULL){engine}",
    """CREATE TABLE torrent_popularity (id {id} PRIMARY KEY, worth {bigint} NOT NULL,
        counted {bigint} NOT NULL){engine}""",
    """CREATE TABLE torrent_hashes (prefix {bigint} NOT NULL, id {bigint} NOT NULL,
        PRIMARY KEY (prefix, id)){clustered}""",
    """CREATE TABLE torrent_denied (hash {hash} PRIMARY KEY, standing {integer} NOT NULL, until {bigint} NOT NULL,
        reason {text} NOT NULL, other {hash}){clustered}""",
    "CREATE INDEX torrent_denied_until ON torrent_denied (until)",
    "CREATE TABLE torrent_changes (id {id} PRIMARY KEY, token {bigint} NOT NULL){engine}",
    "INSERT INTO torrent_store VALUES (1, 1, 0, 0)",
)
NEW_COLUMN = "other"
"""A column that `torrent_denied` lacked in earlier versions."""
ADD_COLUMN = f"ALTER TABLE torrent_denied ADD COLUMN {NEW_COLUMN} {{hash}}"
NAMES = {"torrent_store", "torrents", "torrent_popularity", "torrent_hashes", "torrent_denied", "torrent_changes"}
STORED = (
    "SELECT t.id, t.v1, t.v2, t.content, p.worth, p.counted"
    " FROM torrents t JOIN torrent_popularity p ON p.id = t.id WHERE "
)
SEARCHED = "SELECT t.id, t.content, p.worth, p.counted FROM torrents t JOIN torrent_popularity p ON p.id = t.id WHERE "
OFFSET = 1 << 47
SECONDS_MAX = (1 << 32) - 2
NEVER = -OFFSET
"""The value of the column `counted` for a torrent whose peers were never counted."""
PREFIX_BYTES = 6


def stored_torrent(row: Row, files_max: int | None = None) -> StoredTorrent:
    """Return the torrent of a row of `STORED`, with `files_max` files at most. Raises `StorageError`."""
    number, v1, v2, content, worth, counted = row
    v1, v2 = (None if each is None else bytes(each) for each in (v1, v2))
    with damage((v1 or v2 or b"").hex()):
        read = read_content(bytes(content))
        record = read.record(v1, v2, files_max)
        missing = read.count - len(record.files)
        left_out = StoredFiles(missing, read.size_bytes() - record.size_bytes) if missing else NO_FILES
    seeders, seen = read_worth(worth)
    at, leechers = read_counted(counted)
    return StoredTorrent(number, record, seen, seeders, leechers, at, left_out)


def searched_torrent(row: Row) -> SearchedTorrent:
    """Return the torrent of a row of `SEARCHED`. Raises `StorageError`."""
    with damage(f"row {row[0]}"):
        return _searched(row, read_content(bytes(row[1])))


def searched_torrents(rows: Sequence[Row]) -> list[SearchedTorrent]:
    """Return the torrents of rows of `SEARCHED`. Raises `StorageError`."""
    try:
        readers = read_contents([bytes(content) for _, content, _, _ in rows])
        return [_searched(row, reader) for row, reader in zip(rows, readers, strict=True)]
    except (ValueError, IndexError, FrameError):
        return [searched_torrent(row) for row in rows]  # names the damaged row


def _searched(row: Row, read: ContentReader) -> SearchedTorrent:
    number, _, worth, counted = row
    return SearchedTorrent(
        number,
        read.name,
        _Paths(read, number),
        read.count,
        read.size_bytes(),
        read.discovered,
        read.facts,
        read_worth(worth)[0],
        read_counted(counted)[0],
    )


class _Paths:
    def __init__(self, read: ContentReader, number: int) -> None:
        self._read, self._number = read, number

    def __iter__(self) -> Iterator[str]:
        with damage(f"row {self._number}"):
            yield from self._read.paths(cased=False)


def prefix_of(key: bytes) -> int:
    """Return the value of the column `prefix` for a key."""
    return int.from_bytes(key[:PREFIX_BYTES]) - OFFSET


def worth(seeders: int, seen: int) -> int:
    """Return the value of the column `worth`."""
    return (seeders << 32 | _seconds(seen)) - OFFSET


def read_worth(column: int) -> tuple[int, int]:
    """Return the seeders, and when the torrent was last seen."""
    return divmod(column + OFFSET, 1 << 32)


def counted(at: int, leechers: int) -> int:
    """Return the value of the column `counted`."""
    return (_seconds(at) + 1 << 16 | leechers) - OFFSET


def read_counted(column: int) -> tuple[int | None, int]:
    """Return when the peers were counted, and the number of leechers."""
    at, leechers = divmod(column + OFFSET, 1 << 16)
    return at - 1 if at else None, leechers


def _seconds(time: int) -> int:
    return min(max(time, 0), SECONDS_MAX)
