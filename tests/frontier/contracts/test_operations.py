"""The contract of the operations on a frontier (F2, F6, C8), directly and through the socket of its owner.

See `frontier.ports.FrontierOperations`. The same tests run for each back end and each way to reach it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any
from zlib import crc32

import pytest

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Extras, HostFacts, RecordKind, Row, SegmentState, Selection, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm import frontier as embedded
from lycosa.frontier.lsm import memtable
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.remote import connect
from lycosa.frontier.server import serve
from lycosa.http.core.model import Validators
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

HOST, OTHER = "http://a.example:80", "https://b.example:443"
PLAIN = Policy(robots=False, concurrency_per_host=1000)
ALL = Selection()

Scenario = Callable[[Any, Any], Awaitable[None]]


LOCAL = ["memory", "memory, remote", "embedded", "embedded, remote"]
SHARED = ["redis", "redis, remote", "redis, 3 partitions", "valkey"]
ONE_PARTITION = [*LOCAL, *SHARED[:2]]
"""Limits per IP address apply within one partition."""


@pytest.fixture(params=[*LOCAL, *SHARED])
def run_scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """A function that runs a scenario with a new frontier and its operations."""
    back_end, _, remote = request.param.partition(", ")

    async def open_new(policy: Policy) -> tuple[Any, Any]:
        if back_end in ("redis", "valkey"):
            client, parts = LooplessClient(request.getfixturevalue(back_end).url), 3 if "3" in remote else 1
            future_frontier = simulated_frontier(client, token_hex(8), policy, 0.0, partitions=parts, keep_done=True)
            shared = await future_frontier
            return shared, RedisOperations(shared.session, partial(shared.commit, {}), forget=shared.forget)
        local: Any = memory_frontier(policy) if back_end == "memory" else embedded_frontier(tmp_path / "f", policy)
        return local, LocalOperations(local)

    async def run(scenario: Scenario, policy: Policy) -> None:
        frontier, operations = await open_new(policy)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(frontier.close)
            if remote == "remote":
                path = tmp_path / "socket"
                await stack.enter_async_context(serve(path, operations))
                operations = await stack.enter_async_context(connect(path))
            await scenario(frontier, operations)

    return lambda scenario, policy=PLAIN: asyncio.run(run(scenario, policy))


def url(number: int, host: str = HOST, **fields: Any) -> UrlRecord:
    origin = host.removesuffix(":80").removesuffix(":443")
    return UrlRecord(1, crc32(f"{host}{number}".encode()), f"{origin}/{number}", host, **fields)


async def all_rows(operations: Any, selection: Selection = ALL, limit: int = 3) -> list[Row]:
    """Read everything in small slices."""
    found: list[Row] = []
    cursor: str | None = ""
    while cursor is not None:
        rows, cursor = await operations.rows(selection, cursor, limit)
        assert len(rows) <= limit
        found += rows
    return found


def brief(rows: list[Row]) -> dict[str, str]:
    """Return the state of each URL by its path; no URL may occur twice."""
    states = {row.record.url.rpartition("/")[2]: str(row.state) for row in rows}
    assert len(states) == len(rows)
    return states


async def settle_some(frontier: Any) -> None:
    """Make URL 0 done, 1 dead, 2 a retry, 3 leased, 4 to 7 queued, and 8 delayed."""
    await frontier.push([url(number) for number in range(8)] + [url(8, not_before=500.0)])
    leases = {lease.record.url.rpartition("/")[2]: lease for lease in await frontier.lease(4, 100.0)}
    assert sorted(leases) == ["0", "1", "2", "3"]
    assert await frontier.ack(leases["0"], "200", (), 101.0, validators=Validators('"e"', "", 101.0))
    assert await frontier.nack(leases["1"], "timeout", None, 102.0)
    assert await frontier.nack(leases["2"], "503", 400.0, 103.0)


def test_every_state_is_listed_once(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await settle_some(frontier)
        rows = await all_rows(operations)
        expected = {"0": "done", "1": "dead", "2": "retry", "3": "leased", "8": "delayed"}
        assert brief(rows) == expected | dict.fromkeys("4567", "queued")
        at = {row.record.url[-1]: (row.at, row.reason) for row in rows}
        assert at["0"] == (101.0, "200")
        assert at["1"] == (102.0, "timeout")
        assert (at["2"][0], at["3"][0], at["4"][0], at["8"][0]) == (400.0, 400.0, 0.0, 500.0)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("selection", "paths"),
    [
        (Selection(states=("leased",)), "3"),
        (Selection(states=("queued",)), "4567"),
        (Selection(states=("queued", "leased")), "34567"),
        (Selection(states=("dead", "done")), "01"),
        (Selection(states=("archived",)), ""),
        (Selection(reason="time*"), "1"),
        (Selection(reason="20?"), "0"),
        (Selection(url="*/[45]"), "45"),
        (Selection(url="*.EXAMPLE/*"), ""),
        (Selection(host=OTHER), ""),
        (Selection(host=HOST, states=("retry",)), "2"),
        (Selection(segment=""), "012345678"),
        (Selection(segment="monday"), ""),
        (Selection(before=101.5), "0"),
        (Selection(before=1000.0), "01"),
        (Selection(states=("leased",), url="*/4"), ""),
    ],
    ids=str,
)
def test_all_fields_of_a_selection_must_match(
    run_scenario: Callable[..., None], selection: Selection, paths: str
) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await settle_some(frontier)
        assert sorted(brief(await all_rows(operations, selection))) == list(paths)
        assert sorted(brief(await all_rows(operations, selection, limit=1))) == list(paths)

    run_scenario(scenario)


def test_a_listing_has_every_unchanged_row_once_despite_changes_between_slices(
    run_scenario: Callable[..., None],
) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(number) for number in range(60)])
        found: list[Row] = []
        cursor: str | None = ""
        number = 100
        while cursor is not None:
            rows, cursor = await operations.rows(Selection(states=("queued",)), cursor, 7)
            found += rows
            await frontier.push([url(number, priority=5)])
            for lease in await frontier.lease(1, 0.0):
                await frontier.ack(lease, "200", (), 0.0)
            number += 1
        assert set(map(str, range(1, 60))) <= set(brief(found)) | set(map(str, range(10)))
        assert {str(each) for each in range(20, 60)} <= set(brief(found))

    run_scenario(scenario)


@pytest.mark.parametrize("seed", range(12))
def test_a_long_listing_has_every_unchanged_row_once_despite_checkpoints(
    tmp_path: Path, monkeypatch, seed: int
) -> None:
    """Rows move from memory to LMDB during the listing."""
    monkeypatch.setattr(memtable, "MEMTABLE_MAX", 400)
    monkeypatch.setattr(memtable, "SLICE_MIN", 50)
    monkeypatch.setattr(embedded, "SCAN_ROWS", random.Random(seed).choice([40, 150]))
    rng = random.Random(seed)

    async def scenario() -> None:
        frontier = embedded_frontier(tmp_path / "f", PLAIN)
        numbers = itertools.count()
        records = [url(next(numbers), f"http://h{rng.randrange(9)}.example:80") for _ in range(1500)]
        for start in range(0, len(records), 100):
            await frontier.push(records[start : start + 100])
            await frontier.commit({"x": start})
        operations, stays, listed = LocalOperations(frontier), {each.url for each in records}, Counter[str]()
        cursor: str | None = ""
        while cursor is not None:
            rows, cursor = await operations.rows(Selection(states=("queued", "leased")), cursor, 60)
            listed.update(row.record.url for row in rows)
            await frontier.push([url(next(numbers), f"http://h{rng.randrange(9)}.example:80") for _ in range(20)])
            for lease in await frontier.lease(rng.randrange(30), 5.0):
                stays.discard(lease.record.url)
                await frontier.ack(lease, "200", (), 5.0)
            if rng.random() < 0.7:
                await frontier.commit({"x": next(numbers)})
        assert {each: listed[each] for each in stays if listed[each] != 1} == {}, f"seed {seed}"
        assert max(listed.values()) == 1, f"seed {seed}"
        await frontier.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("scan_rows", [40, 150])
def test_each_listing_has_all_rows_that_are_only_in_memory(tmp_path: Path, monkeypatch, scan_rows: int) -> None:
    monkeypatch.setattr(embedded, "SCAN_ROWS", scan_rows)

    async def scenario() -> None:
        frontier = embedded_frontier(tmp_path / "f", PLAIN)
        operations = LocalOperations(frontier)
        for count in (500, 600):
            await frontier.push([url(number) for number in range(count)])
            assert len(brief(await all_rows(operations, limit=200))) == count
        await frontier.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("scan_rows", [40, 150])
def test_rows_deleted_in_memory_hide_no_others(tmp_path: Path, monkeypatch, scan_rows: int) -> None:
    """A slice full of deleted rows must end at the last changed row that was read, not after it."""
    monkeypatch.setattr(embedded, "SCAN_ROWS", scan_rows)
    half = scan_rows // 2
    names = [f"http://h{number}.example:80" for number in range(6)]

    async def scenario() -> None:
        frontier = embedded_frontier(tmp_path / "f", PLAIN)
        for number, name in enumerate(names):
            await frontier.push([url(each, name) for each in range(half // 2 if number else half)])
        await frontier.commit({})
        frontier.store.checkpoint()
        for name in names[1:]:
            await frontier.block_host(name, 1000.0)
        for lease in await frontier.lease(half, 1.0):
            await frontier.ack(lease, "200", (), 1.0)
        for name in names:
            await frontier.push([url(1000 + each, name) for each in range(half)])
        queued = await all_rows(LocalOperations(frontier), Selection(states=("queued",)), limit=1000)
        assert len({row.record.url for row in queued}) == len(queued) == 5 * (half // 2) + 6 * half
        await frontier.close()

    asyncio.run(scenario())


def test_only_the_leased_one_of_two_equal_records_is_listed_as_leased(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1, dont_filter=True), url(1, dont_filter=True)])
        first, _ = await frontier.lease(2, 5.0)
        await frontier.ack(first, "200", (), 6.0)
        assert sorted(str(row.state) for row in await all_rows(operations)) == ["done", "leased"]

    run_scenario(scenario)


def test_an_invalid_cursor_is_refused(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await settle_some(frontier)
        for states in ((), ("leased",)):
            with pytest.raises(UsageError):
                await operations.rows(Selection(states=states), "nonsense", 3)

    run_scenario(scenario)


def test_a_url_is_found_in_every_segment(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1), url(1, segment="monday"), url(2)])
        (first,) = await frontier.lease(1, 10.0)
        assert first.record.segment == ""
        for host in (HOST, ""):
            rows = await operations.find(url(1).fingerprint, host)
            assert {(row.record.segment, row.state) for row in rows} == {("", "leased"), ("monday", "queued")}
        assert await operations.find(url(3).fingerprint, HOST) == []
        await frontier.ack(first, "404", (), 11.0)
        rows = await operations.find(url(1).fingerprint, HOST)
        assert {(row.state, row.reason) for row in rows} == {("done", "404"), ("queued", "")}

    run_scenario(scenario)


def test_segments_are_listed_in_the_order_they_are_served(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1, segment="2100-01-01"), url(2), url(3), url(4, segment="2001-01-01")])
        await frontier.lease(1, 2e9)
        views = await operations.segments()
        assert [view.name for view in views] == ["", "2001-01-01", "2100-01-01"]
        assert [(view.queued, view.leased) for view in views] == [(1, 1), (1, 0), (1, 0)]
        assert {view.state for view in views} == {SegmentState.OPEN}

    run_scenario(scenario)


def test_urls_of_a_segment_that_has_not_started_count_as_queued_everywhere(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        later, now = "2100-01-01", 2e9
        await frontier.push(
            [url(number, segment=later) for number in range(3)] + [url(9, segment=later, not_before=5e9)]
        )
        await frontier.push([url(4)])
        assert len(await frontier.lease(9, now)) == 1
        counts = await operations.stats()
        assert (counts.queued, counts.leased, counts.delayed) == (3, 1, 1)
        views = {view.name: view for view in await operations.segments()}
        assert (views[later].queued, views[later].delayed) == (3, 1)
        rows = await all_rows(operations, Selection(segment=later))
        assert brief(rows) == {"0": "queued", "1": "queued", "2": "queued", "9": "delayed"}
        assert [row.state for row in await operations.find(url(1).fingerprint, HOST)] == ["queued"]
        assert len(await frontier.lease(9, 4.2e9)) == 3, "it has started"
        counts = await operations.stats()
        assert (counts.queued, counts.leased, counts.delayed) == (0, 4, 1)

    run_scenario(scenario)


def test_a_dropped_segment_is_forgotten_and_accepts_no_urls(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(number, segment="monday") for number in range(5)] + [url(9)])
        leases = {lease.record.segment: lease for lease in await frontier.lease(3, 0.0)}
        assert await operations.drop("monday") == 5
        await operations.commit()
        with pytest.raises(UsageError, match="tuesday"):
            await operations.drop("tuesday")
        assert not await frontier.push([url(7, segment="monday")])
        assert {row.record.segment for row in await all_rows(operations)} == {""}
        assert await operations.find(url(1).fingerprint, HOST) == []
        await frontier.ack(leases["monday"], "200", (), 1.0)
        dropped = next(view for view in await operations.segments() if view.name == "monday")
        assert dropped.state == SegmentState.DROPPED
        assert (await operations.stats()).unfinished == 1

    run_scenario(scenario)


def test_a_dropped_segment_leaves_nothing_behind(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(number, segment="monday") for number in range(3)] + [url(9)])
        await frontier.push([url(8, segment="monday", not_before=500.0)])
        leases = {lease.record.segment: lease for lease in await frontier.lease(3, 0.0)}
        assert await operations.drop("monday") == 4
        stats = await operations.stats()
        assert (stats.queued, stats.leased, stats.delayed) == (0, 1, 0)
        assert await frontier.lease(3, 0.0) == []
        assert await operations.next_due(0.0) is None
        assert [row.record.segment for row in await all_rows(operations)] == [""]
        assert not await frontier.ack(leases["monday"], "200", [url(7)], 1.0)
        assert await frontier.ack(leases[""], "200", (), 1.0)
        assert (await operations.stats()).unfinished == 0

    run_scenario(scenario)


@pytest.mark.parametrize("verb", ["drop", "archive"])
def test_an_unknown_segment_is_refused_with_the_nearest_name(run_scenario: Callable[..., None], verb: str) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        with pytest.raises(UsageError, match="there is no segment 'monday': lycosa frontier segments"):
            await getattr(operations, verb)("monday")
        await frontier.push([url(1, segment="monday"), url(2, segment="tuesday"), url(3, segment="2026-11-21")])
        for name, near in (("mondya", "monday"), ("tues", "tuesday"), ("2026-11-22", "2026-11-21")):
            with pytest.raises(UsageError, match=f"there is no segment '{name}': the nearest is '{near}';"):
                await getattr(operations, verb)(name)
        await operations.drop("monday")
        with pytest.raises(UsageError, match="'monday' was dropped"):
            await getattr(operations, verb)("monday")

    run_scenario(scenario)


def test_only_a_finished_segment_is_archived(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1, segment="monday")])
        assert not await operations.archive("monday")
        (lease,) = await frontier.lease(1, 0.0)
        await frontier.ack(lease, "200", (), 1.0)
        assert await operations.archive("monday")
        assert [row.state for row in await all_rows(operations)] == ["archived"]
        assert not await frontier.push([url(2, segment="monday")])

    run_scenario(scenario)


async def requeue_all(operations: Any, selection: Selection, into: str | None = None, limit: int = 2) -> int:
    total, cursor = 0, ""
    while True:
        count, next_cursor = await operations.requeue(selection, into, 200.0, cursor, limit)
        total += count
        if next_cursor is None:
            return total
        cursor = next_cursor


def test_dead_urls_are_requeued_with_their_attempts_reset(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(number) for number in range(5)])
        for lease in await frontier.lease(5, 100.0):
            await frontier.nack(lease, "timeout" if lease.record.url[-1] in "13" else "503", None, 100.0)
        assert frontier.next_ready(200.0) is None
        assert await requeue_all(operations, Selection(states=("dead",), reason="timeout")) == 2
        assert sorted(lease.record.url[-1] for lease in await frontier.lease(9, 200.0)) == ["1", "3"]
        assert {row.record.attempts for row in await all_rows(operations) if row.state != "dead"} == {0}
        assert (await operations.stats()).dead == 3
        assert await requeue_all(operations, Selection(states=("dead",))) == 3
        assert len(await frontier.lease(9, 200.0)) == 3
        assert await frontier.push([url(1), url(0)]) == 0

    run_scenario(scenario)


def test_done_urls_are_requeued_with_their_validators(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        extras = Extras("POST", {"A": "b"}, b"\x00", "parse_it", {"n": 1})
        await frontier.push([url(1, extras=extras, depth=3, priority=2), url(2)])
        for lease in await frontier.lease(5, 100.0):
            await frontier.ack(lease, "200", (), 100.0, validators=Validators('"e"', "Mon", 100.0))
        assert await requeue_all(operations, Selection(states=("dead",))) == 0
        assert await requeue_all(operations, Selection(states=("done",), url="*/1")) == 1
        (lease,) = await frontier.lease(5, 200.0)
        record = lease.record
        assert (record.extras, record.depth, record.priority) == (extras, 3, 2)
        assert record.validators is not None
        assert (record.validators.etag, record.validators.modified) == ('"e"', "Mon")

    run_scenario(scenario)


def test_an_unfiltered_record_is_copied_once(run_scenario: Callable[..., None]) -> None:
    """The page that requests it will request it again in the other segment: copies of all its rows would multiply."""

    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1, dont_filter=True), url(1, dont_filter=True)])
        for lease in await frontier.lease(2, 5.0):
            await frontier.ack(lease, "200", (), 6.0)
        assert await requeue_all(operations, Selection(states=("done",), segment=""), "next") == 1
        assert await requeue_all(operations, Selection(states=("done",), segment=""), "next") == 0

    run_scenario(scenario)


def test_done_urls_are_copied_into_another_segment(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1), url(2), url(2, segment="next")])
        for lease in await frontier.lease(2, 100.0):
            await frontier.ack(lease, "200", (), 100.0)
        assert await requeue_all(operations, Selection(states=("done",), segment=""), "next") == 1
        counts = {view.name: (view.queued, view.done) for view in await operations.segments()}
        assert counts == {"": (0, 2), "next": (2, 0)}

    run_scenario(scenario)


def test_hosts_are_listed_in_order_with_their_limits(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        names = [f"http://h{number:02}.example:80" for number in range(7)]
        await frontier.push([url(1, name) for name in names] + [url(2, names[3])])
        await frontier.set_host_facts(names[1], HostFacts(b"User-agent: *", 200, 50.0, 2.0), 60.0)
        await frontier.block_host(names[2], 5000.0)
        await frontier.commit({})
        found: list[Any] = []
        while views := await operations.hosts(found[-1].host if found else "", 3):
            assert len(views) <= 3
            found += views
        assert [view.host for view in found] == names
        by_name = {view.host: view for view in found}
        assert (by_name[names[1]].robots_status, by_name[names[1]].delay_s) == (200, 2.0)
        assert by_name[names[2]].blocked_until == 5000.0
        assert by_name[names[4]].robots_status == -1
        one = await operations.host(names[3])
        assert one is not None
        assert one.host == names[3]
        assert one.queued == 2
        assert await operations.host("http://h03.example:8") is None
        facts = await operations.host_facts(names[1])
        assert facts is not None
        assert facts.robots == b"User-agent: *"
        assert await operations.host_facts(OTHER) is None

    run_scenario(scenario)


BY_ADDRESS = Policy(robots=False, concurrency_per_host=8, delay_per_ip_s=5.0, concurrency_per_ip=2)


@pytest.mark.parametrize("run_scenario", ONE_PARTITION, indirect=True)
def test_hosts_are_listed_with_the_limits_of_their_address(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        names = [f"http://h{number}.example:80" for number in range(3)]
        await frontier.push([url(number, name) for name in names for number in range(5)])
        before = await operations.host(names[0])
        assert (before.shared.address, before.shared.concurrency, before.shared.delay_s) == ("", 2, 5.0)
        assert not before.preparing
        lookups = await frontier.lease(9, 100.0)
        assert (await operations.host(names[0])).preparing
        for lease in lookups:
            await frontier.set_address(lease.record.host, "10.0.0.1", 9e9, 100.0)
            await frontier.ack(lease, "resolved", (), 100.0, contacted=False)
        for now, in_flight in ((100.0, 1), (105.0, 2), (110.0, 2)):
            await frontier.lease(9, now)
            views = await operations.hosts("", 10)
            assert [view.address for view in views] == ["10.0.0.1"] * 3
            assert {view.shared.in_flight for view in views} == {in_flight}
            assert {view.shared.ready_at for view in views} == {min(now, 105.0) + 5.0}
            assert {view.shared.hosts for view in views} == {3}
            assert sum(view.in_flight for view in views) == in_flight
        assert {view.concurrency for view in await operations.hosts("", 10)} == {8}
        if isinstance(frontier, RedisFrontier):
            stopped: Any = RedisOperations(frontier.session, runs=False)
        else:
            stopped = LocalOperations(frontier, runs=False)
        assert {view.concurrency for view in await stopped.hosts("", 10)} == {0}

    run_scenario(scenario, BY_ADDRESS)


def test_without_limits_per_ip_hosts_are_listed_without_their_address(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1)])
        assert (await operations.host(HOST)).shared is None

    run_scenario(scenario)


def test_an_unreachable_robots_txt_is_fetched_again(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        hosts = [f"http://h{number}.example:80" for number in range(3)]
        files = [(b"no answer", 0), (b"", 503), (b"User-agent: *", 200)]
        for host, (robots, status) in zip(hosts, files, strict=True):
            await frontier.push([url(1, host)])
            await frontier.set_host_facts(host, HostFacts(robots, status, 1e9, 0.0), 1e9)
        await frontier.commit({})
        assert await operations.expire_robots([*hosts, OTHER], 1e9 + 5) == 2
        await operations.commit()
        kinds = {lease.record.host: lease.record.kind for lease in await frontier.lease(9, 1e9 + 5)}
        assert kinds == dict(zip(hosts, (RecordKind.ROBOTS, RecordKind.ROBOTS, RecordKind.PAGE), strict=True))

    run_scenario(scenario, Policy(concurrency_per_host=1000))


def test_pushed_urls_are_counted_and_leased(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        assert await operations.next_due(0.0) is None
        many = [url(number) for number in range(700)]
        assert await operations.push(many) == 700
        assert await operations.push(many[:10]) == 0
        assert await operations.push([url(1000, OTHER, not_before=50.0)]) == 1
        await operations.commit()
        stats = await operations.stats()
        assert (stats.queued, stats.delayed) == (700, 1)
        leases = await frontier.lease(800, 0.0)
        assert len(leases) == 700
        assert await operations.next_due(0.0) == pytest.approx(50.0)

    run_scenario(scenario)


def test_compacting_keeps_all_rows_and_verify_finds_no_fault(run_scenario: Callable[..., None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await settle_some(frontier)
        await frontier.commit({})
        assert await operations.verify(lambda line: None) == []
        before, after = await operations.compact()
        assert after <= before
        assert len(await all_rows(operations)) == 9
        assert await operations.verify(lambda line: None) == []

    run_scenario(scenario)


def test_a_finished_time_segment_is_archived_once_a_later_one_has_started(run_scenario: Callable[..., None]) -> None:
    """Even if nothing else is to be committed, or the later segment was archived manually."""

    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([url(1, segment="2026-11-21T08"), url(2, segment="2026-11-21T09")])
        leases = {lease.record.segment: lease for lease in await frontier.lease(2, 1.8e9)}
        await frontier.ack(leases["2026-11-21T09"], "200", (), 1.8e9)
        assert await operations.archive("2026-11-21T09")
        await frontier.ack(leases["2026-11-21T08"], "200", (), 1.8e9)
        await frontier.push([url(3, segment="2026-11-20")])
        (lease,) = await frontier.lease(1, 1.8e9)
        await frontier.ack(lease, "200", (), 1.8e9)
        await commit_everywhere(frontier)
        assert [view.state for view in await operations.segments()] == [SegmentState.ARCHIVED] * 3

    run_scenario(scenario)


async def commit_everywhere(frontier: Any) -> None:
    """Commit. In Redis the partitions other than the first learn of it with the next exchange."""
    await frontier.commit({})
    await frontier.stats()
    await frontier.commit({})


async def fetch_all(frontier: Any, now: float) -> list[str]:
    """Fetch everything that is due, and commit. Return the segments of the URLs."""
    fetched = []
    while leases := await frontier.lease(9, now):
        fetched += [lease.record.segment for lease in leases]
        for lease in leases:
            await frontier.ack(lease, "200", (), now)
    await commit_everywhere(frontier)
    return fetched


async def states_of(operations: Any) -> dict[str, str]:
    return {view.name: str(view.state) for view in await operations.segments()}


def test_a_segment_is_archived_once_the_next_one_of_its_period_has_started(run_scenario: Callable[..., None]) -> None:
    """For example, a segment of comments for three days stays open while products get a new segment every day."""

    async def scenario(frontier: Any, operations: Any) -> None:
        now = 1.9e9
        await frontier.push([url(1, segment="2026-11-24+day"), url(2, segment="2026-11-24+3d")])
        assert sorted(await fetch_all(frontier, now)) == ["2026-11-24+3d", "2026-11-24+day"]
        await frontier.push([url(1, segment="2026-11-25+day"), url(2, segment="2026-11-24+3d")])
        await fetch_all(frontier, now)
        archived, finished = "archived", "finished"
        before = {"2026-11-24+day": archived, "2026-11-24+3d": finished, "2026-11-25+day": finished}
        assert await states_of(operations) == before
        assert await frontier.push([url(3, segment="2026-11-24+3d"), url(3, segment="2026-11-24+day")]) == 1
        await frontier.push([url(2, segment="2026-11-27+3d")])
        assert await fetch_all(frontier, now) == ["2026-11-24+3d", "2026-11-27+3d"]
        assert await states_of(operations) == {**before, "2026-11-24+3d": archived, "2026-11-27+3d": finished}

    run_scenario(scenario)


def test_a_segment_into_which_the_run_may_push_is_not_archived(run_scenario: Callable[..., None]) -> None:
    """The run began before the next segment, and its spider may still yield requests."""

    async def scenario(frontier: Any, operations: Any) -> None:
        midnight = 1_795_910_400.0  # 2026-11-29
        await frontier.begin_run(midnight - 10)
        await frontier.push([url(1, segment="2026-11-27"), url(1, segment="2026-11-28"), url(1, segment="2026-11-29")])
        await fetch_all(frontier, midnight + 10)
        assert list((await states_of(operations)).values()) == ["archived", "finished", "finished"]
        assert await frontier.push([url(2, segment="2026-11-28")]) == 1

    run_scenario(scenario)


def test_a_drop_does_not_make_uncommitted_changes_durable(tmp_path: Path) -> None:
    """The items of URLs acked since the last commit are not written yet."""

    async def scenario() -> None:
        frontier = embedded_frontier(tmp_path, PLAIN)
        await frontier.push([url(1), url(2, segment="monday")])
        await frontier.commit({"items": 0})
        (lease,) = await frontier.lease(1, 0.0)
        await frontier.ack(lease, "200", (), 0.0)
        await LocalOperations(frontier).drop("monday")
        await frontier.close()
        frontier = embedded_frontier(tmp_path, PLAIN)
        assert (await frontier.stats()).queued == 2
        await LocalOperations(frontier).drop("monday")
        await frontier.commit({})
        await frontier.close()
        frontier = embedded_frontier(tmp_path, PLAIN)
        assert (await frontier.stats()).queued == 1
        assert await LocalOperations(frontier).verify(lambda _: None) == []
        await frontier.close()

    asyncio.run(scenario())


def test_committed_changes_survive_the_process(tmp_path: Path) -> None:
    async def first() -> None:
        frontier = embedded_frontier(tmp_path / "f", PLAIN)
        operations = LocalOperations(frontier)
        await settle_some(frontier)
        await operations.requeue(Selection(states=("dead",)), None, 200.0, "", 100)
        await operations.commit()
        await operations.push([url(50)])
        await frontier.close()

    async def then() -> None:
        frontier = embedded_frontier(tmp_path / "f", PLAIN)
        states = brief(await all_rows(LocalOperations(frontier)))
        assert states == {"0": "done", "1": "queued", "2": "retry", "8": "delayed"} | dict.fromkeys("34567", "queued")
        await frontier.close()

    asyncio.run(first())
    asyncio.run(then())
