"""A record store in memory: for tests, and for crawls that pass their records on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from math import inf

from lycosa.storage import ports
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import (
    EVICTED_S,
    Change,
    Popularity,
    PutResult,
    RecordPolicy,
    Refusal,
    RemovedRows,
    SearchedTorrent,
    Standing,
    StoredFiles,
    StoredTorrent,
    TorrentRecord,
    completed,
    hashed_key,
    key_of,
    other_keys,
    searched,
)

EVICTION = Standing.EVICTED, 0.0, ""
"""Stands for a missing entry: an eviction that has expired."""


class MemoryRecordStore:
    """See `RecordStore`. It grows without limit unless `evict` is called."""

    def __init__(self, policy: RecordPolicy | None = None) -> None:
        self._policy = policy or RecordPolicy()
        self._rows: dict[int, StoredTorrent] = {}
        self._ids: dict[bytes, int] = {}
        self._denied: dict[bytes, tuple[Standing, float, str]] = {}
        self._others: dict[bytes, bytes] = {}
        """For each denied or evicted key of a hybrid torrent, the key of its other infohash."""
        self._changes: dict[int, int] = {}
        self._next_id = count(1)
        self._tokens = count(1)
        self._listed = 0
        """The largest id that `changes`, `scan` or `mark_listed` has returned."""
        self._marked: dict[int, int] = {}
        """A copy of `_changes` from the last call of `mark_listed`."""

    async def open(self) -> None:
        pass

    async def standing(self, infohashes: Sequence[bytes], now: float) -> dict[bytes, Standing]:
        found = {each: self._standing(key_of(each), now) for each in infohashes}
        return {infohash: standing for infohash, standing in found.items() if standing is not None}

    async def refusal(self, infohash: bytes, now: float) -> Refusal | None:
        key = key_of(infohash)
        found = [self._denied[form] for form in (key, hashed_key(key)) if form in self._denied]
        standing, until, reason = max(found, key=lambda each: each[1], default=(Standing.DENIED, 0.0, ""))
        return Refusal(standing, None if until == inf else until, reason) if until > now else None

    async def count(self) -> int:
        return len(self._rows)

    async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
        new = known = 0
        allowed = [each for each in records if not self._policy.refuses(each) and not self._is_denied(each, now)]
        for record in allowed:
            if ids := sorted({self._ids[key] for key in record.keys if key in self._ids}):
                self._complete(ids[0], record, int(now))
                known += 1
            else:
                self._store(StoredTorrent(next(self._next_id), record, int(now)))
                new += 1
        return PutResult(new, known, len(records) - len(allowed))

    async def get(self, infohash: bytes) -> StoredTorrent | None:
        return self._rows.get(self._ids.get(key_of(infohash), 0))

    async def mark_seen(self, infohashes: Sequence[bytes], now: float) -> None:
        for row in [self._rows[self._ids[key]] for key in map(key_of, infohashes) if key in self._ids]:
            self._rows[row.id] = replace(row, seen=max(row.seen, int(now)))

    async def set_popularity(self, counts: Sequence[Popularity]) -> None:
        for infohash, seeders, leechers, counted in (each.limited() for each in counts):
            row = await self.get(infohash)
            if row is not None and (row.counted is None or row.counted < counted):
                self._store(replace(row, seeders=seeders, leechers=leechers, counted=counted))

    async def set_content(self, facts: Mapping[int, ContentFacts]) -> int:
        rows = [self._rows[number] for number in facts if number in self._rows]
        changed = [row for row in rows if row.record.content != facts[row.id]]
        for row in changed:
            self._store(replace(row, record=replace(row.record, content=facts[row.id])))
        return len(changed)

    async def due_for_count(self, before: float, limit: int) -> list[tuple[bytes, ...]]:
        due = [(row.counted or 0, row.id) for row in self._rows.values() if row.counted is None or row.counted < before]
        return [self._rows[number].record.keys for _, number in sorted(due)[:limit]]

    async def changes(self, limit: int) -> list[Change]:
        listed = sorted(self._changes)[:limit]
        self._listed = max([self._listed, *listed])
        return [Change(number, self._changes[number], self._searched(number)) for number in listed]

    async def acknowledge(self, changes: Sequence[Change]) -> None:
        for number, token, _ in changes:
            if self._changes.get(number) == token:
                del self._changes[number]

    async def torrents(self, after_id: int, limit: int) -> list[StoredTorrent]:
        return [self._rows[number] for number in sorted(self._rows) if number > after_id][:limit]

    async def by_id(self, ids: Sequence[int], files_max: int | None = None) -> list[StoredTorrent]:
        return [_shortened(self._rows[number], files_max) for number in ids if number in self._rows]

    async def removed(self, limit: int) -> RemovedRows:
        first = sorted(self._changes)[: ports.CHANGES_READ_MAX]
        ids = tuple(number for number in first if number not in self._rows)
        return RemovedRows(ids[:limit], len(ids) <= limit and len(first) == len(self._changes))

    async def scan(self, after_id: int, limit: int) -> list[Change]:
        rows = await self.torrents(after_id, limit)
        self._listed = max([self._listed, *(row.id for row in rows)])
        return [Change(row.id, self._changes.get(row.id, 0), searched(row)) for row in rows]

    async def mark_listed(self) -> int:
        self._listed, self._marked = max(self._rows, default=0), dict(self._changes)
        return self._listed

    async def searched(self, after_id: int, last_id: int, limit: int) -> list[SearchedTorrent]:
        return [searched(row) for row in await self.torrents(after_id, limit) if row.id <= last_id]

    async def acknowledge_until(self, last_id: int) -> None:
        await self.acknowledge([Change(*each, None) for each in self._marked.items() if each[0] <= last_id])

    async def infohashes(self, after_id: int, limit: int) -> list[tuple[int, tuple[bytes, ...]]]:
        return [(row.id, row.record.keys) for row in await self.torrents(after_id, limit)]

    async def deny(
        self,
        infohashes: Iterable[bytes],
        *,
        hashed: Iterable[bytes] = (),
        reason: str = "",
        hybrids: Iterable[Sequence[bytes]] = (),
    ) -> int:
        denied, names = {key_of(each) for each in infohashes}, set(hashed)
        denied.update(
            [key for key, (why, *_) in self._denied.items() if why is Standing.EVICTED and hashed_key(key) in names]
        )
        denied.update([self._others[key] for key in denied if key in self._others])
        found = {number for key, number in self._ids.items() if key in denied or (names and hashed_key(key) in names)}
        torrents = [self._remove(number) for number in found]
        self._ban([*denied, *names, *chain(*torrents)], [*hybrids, *torrents], (Standing.DENIED, inf, reason))
        return len(found)

    async def denied(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        forms = [*((key_of(each), hashed_key(each)) for each in set(infohashes)), *((name,) for name in set(hashed))]
        return sum(any(self._denied.get(form, EVICTION)[0] is Standing.DENIED for form in each) for each in forms)

    async def allow(self, infohashes: Iterable[bytes], *, hashed: Iterable[bytes] = ()) -> int:
        plain, names = {key_of(each) for each in infohashes}, set(hashed)
        allowed = {key for key in plain if key in self._denied or hashed_key(key) in self._denied}
        allowed.update(names.intersection([*self._denied, *map(hashed_key, self._denied)]))
        plain.update([key for key in self._denied if hashed_key(key) in names])
        plain.update([self._others[key] for key in plain if key in self._others])
        for key in {*plain, *names, *map(hashed_key, plain)}:
            self._denied.pop(key, None)
            self._others.pop(key, None)
        return len(allowed)

    async def evict(self, count: int, now: float) -> int:
        rows = sorted(self._rows.values(), key=lambda row: (row.seeders, row.seen, row.id))[:count]
        torrents = [self._remove(row.id) for row in rows]
        self._ban(chain(*torrents), torrents, (Standing.EVICTED, int(now) + EVICTED_S, ""))
        return len(rows)

    async def lapsed(self, now: float, limit: int) -> list[bytes]:
        return [key for key in self._denied if self._has_lapsed(key, now)][:limit]

    async def forget_lapsed(self, infohashes: Sequence[bytes], now: float) -> None:
        for key in map(key_of, infohashes):
            if self._has_lapsed(key, now):
                del self._denied[key]
                self._others.pop(key, None)

    async def used_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        pass

    def _ban(
        self, keys: Iterable[bytes], torrents: Iterable[Sequence[bytes]], why: tuple[Standing, float, str]
    ) -> None:
        standing, until, reason = why
        for key in keys:
            before = self._denied.get(key, EVICTION)
            kept = before[2] if standing is before[0] is Standing.DENIED else ""
            self._denied[key] = standing, until, reason or kept
        self._others |= {key: other for key, other in other_keys(torrents).items() if key in self._denied}

    def _standing(self, key: bytes, now: float) -> Standing | None:
        forms = (self._denied.get(form, (None, 0.0, "")) for form in (key, hashed_key(key)))
        standings = {standing for standing, until, _ in forms if until > now}
        for standing in (Standing.DENIED, Standing.EVICTED):
            if standing in standings:
                return standing
        return Standing.STORED if key in self._ids else None

    def _has_lapsed(self, key: bytes, now: float) -> bool:
        standing, until, _ = self._denied.get(key, (None, 0.0, ""))
        return standing is Standing.EVICTED and until <= now

    def _is_denied(self, record: TorrentRecord, now: float) -> bool:
        return any(self._standing(key, now) in {Standing.DENIED, Standing.EVICTED} for key in record.keys)

    def _complete(self, number: int, record: TorrentRecord, now: int) -> None:
        row = self._rows[number]
        merged = completed(row.record, record)
        self._rows[number] = row = replace(row, seen=max(row.seen, now))
        if merged == row.record:
            return
        for other in sorted({self._ids[key] for key in merged.keys if key in self._ids} - {number}):
            merged = completed(merged, self._rows[other].record)
            self._remove(other)
        self._store(replace(row, record=merged))

    def _searched(self, number: int) -> SearchedTorrent | None:
        return searched(self._rows[number]) if number in self._rows else None

    def _store(self, row: StoredTorrent) -> None:
        self._rows[row.id] = row
        self._ids |= dict.fromkeys(row.record.keys, row.id)
        self._changes[row.id] = next(self._tokens)

    def _remove(self, number: int) -> tuple[bytes, ...]:
        keys = self._rows.pop(number).record.keys
        for key in keys:
            self._ids.pop(key, None)
        if number <= self._listed:
            self._changes[number] = next(self._tokens)
        else:
            del self._changes[number]
        return keys


def _shortened(row: StoredTorrent, files_max: int | None) -> StoredTorrent:
    files = row.record.files[:files_max]
    left_out = row.record.files[len(files) :]
    size_bytes = sum(file.size_bytes for file in left_out)
    return replace(row, record=replace(row.record, files=files), left_out=StoredFiles(len(left_out), size_bytes))
