"""A record store in the tables of a database. Subclasses connect to a database and translate its errors."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import TypeVar

from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import (
    EVICTED_S,
    HASH_BYTES,
    HASHED_BYTES,
    Change,
    Popularity,
    PutResult,
    RecordPolicy,
    Refusal,
    RemovedRows,
    SearchedTorrent,
    Standing,
    StoredTorrent,
    TorrentRecord,
    completed,
    hashed_key,
    key_of,
    other_keys,
)
from lycosa.storage.records.changes_table import ChangesTable, decoded
from lycosa.storage.records.content import encode_content
from lycosa.storage.records.database import VALUES_MAX, marks, slices
from lycosa.storage.records.denied_table import FOREVER, SCAN_ROWS, DeniedTable
from lycosa.storage.records.popularity_table import PopularityTable
from lycosa.storage.records.rows import NEVER, STORED, prefix_of, searched_torrents, stored_torrent, worth

Value = TypeVar("Value")

STATEMENT_BYTES = 2 << 20
"""Maximum bytes of blobs in a statement: MariaDB accepts packets of 16 MiB, and quoting may double a blob."""
PUT_ROWS = 250
EVICT_ROWS = 100
"""Maximum numbers of records stored, and of records removed, in a transaction. They limit the size of the log."""


class TableRecordStore(ChangesTable, DeniedTable, PopularityTable):
    """See `RecordStore`. `types` are the column types and table options that this database needs in `TABLES`."""

    types: dict[str, str]
    batch_bytes = STATEMENT_BYTES
    """Maximum bytes of content written in a transaction. A single larger record is stored alone."""
    put_rows, evict_rows = PUT_ROWS, EVICT_ROWS

    def __init__(self, policy: RecordPolicy | None = None) -> None:
        super().__init__()
        self._policy = policy or RecordPolicy()

    @abstractmethod
    def _used_bytes(self) -> int: ...

    async def _make_room(self, content_bytes: int, now: float) -> int:
        """If the store has a maximum size, evict torrents to make room for `content_bytes` more bytes of content.

        Return the number of evicted torrents.
        """
        return 0

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
        for some in slices(allowed, self.put_rows):
            encoded = await self._in_thread(partial(_encoded, some))
            for batch in by_size(encoded, lambda each: len(each[1]), self.batch_bytes):
                evicted = await self._make_room(sum(len(content) for _, content in batch), now)
                added = await self._run(partial(self._put, batch, int(now)), write=True)
                result = PutResult(*map(sum, zip(result, added._replace(evicted=evicted), strict=True)))
        return result

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        return await self._run(lambda: self._get(key_of(infohash)))

    async def mark_seen(self, infohashes: Sequence[bytes], now: float) -> None:
        await self._run(lambda: self._see(self._ids(infohashes).values(), int(now)), write=True)

    async def set_popularity(self, counts: Sequence[Popularity]) -> None:
        await self._run(lambda: self._set_popularity(counts), write=True)

    async def set_content(self, facts: Mapping[int, ContentFacts]) -> int:
        changed = 0
        for some in slices(sorted(facts), self.put_rows):
            sizes = await self._run(partial(self._content_sizes, some))
            for batch in by_size(sizes, itemgetter(1), self.batch_bytes):
                new = {number: facts[number] for number, _ in batch}
                changed += await self._run(partial(self._set_content, new), write=True)
        return changed

    async def due_for_count(self, before: float, limit: int) -> list[tuple[bytes, ...]]:
        return await self._run(lambda: self._due_for_count(int(before), limit))

    async def changes(self, limit: int) -> list[Change]:
        rows = await self._run(lambda: self._changes(limit), write=True)
        return await self._in_thread(lambda: decoded(rows))

    async def acknowledge(self, changes: Sequence[Change]) -> None:
        await self._run(lambda: self._acknowledge(changes), write=True)

    async def torrents(self, after_id: int, limit: int) -> list[StoredTorrent]:
        query = STORED + "t.id > ? ORDER BY t.id LIMIT ?"
        rows = await self._run(lambda: self._query(query, [after_id, limit]))
        return await self._in_thread(lambda: [stored_torrent(row) for row in rows])

    async def by_id(self, ids: Sequence[int], files_max: int | None = None) -> list[StoredTorrent]:
        rows = await self._run(lambda: list(self._select(STORED, "t.id", ids)))
        return await self._in_thread(lambda: [stored_torrent(row, files_max) for row in rows])

    async def removed(self, limit: int) -> RemovedRows:
        return await self._run(lambda: self._removed(limit))

    async def scan(self, after_id: int, limit: int) -> list[Change]:
        rows = await self._run(lambda: self._scan(after_id, limit), write=True)
        return await self._in_thread(lambda: decoded(rows))

    async def mark_listed(self) -> int:
        return await self._run(self._mark_listed, write=True)

    async def searched(self, after_id: int, last_id: int, limit: int) -> list[SearchedTorrent]:
        rows = await self._run(lambda: self._searched(after_id, last_id, limit))
        return await self._in_thread(lambda: searched_torrents(rows))

    async def acknowledge_until(self, last_id: int) -> None:
        await self._run(lambda: self._acknowledge_until(last_id), write=True)

    async def infohashes(self, after_id: int, limit: int) -> list[tuple[int, tuple[bytes, ...]]]:
        return await self._run(lambda: self._hashes(after_id, limit))

    async def deny(
        self,
        infohashes: Iterable[bytes],
        *,
        hashed: Iterable[bytes] = (),
        reason: str = "",
        hybrids: Iterable[Sequence[bytes]] = (),
    ) -> int:
        keys, others = _denied_keys(infohashes, hashed), other_keys(hybrids)
        removed = 0
        for part in slices(sorted(keys), self.evict_rows):
            removed += await self._run(partial(self._deny, set(part), reason, others), write=True)
        # From now on `put` refuses these infohashes. So the scans, which find the stored and evicted torrents of hashed
        # infohashes, need no lock.
        names = {key for key in keys if len(key) == HASHED_BYTES}
        last, last_key = 0, b""
        while names and (some := await self.infohashes(last, SCAN_ROWS)):
            found = await self._in_thread(partial(_named, some, names))
            if found:
                removed += await self.deny(found, reason=reason)
            last = some[-1][0]
        while names and (evicted := await self._run(partial(self._evicted_after, last_key))):
            removed += await self.deny(_named([(0, evicted)], names), reason=reason)
            last_key = evicted[-1]
        return removed

    async def denied(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        plain, names = {key_of(each) for each in infohashes}, set(hashed)
        return len(await self._run(lambda: self._entries(plain, names, {Standing.DENIED})))

    async def allow(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        plain, names = {key_of(each) for each in infohashes}, set(hashed)
        allowed = await self._run(lambda: self._allow(plain, names), write=True)
        # For a hashed infohash, `deny` has also denied the infohashes of the torrent that it found.
        last = b""
        while names and (some := await self._run(partial(self._denied_after, last))):
            found = {key for key in some if len(key) == HASH_BYTES and hashed_key(key) in names}
            await self._run(partial(self._allow, found, set()), write=True)
            allowed.update(map(hashed_key, found))
            last = some[-1]
        return len(allowed)

    async def evict(self, count: int, now: float) -> int:
        ids = await self._run(lambda: self._least_worth(count))
        evicted = 0
        for some in slices(ids, self.evict_rows):
            evicted += await self._run(partial(self._evict, some, int(now)), write=True)
        return evicted

    async def lapsed(self, now: float, limit: int) -> list[bytes]:
        query = "SELECT hash FROM torrent_denied WHERE until <= ? ORDER BY until LIMIT ?"
        return [bytes(key) for (key,) in await self._run(lambda: self._query(query, [int(now), limit]))]

    async def forget_lapsed(self, infohashes: Sequence[bytes], now: float) -> None:
        await self._run(lambda: self._forget_lapsed([key_of(each) for each in infohashes], int(now)), write=True)

    async def used_bytes(self) -> int:
        return await self._run(self._used_bytes)

    async def close(self) -> None:
        self._closed = True
        await self._in_thread(self._disconnect)
        self._executor.shutdown()

    # -------------------------------------------------------------------------------------------------------- reading

    def _ids(self, infohashes: Iterable[bytes]) -> dict[bytes, int]:
        """Map the keys of those infohashes that are stored to the ids of their torrents."""
        keys = {key_of(each) for each in infohashes}
        query = "SELECT t.id, t.v1, t.v2 FROM torrent_hashes h JOIN torrents t ON t.id = h.id WHERE"
        rows = self._select(query, "h.prefix", {prefix_of(key) for key in keys})
        return {key: number for number, *hashes in rows for key in _keys(hashes) if key in keys}

    def _get(self, key: bytes) -> StoredTorrent | None:
        rows = list(self._select(STORED, "t.id", self._ids([key]).values()))
        return stored_torrent(rows[0]) if rows else None

    def _standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        keys = {each: key_of(each) for each in infohashes}
        denied, stored = self._denied(set(keys.values()), now), self._ids(keys)
        return {each: denied.get(key, Standing.STORED) for each, key in keys.items() if key in denied or key in stored}

    def _hashes(self, after_id: int, limit: int) -> list[tuple[int, tuple[bytes, ...]]]:
        query = "SELECT id, v1, v2 FROM torrents WHERE id > ? ORDER BY id LIMIT ?"
        return [(number, _keys(hashes)) for number, *hashes in self._query(query, [after_id, limit])]

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
        self._insert("torrents", [(i, r.infohash_v1, r.infohash_v2, content) for i, (r, content) in new.items()])
        self._insert("torrent_popularity", [(number, worth(0, now), NEVER) for number in new])
        self._insert("torrent_hashes", sorted((prefix_of(key), i) for i, (r, _) in new.items() for key in r.keys))
        self._complete(known, now)
        return PutResult(next_id - first_id, len(wanted) - len(new), len(encoded) - len(wanted))

    def _complete(self, known: dict[int, list[TorrentRecord]], now: int) -> None:
        """Mark known torrents as seen, complete them, and merge torrents that are the same."""
        self._see(known, now)
        stored = {row[0]: row for row in self._select("SELECT id, v1, v2 FROM torrents WHERE", "id", known)}
        for number, records in known.items():
            _, v1, v2 = stored[number]
            if any(_says_more(record, v1, v2) for record in records):
                ids = self._ids(key for record in records for key in record.keys)
                if ids:  # an earlier record may have merged this torrent into another one
                    self._rewrite(min(ids.values()), records)

    def _rewrite(self, number: int, records: list[TorrentRecord]) -> None:
        [row] = self._select(STORED, "t.id", [number])
        before = stored_torrent(row).record
        after = before
        for record in records:
            after = completed(after, record)
        if after == before:
            return
        others = sorted(set(self._ids(after.keys).values()) - {number})
        for row in list(self._select(STORED, "t.id", others)):
            after = completed(after, stored_torrent(row).record)
        self._remove(others)
        self._delete("torrents", "id", [number])
        self._insert("torrents", [(number, after.infohash_v1, after.infohash_v2, encode_content(after))])
        self._forget_hashes({number: before.keys})
        self._insert("torrent_hashes", [(prefix_of(key), number) for key in after.keys])
        self._note_changes([number])

    def _set_popularity(self, counts: Sequence[Popularity]) -> None:
        ids = self._ids(each.infohash for each in counts)
        latest: dict[int, Popularity] = {}
        for each in sorted(counts, key=lambda count: count.counted):
            if number := ids.get(key_of(each.infohash)):
                latest[number] = each.limited()
        self._note_changes(self._set_counts(latest))

    def _content_sizes(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        return [
            (number, size) for number, size in self._select("SELECT id, length(content) FROM torrents WHERE", "id", ids)
        ]

    def _set_content(self, facts: Mapping[int, ContentFacts]) -> int:
        stored = [stored_torrent(row) for row in self._select(STORED, "t.id", facts)]
        changed = [each for each in stored if each.record.content != facts[each.id]]
        for each in changed:
            content = encode_content(replace(each.record, content=facts[each.id]))
            self._execute("UPDATE torrents SET content = ? WHERE id = ?", [content, each.id])
        self._note_changes(each.id for each in changed)
        return len(changed)

    def _remove(self, ids: Iterable[int]) -> dict[int, tuple[bytes, ...]]:
        """Remove torrents. Return their infohashes (20 bytes each), by id."""
        rows = self._select("SELECT id, v1, v2 FROM torrents WHERE", "id", ids)
        removed = {number: _keys(hashes) for number, *hashes in rows}
        self._forget_hashes(removed)
        self._delete("torrents", "id", removed)
        self._delete("torrent_popularity", "id", removed)
        self._note_changes(removed)
        return removed

    def _forget_hashes(self, keys: dict[int, tuple[bytes, ...]]) -> None:
        for some in slices(list(keys), VALUES_MAX // 3):
            prefixes = {prefix_of(key) for number in some for key in keys[number]}
            condition = f"prefix IN ({marks(len(prefixes))}) AND id IN ({marks(len(some))})"
            self._execute(f"DELETE FROM torrent_hashes WHERE {condition}", [*prefixes, *some])

    def _deny(self, keys: set[bytes], reason: str, others: dict[bytes, bytes]) -> int:
        keys = keys.union(self._others(keys).values())  # the other infohash of an evicted hybrid torrent
        removed = self._remove(sorted(set(self._ids(key for key in keys if len(key) != HASHED_BYTES).values())))
        hidden = {key for names in removed.values() for key in names}  # both infohashes of a hybrid torrent
        self._ban(keys | hidden, others | other_keys(removed.values()), Standing.DENIED, FOREVER, reason)
        return len(removed)

    def _evict(self, ids: Sequence[int], now: int) -> int:
        removed = self._remove(ids)
        keys = {key for names in removed.values() for key in names}
        self._ban(keys, other_keys(removed.values()), Standing.EVICTED, now + EVICTED_S, "")
        return len(removed)


def _says_more(record: TorrentRecord, v1: bytes | None, v2: bytes | None) -> bool:
    return (
        bool(record.comment)
        or record.content is not None
        or record.created is not None
        or (record.infohash_v1 is not None and v1 is None)
        or (record.infohash_v2 is not None and v2 is None)
    )


def _encoded(records: Sequence[TorrentRecord]) -> list[tuple[TorrentRecord, bytes]]:
    return [(record, encode_content(record)) for record in records]


def _keys(hashes: Iterable[bytes | None]) -> tuple[bytes, ...]:
    return tuple(key_of(bytes(each)) for each in hashes if each is not None)


def _named(torrents: Iterable[tuple[int, Sequence[bytes]]], names: set[bytes]) -> set[bytes]:
    return {key for _, keys in torrents for key in keys if hashed_key(key) in names}


def _denied_keys(infohashes: Iterable[bytes], hashed: Iterable[bytes]) -> set[bytes]:
    """Return the keys for `torrent_denied`: 20 bytes of an infohash, or 32 bytes of a hashed one."""
    return {key_of(each) for each in infohashes} | {each[:HASHED_BYTES] for each in hashed}


def by_size(values: Iterable[Value], size_of: Callable[[Value], int], limit: int) -> Iterator[list[Value]]:
    """Yield batches of at most `limit` bytes. A larger value gets a batch of its own."""
    some: list[Value] = []
    size = 0
    for each in values:
        if some and size + size_of(each) > limit:
            yield some
            some, size = [], 0
        some.append(each)
        size += size_of(each)
    if some:
        yield some
