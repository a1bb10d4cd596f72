"""A record store in the tables of a database, whichever it is. Adapters say how to connect and what its errors mean.

    torrent_store       one row: the next id. Each transaction updates it first, so writers take turns
    torrents            id -> both infohashes, content (see `content`); written once
    torrent_popularity  id -> when seen, seeders, leechers, when counted: what changes often is small
    torrent_hashes      20 bytes of each infohash -> id
    torrent_denied      20 bytes of an infohash, or its `hashed_key` -> why, and until when
    torrent_changes     id -> token: what the index does not have yet

All statements are SQL that each of the databases understands.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lycosa.storage.core.torrent_record import (
    EVICTED_S,
    HASHED_BYTES,
    Change,
    Popularity,
    PutResult,
    RecordPolicy,
    Refusal,
    Standing,
    StoredTorrent,
    TorrentRecord,
    completed,
    hashed_key,
    key_of,
)
from lycosa.storage.records.content import decode_content, encode_content
from lycosa.storage.records.database import VALUES_MAX, DatabaseThread, Row, marks, slices

STATEMENT_BYTES = 2 << 20
"""Maximum size of the blobs in a statement: MariaDB accepts packets of 16 MiB, and a quoted blob may double."""
PUT_ROWS = 500
"""Maximum number of records in a transaction: it limits the size of the log."""
SCAN_ROWS = 20_000
"""Number of infohashes read at once to find those that a hashed deny-list names."""
FOREVER = 2**62

TABLES = (
    "CREATE TABLE torrent_store (one {integer} PRIMARY KEY, next_id {bigint} NOT NULL){engine}",
    "CREATE TABLE torrents (id {id} PRIMARY KEY, v1 {hash}, v2 {hash}, content {blob} NOT NULL){engine}",
    """CREATE TABLE torrent_popularity (id {id} PRIMARY KEY, seen {bigint} NOT NULL, seeders {integer} NOT NULL,
        leechers {integer} NOT NULL, counted {bigint}){engine}""",
    "CREATE INDEX torrent_eviction ON torrent_popularity (seeders, seen)",
    "CREATE INDEX torrent_counted ON torrent_popularity (counted)",
    "CREATE TABLE torrent_hashes (hash {hash} PRIMARY KEY, id {bigint} NOT NULL){clustered}",
    """CREATE TABLE torrent_denied (hash {hash} PRIMARY KEY, standing {integer} NOT NULL, until {bigint} NOT NULL,
        reason {text} NOT NULL){clustered}""",
    "CREATE INDEX torrent_denied_until ON torrent_denied (until)",
    "CREATE TABLE torrent_changes (id {id} PRIMARY KEY, token {bigint} NOT NULL){engine}",
    "INSERT INTO torrent_store VALUES (1, 1)",
)
NAMES = {"torrent_store", "torrents", "torrent_popularity", "torrent_hashes", "torrent_denied", "torrent_changes"}
STORED = (
    "SELECT t.id, t.v1, t.v2, t.content, p.seen, p.seeders, p.leechers, p.counted"
    " FROM torrents t JOIN torrent_popularity p ON p.id = t.id WHERE "
)


class TableRecordStore(DatabaseThread):
    """See `storage.ports.RecordStore`. `types` are the names of the column types."""

    types: dict[str, str]

    def __init__(self, policy: RecordPolicy | None = None) -> None:
        super().__init__()
        self._policy = policy or RecordPolicy()

    @abstractmethod
    def _used_bytes(self) -> int:
        """See `used_bytes`."""

    async def _make_room(self, content_bytes: int, now: float) -> None:
        """Remove what is due so that as much more content can be stored. A server has no size to keep to."""
        return

    # ------------------------------------------------------------------------------------------------------ the port

    async def open(self) -> None:
        await self._run(lambda: None)

    async def standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        return await self._run(lambda: self._standing(infohashes, now))

    async def refusal(self, infohash: bytes, now: float) -> Refusal | None:
        return await self._run(lambda: self._refusal(key_of(infohash), now))

    async def count(self) -> int:
        query = "SELECT count(*) FROM torrent_popularity"
        return int((await self._run(lambda: self._query(query)))[0][0])

    async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
        allowed = [record for record in records if not self._policy.refuses(record)]
        result = PutResult(refused=len(records) - len(allowed))
        for some in slices(allowed, PUT_ROWS):
            encoded = [(record, encode_content(record)) for record in some]
            await self._make_room(sum(len(content) for _, content in encoded), now)
            added = await self._run(partial(self._put, encoded, int(now)), write=True)
            result = PutResult(*map(sum, zip(result, added, strict=True)))
        return result

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        condition = "t.id = (SELECT id FROM torrent_hashes WHERE hash = ?)"
        rows = await self._run(lambda: self._query(STORED + condition, [key_of(infohash)]))
        return next(map(_stored, rows), None)

    async def mark_seen(self, infohashes: Sequence[bytes], now: float) -> None:
        await self._run(lambda: self._see(self._ids(infohashes).values(), int(now)), write=True)

    async def set_popularity(self, counts: Sequence[Popularity]) -> None:
        await self._run(lambda: self._set_popularity(counts), write=True)

    async def due_for_count(self, before: float, limit: int) -> list[tuple[bytes, ...]]:
        return await self._run(lambda: self._due_for_count(int(before), limit))

    async def changes(self, limit: int) -> list[Change]:
        return await self._run(lambda: self._changes(limit))

    async def acknowledge(self, changes: Sequence[Change]) -> None:
        await self._run(lambda: self._acknowledge(changes), write=True)

    async def torrents(self, after_id: int, limit: int) -> list[StoredTorrent]:
        query = STORED + "t.id > ? ORDER BY t.id LIMIT ?"
        return [_stored(row) for row in await self._run(lambda: self._query(query, [after_id, limit]))]

    async def by_id(self, ids: Sequence[int]) -> list[StoredTorrent]:
        return await self._run(lambda: [_stored(row) for row in self._select(STORED, "t.id", ids)])

    async def scan(self, after_id: int, limit: int) -> list[Change]:
        return await self._run(lambda: self._scan(after_id, limit))

    async def infohashes(self, after: bytes, limit: int) -> list[bytes]:
        return [infohash for infohash, _ in await self._run(lambda: self._hashes(after, limit))]

    async def deny(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = (), reason: str = "") -> int:
        keys = _denied_keys(infohashes, hashed)
        return await self._run(lambda: self._deny(keys, reason), write=True)

    async def allow(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> None:
        keys = _denied_keys(infohashes, hashed)
        await self._run(lambda: self._delete("torrent_denied", "hash", keys), write=True)

    async def evict(self, count: int, now: float) -> int:
        return await self._run(lambda: self._evict(count, int(now)), write=True)

    async def used_bytes(self) -> int:
        return await self._run(self._used_bytes)

    async def close(self) -> None:
        self._closed = True
        await self._in_thread(self._disconnect)
        self._executor.shutdown()

    # -------------------------------------------------------------------------------------------------------- reading

    def _ids(self, infohashes: Iterable[bytes]) -> dict[bytes, int]:
        """Return the ids of the stored torrents by the 20 bytes of an infohash."""
        keys = {key_of(each) for each in infohashes}
        return {
            bytes(key): number
            for key, number in self._select("SELECT hash, id FROM torrent_hashes WHERE", "hash", keys)
        }

    def _denied(self, keys: Iterable[bytes], now: float) -> dict[bytes, Standing]:
        """Return those of these keys that may not be stored."""
        names = {form: key for key in keys for form in (key, hashed_key(key))}
        rows = self._select("SELECT hash, standing, until FROM torrent_denied WHERE", "hash", names)
        found: dict[bytes, Standing] = {}
        for form, standing, until in rows:
            if until > now and found.get(key := names[bytes(form)]) is not Standing.DENIED:
                found[key] = Standing(standing)
        return found

    def _refusal(self, key: bytes, now: float) -> Refusal | None:
        query = "SELECT standing, until, reason FROM torrent_denied WHERE until > ? AND hash IN (?, ?)"
        found = self._query(f"{query} ORDER BY until DESC", [int(now), key, hashed_key(key)])
        if not found:
            return None
        standing, until, reason = found[0]
        return Refusal(Standing(standing), None if until == FOREVER else float(until), reason)

    def _standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        keys = {each: key_of(each) for each in infohashes}
        denied, stored = self._denied(set(keys.values()), now), self._ids(keys)
        return {each: denied.get(key, Standing.STORED) for each, key in keys.items() if key in denied or key in stored}

    def _hashes(self, after: bytes, limit: int) -> list[tuple[bytes, int]]:
        query = "SELECT hash, id FROM torrent_hashes WHERE hash > ? ORDER BY hash LIMIT ?"
        return [(bytes(key), number) for key, number in self._query(query, [after, limit])]

    def _due_for_count(self, before: int, limit: int) -> list[tuple[bytes, ...]]:
        query = "SELECT id FROM torrent_popularity WHERE counted"
        due = self._query(f"{query} IS NULL LIMIT ?", [limit])
        if len(due) < limit:
            due += self._query(f"{query} < ? ORDER BY counted LIMIT ?", [before, limit - len(due)])
        ids = [row[0] for row in due]
        keys = {number: keys for number, *keys in self._select("SELECT id, v1, v2 FROM torrents WHERE", "id", ids)}
        return [tuple(key_of(bytes(each)) for each in keys[number] if each is not None) for number in ids]

    def _changes(self, limit: int) -> list[Change]:
        listed = self._query("SELECT id, token FROM torrent_changes ORDER BY id LIMIT ?", [limit])
        stored = {row[0]: _stored(row) for row in self._select(STORED, "t.id", [number for number, _ in listed])}
        return [Change(number, token, stored.get(number)) for number, token in listed]

    def _scan(self, after_id: int, limit: int) -> list[Change]:
        # Tokens first: a change in between has another token, and stays.
        tokens = dict(
            self._query("SELECT id, token FROM torrent_changes WHERE id > ? ORDER BY id LIMIT ?", [after_id, limit])
        )
        rows = self._query(STORED + "t.id > ? ORDER BY t.id LIMIT ?", [after_id, limit])
        return [Change(row[0], tokens.get(row[0], 0), _stored(row)) for row in rows]

    # -------------------------------------------------------------------------------------------------------- writing

    def _put(self, encoded: list[tuple[TorrentRecord, bytes]], now: int) -> PutResult:
        keys = {key for record, _ in encoded for key in record.keys}
        denied, ids = self._denied(keys, now), self._ids(keys)
        wanted = [each for each in encoded if not any(key in denied for key in each[0].keys)]
        first_id: int = self._query("SELECT next_id FROM torrent_store")[0][0]
        next_id = first_id
        new: dict[int, tuple[TorrentRecord, bytes]] = {}
        known: dict[int, list[TorrentRecord]] = {}
        for record, content in wanted:
            found = sorted({ids[key] for key in record.keys if key in ids})
            if not found:
                new[next_id] = record, content
                ids |= dict.fromkeys(record.keys, next_id)
                next_id += 1
            else:
                known.setdefault(found[0], []).append(record)
        self._execute("UPDATE torrent_store SET next_id = ?", [next_id])
        for some in _by_size([(i, r.infohash_v1, r.infohash_v2, content) for i, (r, content) in new.items()]):
            self._insert("torrents", some)
        self._insert("torrent_popularity", [(number, now, 0, 0, None) for number in new])
        self._insert("torrent_hashes", sorted((key, i) for i, (record, _) in new.items() for key in record.keys))
        self._note_changes(new)
        self._complete(known, now)
        return PutResult(next_id - first_id, len(wanted) - len(new), len(encoded) - len(wanted))

    def _complete(self, known: dict[int, list[TorrentRecord]], now: int) -> None:
        """Mark known torrents as seen, add what the new records say beyond them, and merge those that are one."""
        self._see(known, now)
        stored = {row[0]: row for row in self._select("SELECT id, v1, v2 FROM torrents WHERE", "id", known)}
        for number, records in known.items():
            _, v1, v2 = stored[number]
            if any(_says_more(record, v1, v2) for record in records):
                self._rewrite(number, records)

    def _rewrite(self, number: int, records: list[TorrentRecord]) -> None:
        [row] = self._select(STORED, "t.id", [number])
        before = _stored(row).record
        after = before
        for record in records:
            after = completed(after, record)
        if after == before:
            return
        others = sorted(set(self._ids(after.keys).values()) - {number})
        for row in list(self._select(STORED, "t.id", others)):
            after = completed(after, _stored(row).record)
        self._remove(others)
        self._delete("torrents", "id", [number])
        self._insert("torrents", [(number, after.infohash_v1, after.infohash_v2, encode_content(after))])
        self._delete("torrent_hashes", "hash", after.keys)
        self._insert("torrent_hashes", [(key, number) for key in after.keys])
        self._note_changes([number])

    def _see(self, ids: Iterable[int], now: int) -> None:
        for some in slices(list(ids), VALUES_MAX):
            self._execute(
                f"UPDATE torrent_popularity SET seen = ? WHERE seen < ? AND id IN ({marks(len(some))})",
                [now, now, *some],
            )

    def _set_popularity(self, counts: Sequence[Popularity]) -> None:
        ids = self._ids(each.infohash for each in counts)
        latest: dict[int, Popularity] = {}
        for each in sorted(counts, key=lambda count: count.counted):
            if number := ids.get(key_of(each.infohash)):
                latest[number] = each
        rows = list(
            self._select("SELECT id, seen, seeders, leechers, counted FROM torrent_popularity WHERE", "id", latest)
        )
        newer = {row[0]: row for row in rows if row[4] is None or row[4] < latest[row[0]].counted}
        self._delete("torrent_popularity", "id", newer)
        changed = [(number, row[1], *latest[number][1:]) for number, row in newer.items()]
        self._insert("torrent_popularity", changed)
        self._note_changes(newer)

    def _note_changes(self, ids: Iterable[int]) -> None:
        numbers = sorted(ids)
        token = secrets.randbits(62)  # another at each change, so that a late acknowledgement does not hide it
        self._delete("torrent_changes", "id", numbers)
        self._insert("torrent_changes", [(number, token) for number in numbers])

    def _acknowledge(self, changes: Sequence[Change]) -> None:
        tokens = {each.id: each.token for each in changes}
        rows = self._select("SELECT id, token FROM torrent_changes WHERE", "id", tokens)
        self._delete("torrent_changes", "id", [number for number, token in list(rows) if tokens[number] == token])

    def _remove(self, ids: Sequence[int]) -> list[bytes]:
        """Remove torrents. Return their infohashes, 20 bytes each."""
        rows = list(self._select("SELECT v1, v2 FROM torrents WHERE", "id", ids))
        keys = [key_of(bytes(each)) for row in rows for each in row if each is not None]
        self._delete("torrent_hashes", "hash", keys)
        self._delete("torrents", "id", ids)
        self._delete("torrent_popularity", "id", ids)
        self._note_changes(ids)
        return keys

    def _deny(self, keys: set[bytes], reason: str) -> int:
        ids = set(self._ids(key for key in keys if len(key) != HASHED_BYTES).values())
        hashed = {key for key in keys if len(key) == HASHED_BYTES}
        after = b""
        while hashed and (some := self._hashes(after, SCAN_ROWS)):
            ids |= {number for key, number in some if hashed_key(key) in hashed}
            after = some[-1][0]
        removed = self._remove(sorted(ids))
        self._ban([*keys, *removed], Standing.DENIED, FOREVER, reason)  # both infohashes of a hybrid torrent
        return len(ids)

    def _evict(self, count: int, now: int) -> int:
        self._execute("DELETE FROM torrent_denied WHERE until <= ?", [now])
        query = "SELECT id FROM torrent_popularity ORDER BY seeders, seen, id LIMIT ?"
        ids = [row[0] for row in self._query(query, [count])]
        self._ban(self._remove(ids), Standing.EVICTED, now + EVICTED_S, "")
        return len(ids)

    def _ban(self, keys: Iterable[bytes], standing: Standing, until: int, reason: str) -> None:
        unique = sorted(set(keys))
        self._delete("torrent_denied", "hash", unique)
        self._insert("torrent_denied", [(key, standing.value, until, reason) for key in unique])


def _says_more(record: TorrentRecord, v1: bytes | None, v2: bytes | None) -> bool:
    return (
        bool(record.comment)
        or record.created is not None
        or (record.infohash_v1 is not None and v1 is None)
        or (record.infohash_v2 is not None and v2 is None)
    )


def _stored(row: Row) -> StoredTorrent:
    number, v1, v2, content, *popularity = row
    hashes = (None if each is None else bytes(each) for each in (v1, v2))
    return StoredTorrent(number, decode_content(bytes(content), *hashes), *popularity)


def _denied_keys(infohashes: Iterable[bytes], hashed: Iterable[bytes]) -> set[bytes]:
    """Return the keys of `denied`: 20 bytes of an infohash, or the 32 bytes of a hashed one."""
    return {key_of(each) for each in infohashes} | {each[:HASHED_BYTES] for each in hashed}


def _by_size(rows: list[Row]) -> Iterator[list[Row]]:
    """Divide rows whose last value is a blob into statements that every server accepts."""
    some: list[Row] = []
    size = 0
    for row in rows:
        if some and size + len(row[-1]) > STATEMENT_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row[-1])
    yield some
