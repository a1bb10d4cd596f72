"""The contract of the `RecordStore` port: torrents are stored once, removals last, and the list of changes is exact."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

import pytest

from lycosa.core.errors import StateError, StorageError, StorageUnavailable, UsageError
from lycosa.storage import ports
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import (
    EVICTED_S,
    Popularity,
    PutResult,
    RecordPolicy,
    Refusal,
    Standing,
    StoredFile,
    TorrentRecord,
    completed,
    hashed_key,
    searched,
)
from lycosa.storage.core.torrents.names import PATHS_BYTES_MAX
from lycosa.storage.ports import RecordStore
from lycosa.storage.records import sql
from lycosa.storage.records.database import slices
from lycosa.storage.records.memory import MemoryRecordStore
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.records.rows import NAMES
from lycosa.storage.records.sql import SqlRecordStore, open_sql_records
from lycosa.storage.records.sqlite import SqliteRecordStore
from lycosa.storage.records.tables import TableRecordStore
from tests.conftest import need
from tests.servers.children import suspend
from tests.servers.mariadb import MARIADB, MariadbServer, find_mariadb, mariadb_process
from tests.servers.postgresql import POSTGRESQL, PostgresqlServer, find_postgresql, postgresql_process
from tests.storage.torrents import comparable, read, torrent

NOW = 1_790_000_000.0
Open = Callable[..., RecordStore]


@pytest.fixture(scope="module")
def postgresql() -> Iterator[PostgresqlServer]:
    need(POSTGRESQL, find_postgresql() is not None)
    with postgresql_process() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariadbServer]:
    need(MARIADB, find_mariadb() is not None)
    with mariadb_process() as server:
        yield server


@pytest.fixture(params=["memory", "sqlite", "postgresql", "mariadb"])
def open_store(request, tmp_path) -> Open:
    """Return a function that opens the same store each time."""
    if request.param == "memory":
        stores: dict[RecordPolicy | None, MemoryRecordStore] = {}
        return lambda policy=None: stores.setdefault(policy, MemoryRecordStore(policy))
    if request.param == "sqlite":
        return lambda policy=None: SqliteRecordStore(tmp_path / "torrents.sqlite", policy)
    url = request.getfixturevalue(request.param).url
    empty(url)
    return lambda policy=None: open_sql_records(url, policy)


def empty(url: str) -> None:
    async def main():
        store = open_sql_records(url)
        await store.open()
        await store._run(lambda: [store._execute(f"DROP TABLE {name}") for name in NAMES])
        await store.close()

    asyncio.run(main())


def run(open_store: Open, scenario: Callable[[RecordStore], Awaitable[None]], **options) -> None:
    async def main():
        store = open_store(**options)
        await store.open()
        try:
            await scenario(store)
        finally:
            await store.close()

    asyncio.run(main())


def test_a_record_is_found_by_either_infohash_with_all_its_fields(open_store: Open):
    record = replace(torrent(1, v2=True), comment="from a tracker", created=1_500_000_000)

    async def scenario(store: RecordStore):
        assert await store.put([record], NOW) == PutResult(new=1)
        for infohash in (record.infohash_v1, record.infohash_v2, record.infohash_v2[:20]):
            found = await store.get(infohash)
            assert (found.record, found.seen, found.seeders, found.counted) == (record, int(NOW), 0, None)
        assert await store.get(bytes(20)) is None

    run(open_store, scenario)


def test_records_survive_closing(open_store: Open):
    run(open_store, lambda store: store.put([torrent(1)], NOW))

    async def scenario(store: RecordStore):
        assert (await store.get(torrent(1).infohash_v1)).record == torrent(1)
        assert await store.put([torrent(1), torrent(2)], NOW) == PutResult(new=1, known=1)

    run(open_store, scenario)


def test_a_torrent_is_stored_once_within_a_batch_and_by_several_writers(open_store: Open):
    async def main():
        stores = [open_store() for _ in range(3)]
        for store in stores:
            await store.open()
        batches = [[torrent(n) for n in random.Random(seed).choices(range(150), k=200)] for seed in range(3)]
        results = await asyncio.gather(*(store.put(batch, NOW) for store, batch in zip(stores, batches, strict=True)))
        expected = {record.infohash_v1 for batch in batches for record in batch}
        assert sum(result.new for result in results) == len(expected)
        rows = await stores[0].torrents(0, 1000)
        assert {row.record.infohash_v1 for row in rows} == expected
        assert len(rows) == len({row.id for row in rows}) == len(expected)
        for store in stores:
            await store.close()

    asyncio.run(main())


def test_both_halves_of_a_hybrid_become_one_record(open_store: Open):
    hybrid = torrent(1, v2=True)
    old, new = replace(hybrid, infohash_v2=None), replace(hybrid, infohash_v1=None)

    async def scenario(store: RecordStore):
        assert await store.put([old, new], NOW) == PutResult(new=2)
        second = await store.get(hybrid.infohash_v2)
        await store.acknowledge(await store.changes(10))
        assert await store.put([hybrid], NOW) == PutResult(known=1)
        [row] = await store.torrents(0, 10)
        assert row.record == hybrid
        assert await store.get(hybrid.infohash_v1) == await store.get(hybrid.infohash_v2) == row
        changes = await store.changes(10)
        assert [(each.id, read(each)) for each in changes] == [(row.id, comparable(searched(row))), (second.id, None)]

    run(open_store, scenario)


def test_a_batch_merges_both_halves_of_a_hybrid_and_completes_one(open_store: Open):
    hybrid = torrent(1, v2=True)
    old, new = replace(hybrid, infohash_v2=None), replace(hybrid, infohash_v1=None)

    async def scenario(store: RecordStore):
        await store.put([old, new], NOW)
        await store.put([hybrid, replace(new, comment="hello")], NOW)
        [row] = await store.torrents(0, 10)
        assert row.record == replace(hybrid, comment="hello")

    run(open_store, scenario)


@pytest.mark.parametrize("order", [1, -1])
def test_a_v2_infohash_that_another_crawler_cut_to_20_bytes_names_the_same_torrent(open_store: Open, order: int):
    v2 = torrent(1, v1=False, v2=True)
    cut = replace(v2, infohash_v1=v2.infohash_v2[:20], infohash_v2=None)

    async def scenario(store: RecordStore):
        for record in (v2, cut)[::order]:
            await store.put([record], NOW)
        [row] = await store.torrents(0, 10)
        assert row.record == v2
        assert await store.get(cut.infohash_v1) == row

    run(open_store, scenario)


def test_an_import_adds_what_the_stored_record_lacks(open_store: Open):
    async def scenario(store: RecordStore):
        await store.put([torrent(1)], NOW)
        more = replace(torrent(1), comment="hello", created=1, discovered=5)
        await store.put([more], NOW)
        await store.put([torrent(1)], NOW + 1)
        row = await store.get(more.infohash_v1)
        assert (row.record, row.seen) == (completed(torrent(1), more), NOW + 1)
        assert (row.record.comment, row.record.created, row.record.discovered) == ("hello", 1, 5)

    run(open_store, scenario)


def test_private_torrents_are_refused_unless_the_policy_wants_them(open_store: Open):
    secret = replace(torrent(1), private=True)

    async def refused(store: RecordStore):
        assert await store.put([secret, torrent(2)], NOW) == PutResult(new=1, refused=1)
        assert await store.get(secret.infohash_v1) is None

    async def stored(store: RecordStore):
        assert (await store.put([secret], NOW)).new == 1
        assert (await store.get(secret.infohash_v1)).record.private

    run(open_store, refused)
    run(open_store, stored, policy=RecordPolicy(store_private=True))


def test_only_stored_torrents_get_seen_times_and_peer_counts(open_store: Open):
    first, second = torrent(1).infohash_v1, torrent(2).infohash_v1

    async def scenario(store: RecordStore):
        await store.put([torrent(1)], NOW)
        await store.acknowledge(await store.changes(10))
        await store.mark_seen([first, second], NOW + 10)
        await store.mark_seen([first], NOW)
        assert await store.changes(10) == []
        await store.set_popularity([Popularity(first, 7, 8, 100), Popularity(second, 1, 1, 100)])
        await store.set_popularity([Popularity(first, 1, 1, 99)])
        row = await store.get(first)
        assert (row.seen, row.seeders, row.leechers, row.counted) == (NOW + 10, 7, 8, 100)
        assert await store.get(second) is None
        assert [read(change) for change in await store.changes(10)] == [comparable(searched(row))]

    run(open_store, scenario)


def test_torrents_never_counted_are_due_first_then_those_with_the_oldest_counts(open_store: Open):
    records = [torrent(n) for n in range(6)]

    async def scenario(store: RecordStore):
        await store.put(records, NOW)
        counted = {0: 300, 1: 100, 2: 200, 3: 900}
        await store.set_popularity([Popularity(records[n].keys[0], 1, 1, at) for n, at in counted.items()])
        due = await store.due_for_count(900, 10)
        assert set(due[:2]) == {records[4].keys, records[5].keys}
        assert due[2:] == [records[1].keys, records[2].keys, records[0].keys]
        assert set(await store.due_for_count(900, 3)) == {*due[:3]}
        await store.deny([each for keys in due for each in keys])
        assert await store.due_for_count(900, 10) == []

    run(open_store, scenario)


def test_a_change_is_listed_until_acknowledged_and_again_if_the_row_changes_meanwhile(open_store: Open):
    infohash = torrent(1).infohash_v1

    async def scenario(store: RecordStore):
        await store.put([torrent(n) for n in range(5)], NOW)
        first = await store.changes(3)
        assert len(first) == 3
        assert [read(each) for each in await store.changes(3)] == [read(each) for each in first]
        assert [len(read(each).paths) for each in first] == [30] * 3
        await store.acknowledge(first)
        rest = await store.changes(10)
        assert len(rest) == 2
        assert {change.id for change in first}.isdisjoint(change.id for change in rest)
        await store.acknowledge(rest)
        await store.set_popularity([Popularity(infohash, 1, 1, 1)])
        [late] = await store.changes(10)
        await store.set_popularity([Popularity(infohash, 2, 2, 2)])
        await store.acknowledge([late])
        [again] = await store.changes(10)
        assert again.torrent.seeders == 2
        assert await store.removed(10) == ((), True)
        await store.deny([infohash])
        await store.acknowledge([again])
        [removed] = await store.changes(10)
        assert (removed.id, removed.torrent) == (late.id, None)
        assert await store.removed(10) == ((late.id,), True)
        await store.acknowledge([removed])
        assert await store.removed(10) == ((), True)
        assert await store.changes(10) == []

    run(open_store, scenario)


def test_removed_rows_are_looked_for_among_the_first_changes(open_store, monkeypatch):
    monkeypatch.setattr(ports, "CHANGES_READ_MAX", 4)

    async def scenario(store):
        records = [torrent(number) for number in range(6)]
        await store.put(records, NOW)
        await store.acknowledge(await store.changes(10))
        ids = [each.id for each in await store.torrents(0, 10)]
        await store.deny([records[1].infohash_v1, records[5].infohash_v1])
        assert await store.removed(10) == ((ids[1], ids[5]), True)
        assert await store.removed(1) == ((ids[1],), False)
        await store.set_popularity([Popularity(each.infohash_v1, 1, 1, 1) for each in (records[0], records[2])])
        assert await store.removed(10) == ((ids[1], ids[5]), True), "four changes"
        await store.set_popularity([Popularity(records[3].infohash_v1, 1, 1, 1)])
        assert await store.removed(10) == ((ids[1],), False), "five changes"

    run(open_store, scenario)


def test_denied_torrents_are_removed_and_never_come_back(open_store: Open):
    plain, hidden, hybrid = torrent(1), torrent(2), torrent(3, v2=True)

    async def scenario(store: RecordStore):
        await store.put([plain, hidden, hybrid, torrent(4)], NOW)
        hashed = [hashed_key(hidden.infohash_v1), hashed_key(torrent(5).infohash_v1)]
        assert await store.deny([plain.infohash_v1, hybrid.infohash_v2], hashed=hashed, reason="law") == 3
        halves = [replace(hybrid, infohash_v1=None), replace(hybrid, infohash_v2=None)]
        later = NOW + 10**9
        assert await store.put([plain, hidden, torrent(5), hybrid, *halves], later) == PutResult(refused=6)
        asked = [plain.infohash_v1, hidden.infohash_v1, hybrid.infohash_v1, hybrid.infohash_v2]
        known = dict.fromkeys(asked, Standing.DENIED) | {torrent(4).infohash_v1: Standing.STORED}
        assert await store.standing([*known, torrent(6).infohash_v1], later) == known
        assert [row.record for row in await store.torrents(0, 10)] == [torrent(4)]
        await store.allow([plain.infohash_v1], hashed=hashed)
        assert await store.put([plain, torrent(5)], later) == PutResult(new=2)

    run(open_store, scenario)


@pytest.mark.parametrize("allowed_hashed", [False, True])
@pytest.mark.parametrize("denied_hashed", [False, True])
def test_a_denied_infohash_can_be_allowed_in_both_forms(open_store: Open, denied_hashed: bool, allowed_hashed: bool):
    stored, missing, kept = (torrent(number) for number in range(3))

    def forms(records: list[TorrentRecord], *, hashed: bool) -> dict[str, list[bytes]]:
        keys = [record.keys[0] for record in records]
        return {"infohashes": [], "hashed": [*map(hashed_key, keys)]} if hashed else {"infohashes": keys}

    async def scenario(store: RecordStore):
        await store.put([stored, kept], NOW)
        assert await store.deny(**forms([stored, missing, kept], hashed=denied_hashed)) == 2
        assert await store.allow(**forms([stored, missing], hashed=allowed_hashed)) == 2
        assert await store.put([stored, missing, kept], NOW) == PutResult(new=2, refused=1)

    run(open_store, scenario)


@pytest.mark.parametrize("hashed", [False, True])
def test_a_denial_without_a_reason_keeps_the_earlier_reason_and_counts_are_exact(open_store: Open, hashed: bool):
    keys = [torrent(number).keys[0] for number in range(3)]

    def forms(*keys: bytes) -> dict[str, list[bytes]]:
        return {"infohashes": [], "hashed": [*map(hashed_key, keys)]} if hashed else {"infohashes": [*keys]}

    async def reason(store: RecordStore, key: bytes) -> str:
        refusal = await store.refusal(key, NOW)
        assert refusal
        return refusal.reason

    async def scenario(store: RecordStore):
        assert await store.denied(**forms(*keys)) == 0
        await store.deny(**forms(keys[0]), reason="notice A")
        await store.deny(**forms(*keys[:2]))
        assert await store.denied(**forms(*keys)) == 2
        assert [await reason(store, key) for key in keys[:2]] == ["notice A", ""]
        await store.deny(**forms(keys[0]), reason="notice B")
        assert await reason(store, keys[0]) == "notice B"
        assert await store.allow(**forms(*keys[1:])) == 1
        assert await store.allow([keys[0]]) == 1
        assert await store.allow(**forms(*keys)) == 0

    run(open_store, scenario)


@pytest.mark.parametrize("how", ["stored", "refused by a rule", "hashed", "again without the other", "evicted"])
def test_both_infohashes_of_a_hybrid_torrent_are_allowed_together(open_store: Open, how: str):
    """`how` says how the torrent was refused. "again without the other": v1 is denied after the record is gone."""
    hybrid, kept = torrent(1, v2=True), torrent(2, v2=True)
    v1, v2 = hybrid.keys

    async def scenario(store: RecordStore):
        await store.put([kept] if how == "refused by a rule" else [hybrid, kept], NOW)
        await store.deny(kept.keys)
        if how == "evicted":
            await store.evict(1, NOW)
        elif how == "refused by a rule":
            await store.deny(hybrid.keys, hybrids=[hybrid.keys])
        elif how == "hashed":
            await store.deny([], hashed=[hashed_key(v1)])
        else:
            await store.deny([v2])
            if how != "stored":
                await store.deny([v1])
        assert {*await store.standing([v1, v2], NOW)} == {v1, v2}
        await store.allow([], hashed=[hashed_key(v1)]) if how == "hashed" else await store.allow([v1])
        assert await store.standing([v1, v2], NOW) == {}
        assert await store.put([hybrid, kept], NOW) == PutResult(new=1, refused=1)

    run(open_store, scenario)


@pytest.mark.parametrize("hashed", [False, True])
def test_both_infohashes_of_an_evicted_hybrid_torrent_are_denied_for_ever(open_store: Open, hashed: bool):
    hybrid, kept = torrent(1, v2=True), torrent(2, v2=True)
    v1, v2 = hybrid.keys
    later = NOW + EVICTED_S

    async def scenario(store: RecordStore):
        await store.put([hybrid, kept], NOW)
        await store.evict(2, NOW)
        await store.deny([] if hashed else [v1], hashed=[hashed_key(v1)] if hashed else [], reason="law")
        assert await store.standing([v1, v2, *kept.keys], later) == {v1: Standing.DENIED, v2: Standing.DENIED}
        assert await store.refusal(v2, later) == Refusal(Standing.DENIED, None, "law")
        assert sorted(await store.lapsed(later, 9)) == sorted(kept.keys)
        await store.allow([v2])
        assert await store.standing([v1, v2], NOW) == {}

    run(open_store, scenario)


def test_denying_an_evicted_half_of_a_hybrid_removes_and_counts_its_other_half(open_store: Open):
    hybrid = torrent(1, v2=True)
    later = NOW + EVICTED_S

    async def scenario(store: RecordStore):
        await store.put([hybrid], NOW)
        await store.evict(1, NOW)
        await store.put([replace(hybrid, infohash_v1=None)], later)
        assert await store.deny([], hashed=[hashed_key(hybrid.keys[0])]) == 1
        assert await store.count() == 0

    run(open_store, scenario)


def test_the_reason_why_an_infohash_may_not_be_stored_is_returned(open_store: Open):
    record, other = torrent(1, v2=True), torrent(2)

    async def scenario(store: RecordStore):
        await store.put([record, other], NOW)
        assert await store.count() == 2
        assert await store.refusal(record.infohash_v1, NOW) is None
        await store.evict(2, NOW)
        assert await store.count() == 0
        evicted = Refusal(Standing.EVICTED, NOW + EVICTED_S)
        assert await store.refusal(record.infohash_v2, NOW) == evicted
        assert await store.refusal(record.infohash_v2, NOW + EVICTED_S) is None
        await store.deny([record.infohash_v1], hashed=[hashed_key(other.infohash_v1)], reason="law")
        for infohash in (record.infohash_v1, other.infohash_v1):
            assert await store.refusal(infohash, NOW) == Refusal(Standing.DENIED, None, "law")

    run(open_store, scenario)


def test_eviction_takes_the_fewest_seeders_then_the_longest_unseen_and_lasts_90_days(open_store: Open):
    records = [torrent(n) for n in range(6)]

    async def scenario(store: RecordStore):
        for age, record in enumerate(records):
            await store.put([record], NOW - age)
        await store.set_popularity([Popularity(record.infohash_v1, 9, 0, 1) for record in records[3:]])
        assert await store.evict(4, NOW) == 4
        left = [row.record for row in await store.torrents(0, 10)]
        assert left == [records[3], records[4]]
        gone = records[5].infohash_v1
        assert await store.standing([gone], NOW + EVICTED_S - 1) == {gone: Standing.EVICTED}
        assert (await store.put([records[5]], NOW + EVICTED_S - 1)).refused == 1
        assert await store.standing([gone], NOW + EVICTED_S) == {}
        assert (await store.put([records[5]], NOW + EVICTED_S)).new == 1
        assert len(await store.changes(100)) == 3  # `changes` never listed the others, so no index has them

    run(open_store, scenario)


def test_changed_content_facts_are_stored_and_their_torrents_are_indexed_again(open_store: Open):
    facts = ContentFacts(ContentType.AUDIO, 3040, year=1999)
    record = replace(torrent(1), content=facts)

    async def scenario(store: RecordStore):
        await store.put([torrent(0), record], NOW)
        first, second = [row.id for row in await store.torrents(0, 10)]
        await store.acknowledge(await store.changes(10))
        assert await store.set_content({first: facts, second: facts, 99: facts}) == 1
        assert [row.record for row in await store.torrents(0, 10)] == [replace(torrent(0), content=facts), record]
        assert [each.id for each in await store.changes(10)] == [first]
        assert await store.set_content({}) == 0

    run(open_store, scenario)


def test_evicted_torrents_are_returned_after_their_time_until_they_are_forgotten(open_store: Open):
    records = [torrent(n) for n in range(4)]
    keys = [record.infohash_v1 for record in records]

    async def scenario(store: RecordStore):
        for age, record in enumerate(records):
            await store.put([record], NOW - age)
        for at in (0, 0, 1):
            await store.evict(1, NOW + at)
        over = NOW + EVICTED_S
        assert await store.lapsed(over - 1, 9) == []
        assert sorted(await store.lapsed(over, 9)) == sorted(keys[2:])
        assert len(await store.lapsed(over, 1)) == 1
        await store.put([records[0]], over)  # further evictions do not make the store forget
        await store.evict(1, over)
        assert sorted(await store.lapsed(over, 9)) == sorted(keys[2:])
        await store.deny([keys[3]])
        await store.forget_lapsed(keys, over)
        assert await store.lapsed(over, 9) == []
        assert await store.lapsed(over + 1, 9) == [keys[1]]
        assert (await store.standing(keys, over))[keys[3]] is Standing.DENIED

    run(open_store, scenario)


def test_torrents_are_read_by_id_and_scanned_with_the_tokens_of_their_changes(open_store: Open):
    async def scenario(store: RecordStore):
        await store.put([torrent(n) for n in range(5)], NOW)
        ids = [row.id for row in await store.torrents(0, 10)]
        await store.acknowledge((await store.changes(10))[:2])
        await store.deny([torrent(3).infohash_v1])
        assert {row.id: row.record for row in await store.by_id([*ids, 999])} == {
            ids[n]: torrent(n) for n in (0, 1, 2, 4)
        }
        [row] = await store.by_id(ids[:1], 3)
        assert (row.record.files, row.left_out.files_count) == (torrent(0).files[:3], 27)
        assert (row.files_count, row.size_bytes) == (30, torrent(0).size_bytes)
        scanned = await store.scan(ids[0], 2)
        rows = await store.by_id(ids[1:3])
        assert [(each.token == 0, read(each)) for each in scanned] == [
            (row.record == torrent(1), comparable(searched(row))) for row in sorted(rows, key=lambda row: row.id)
        ]
        await store.acknowledge(scanned)
        assert [change.id for change in await store.changes(10)] == [ids[3], ids[4]]

    run(open_store, scenario)


def test_after_several_processes_filled_an_index_only_changes_since_mark_listed_remain(open_store: Open):
    async def scenario(store: RecordStore):
        await store.put([torrent(n) for n in range(6)], NOW)
        ids = [row.id for row in await store.torrents(0, 10)]
        await store.acknowledge((await store.changes(2))[1:])  # the first torrent is skipped
        assert await store.mark_listed() == ids[5]
        await store.set_popularity([Popularity(torrent(2).infohash_v1, 7, 1, int(NOW))])
        await store.deny([torrent(4).infohash_v1])
        await store.put([torrent(7)], NOW)
        assert [each.id for each in await store.searched(ids[0], ids[3], 2)] == ids[1:3]
        [changed] = await store.searched(ids[1], ids[2], 9)
        assert (changed.seeders, await store.searched(ids[3], ids[4], 9)) == (7, [])
        await store.acknowledge_until(ids[5])
        changes = await store.changes(10)
        assert [(each.id, each.torrent is None) for each in changes] == [
            (ids[2], False),
            (ids[4], True),
            (ids[5] + 1, False),
        ]

    run(open_store, scenario)


def test_all_torrents_and_infohashes_are_read_in_slices(open_store: Open):
    records = [torrent(n, 2, v2=n % 2 == 0) for n in range(20)]

    async def scenario(store: RecordStore):
        await store.put(records, NOW)
        found, last = [], 0
        while rows := await store.torrents(last, 7):
            found += rows
            last = rows[-1].id
        assert [row.record for row in found] == records
        keys, last = [], 0
        while some := await store.infohashes(last, 7):
            keys += [names for _, names in some]
            last = some[-1][0]
        assert keys == [record.keys for record in records]

    run(open_store, scenario)


def test_random_histories_have_the_same_results_on_every_store(open_store: Open):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    hybrids = [torrent(n, 3, v2=True) for n in range(12)]
    forms = [
        form for each in hybrids for form in (each, replace(each, infohash_v1=None), replace(each, infohash_v2=None))
    ]
    keys = [key for each in hybrids for key in each.keys]

    async def scenario(store: RecordStore):
        model = MemoryRecordStore()
        for step in range(120):
            now = NOW + step * 10**6
            some, named = rng.choices(forms, k=3), rng.choices(keys, k=2)
            match rng.randrange(9):
                case 0:
                    assert await store.evict(1, now) == await model.evict(1, now)
                case 1:
                    assert await store.deny(named[:1]) == await model.deny(named[:1])
                case 2:
                    hashed = [hashed_key(key) for key in named[1:]]
                    assert await store.deny([], hashed=hashed) == await model.deny([], hashed=hashed)
                case 3 | 4:
                    forgiven = [hashed_key(key) for key in named]
                    await store.allow(named, hashed=forgiven)
                    await model.allow(named, hashed=forgiven)
                case 5:
                    counts = [Popularity(named[0], rng.randrange(5), 0, rng.randrange(99))]
                    await store.set_popularity(counts)
                    await model.set_popularity(counts)
                case _:
                    for record in some:
                        assert await store.put([record], now) == await model.put([record], now)
            assert await store.torrents(0, 100) == await model.torrents(0, 100)
            assert await store.standing(keys, now) == await model.standing(keys, now)
            assert await store.infohashes(0, 100) == await model.infohashes(0, 100)
            ours, theirs = await store.changes(2), await model.changes(2)
            assert [(each.id, read(each)) for each in ours] == [(each.id, read(each)) for each in theirs]
            await store.acknowledge(ours)
            await model.acknowledge(theirs)

    run(open_store, scenario)


def test_strange_names_and_huge_numbers_are_kept(open_store: Open):
    files = [
        StoredFile(path, size)
        for path, size in [("", 0), ("a\nb", 1), ("\x01\x01", 2**62), ("\udc80/é", 3), ("a\nb", 4)]
    ]
    record = TorrentRecord(b"x" * 20, None, "\x00\u202e", tuple(files), 0, 0, comment="\n", created=0)

    async def scenario(store: RecordStore):
        await store.put([record, replace(record, infohash_v1=b"y" * 20, files=())], NOW)
        assert (await store.get(record.infohash_v1)).record == record
        assert (await store.get(b"y" * 20)).record.files == ()

    run(open_store, scenario)


# --------------------------------------------------------------------------------------------------- some stores only


def test_the_largest_record_that_passes_an_inspection_is_stored(open_store: Open):
    async def scenario(store: RecordStore):
        if not isinstance(store, SqlRecordStore):
            return
        text = random.Random(1).randbytes(PATHS_BYTES_MAX).decode("latin-1")  # hardly compressible
        record = replace(torrent(1), comment=text)
        assert await store.put([record, torrent(2)], NOW) == PutResult(new=2)
        assert (await store.get(record.infohash_v1)).record == record

    run(open_store, scenario)


def test_a_lost_connection_is_one_clear_error_and_the_next_call_connects_again(open_store: Open):
    async def scenario(store: RecordStore):
        if not isinstance(store, SqlRecordStore):
            return
        await store.put([torrent(1)], NOW)
        store._connection.close()
        with pytest.raises(StorageError, match="the database of torrents cannot be used"):
            await store.put([torrent(2)], NOW)
        assert await store.put([torrent(1), torrent(2)], NOW) == PutResult(new=1, known=1)

    run(open_store, scenario)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_frozen_server_is_unavailable_after_a_time_and_the_next_call_connects_again(request, monkeypatch, kind: str):
    server: PostgresqlServer | MariadbServer = request.getfixturevalue(kind)
    empty(server.url)

    async def main():
        store = open_sql_records(server.url)
        await store.open()
        await store.put([torrent(1)], NOW)
        frozen = server.pid
        if kind == "postgresql":  # one process for each connection
            [[frozen]] = await store._run(lambda: store._query("SELECT pg_backend_pid()"))
        with monkeypatch.context() as hasty:
            hasty.setattr(sql, "ANSWER_MAX_S", 1)
            if kind == "mariadb":
                store._connection._read_timeout = 1
            suspend(frozen)
            try:
                with pytest.raises(StorageUnavailable, match="the database of torrents cannot be used"):
                    await store.count()
            finally:
                os.kill(frozen, signal.SIGCONT)
        assert await store.put([torrent(1), torrent(2)], NOW) == PutResult(new=1, known=1)
        await store.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_missing_table_is_one_clear_error_and_the_others_are_kept(open_store: Open):
    async def scenario(store: RecordStore):
        if not isinstance(store, SqlRecordStore):
            return
        await store.put([torrent(1)], NOW)
        await store._run(lambda: store._execute("ALTER TABLE torrent_changes RENAME TO elsewhere"))
        other = open_store()
        with pytest.raises(StateError, match="lacks these tables of Lycosa: torrent_changes; restore the database"):
            await other.open()
        await other.close()
        await store._run(lambda: store._execute("ALTER TABLE elsewhere RENAME TO torrent_changes"))
        assert await store.count() == 1

    run(open_store, scenario)


def test_the_tables_of_an_earlier_version_get_a_new_column(open_store: Open):
    async def scenario(store: RecordStore):
        if not isinstance(store, TableRecordStore):
            return
        await store.deny([torrent(1).infohash_v1])
        await store._run(lambda: store._execute("ALTER TABLE torrent_denied DROP COLUMN other"), write=True)
        later = open_store()
        await later.open()
        await later.deny(torrent(2).keys)
        assert (await later.put([torrent(1), torrent(2)], NOW)).new == 0
        await later.close()

    run(open_store, scenario)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_two_crawlers_survive_the_kill_of_their_server_and_store_each_torrent_once(request, kind: str):
    server: PostgresqlServer | MariadbServer = request.getfixturevalue(kind)
    empty(server.url)
    records = [torrent(n, 3) for n in range(150)]
    stored: list[PutResult] = []

    async def crawl(store: SqlRecordStore, running: asyncio.Event, killed: asyncio.Event):
        for number, some in enumerate(slices(random.Random(1).sample(records, len(records)), 5)):
            if number == 20:
                await killed.wait()  # a crawler that has stored everything would not notice the outage
            result = await store.put(some, NOW)
            stored.append(result)
            if number == 5:
                running.set()

    async def main():
        stores = [open_sql_records(server.url) for _ in range(2)]
        outages: list[asyncio.Event] = []
        async with asyncio.TaskGroup() as tasks:
            for store in stores:
                await store.open()
                outages.append(outage := asyncio.Event())
                store.outage_wait = OutageWait(lambda _, outage=outage: outage.set())
            both, killed = [asyncio.Event() for _ in stores], asyncio.Event()
            for store, running in zip(stores, both, strict=True):
                tasks.create_task(crawl(store, running, killed))
            for running in both:
                await running.wait()
            server.kill()
            killed.set()
            for outage in outages:
                await outage.wait()
            server.start()
        rows = await stores[0].torrents(0, 1000)
        for store in stores:
            await store.close()
        assert sorted(row.record.infohash_v1 for row in rows) == sorted(record.infohash_v1 for record in records)
        assert sum(result.new + result.known for result in stored) == 2 * len(records)

    asyncio.run(main())


@pytest.mark.parametrize("url", ["postgresql://u:secret@127.0.0.1:1/d", "mysql://u:secret@127.0.0.1:1/d"])
def test_a_server_that_does_not_answer_is_named_without_its_password(url):
    pytest.importorskip("psycopg" if url.startswith("postgresql") else "pymysql")
    with pytest.raises(StorageError, match=r"://127.0.0.1:1/d: the database of torrents cannot be used") as error:
        asyncio.run(open_sql_records(url).open())
    assert "secret" not in str(error.value)


def test_an_unknown_scheme_is_refused_with_the_supported_ones():
    with pytest.raises(UsageError, match="write postgresql://"):
        open_sql_records("oracle://host/database")


@pytest.mark.parametrize(
    "url", ["mysql://u:secret@host:33o6/d", "mysql://u:secret/%@host/d", "mysql://u:se[cret@host/d"]
)
def test_an_invalid_mysql_url_is_refused_without_its_password(url):
    with pytest.raises(UsageError, match="write mysql://USER") as error:
        open_sql_records(url)
    assert "se" not in str(error.value).partition(": write")[0]
