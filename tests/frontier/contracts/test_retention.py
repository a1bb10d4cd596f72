"""Dropping old segments (F2): the same on every back end, and never one whose URLs are still needed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import StorageError
from lycosa.crawl.engine.retention import drop_expired
from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.core.segments import SEGMENTS_KEPT_MAX, Retention
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.lsm.lmdb import SEGMENTS_MAX
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.redis.admin.operations import RedisOperations
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

HOST = "http://a.example:80"
PLAIN = Policy(robots=False, concurrency_per_host=1000)
HOUR_S = 3600
BEGIN = 1_800_000_000 // HOUR_S * HOUR_S

Scenario = Callable[[Any, Any], Awaitable[None]]


@pytest.fixture(params=["memory", "embedded", "redis", "redis, 3 partitions"])
def run_scenario(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Scenario], None]:
    """A function that runs a scenario with a new frontier and its operations."""
    name = request.param

    async def run(scenario: Scenario) -> None:
        frontier: Any
        if name.startswith("redis"):
            client, partitions = LooplessClient(request.getfixturevalue("redis").url), 3 if "3" in name else 1
            frontier = await simulated_frontier(client, token_hex(8), PLAIN, 0.0, partitions=partitions, keep_done=True)
            operations: Any = RedisOperations(frontier.session, lambda: frontier.commit({}), forget=frontier.forget)
        else:
            frontier = memory_frontier(PLAIN) if name == "memory" else embedded_frontier(tmp_path / "f", PLAIN)
            operations = LocalOperations(frontier)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(frontier.close)
            await scenario(frontier, operations)

    return lambda scenario: asyncio.run(run(scenario))


def page(number: int, segment: str) -> UrlRecord:
    host = f"http://h{number % 5}.example:80"
    return UrlRecord(1, number + 1, f"http://h{number % 5}.example/{number}", host, segment)


def hour(number: int) -> str:
    return time.strftime("%Y-%m-%dT%H", time.gmtime(BEGIN + number * HOUR_S))


async def crawl(frontier: Any, segment: str, now: float, pages: int = 1) -> int:
    """Fetch the pages of a segment. Return their number."""
    pushed: int = await frontier.push([page(number, segment) for number in range(pages)])
    while leases := await frontier.lease(9, now):
        for lease in leases:
            await frontier.ack(lease, "200", (), now)
    for _ in range(2):
        await frontier.commit({})
        await frontier.stats()  # in Redis, the other partitions learn of the commit
    return pushed


async def states(operations: Any) -> dict[str, str]:
    return {view.name: str(view.state) for view in await operations.segments()}


async def stored_segments(operations: Any) -> set[str]:
    found: set[str] = set()
    cursor: str | None = ""
    while cursor is not None:
        rows, cursor = await operations.rows(Selection(), cursor, 100)
        found |= {row.record.segment for row in rows}
    return found


def test_the_latest_segments_are_kept(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        for number in range(6):
            await crawl(frontier, hour(number), BEGIN + number * HOUR_S, pages=7)
            await crawl(frontier, f"{hour(number)[:10]}+month", BEGIN + number * HOUR_S)
        now = BEGIN + 5 * HOUR_S
        assert await drop_expired(operations, Retention(), now) == []
        assert await drop_expired(operations, Retention(number=3), now) == [hour(0), hour(1)]
        assert await drop_expired(operations, Retention(number=3), now) == []
        kept = await states(operations)
        assert [name for name in kept if kept[name] == "dropped"] == [hour(0), hour(1)]
        assert await drop_expired(operations, Retention(age_s=2 * HOUR_S), now) == [hour(2)]
        assert await drop_expired(operations, Retention(1, 1.0), now + 1e7) == [hour(3)], "the last two are needed"
        assert not await frontier.push([page(50, hour(0))])
        kept = {name for name, state in (await states(operations)).items() if state != "dropped"}
        assert await stored_segments(operations) == kept == {hour(4), hour(5), f"{hour(0)[:10]}+month"}

    run_scenario(scenario)


def test_a_segment_with_work_is_kept(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        await frontier.push([page(1, hour(0))])
        (lease,) = await frontier.lease(1, BEGIN)
        await frontier.nack(lease, "timeout", BEGIN + 1e6, BEGIN)
        for number in range(1, 5):
            await crawl(frontier, hour(number), BEGIN + number * HOUR_S)
        assert await drop_expired(operations, Retention(number=1), BEGIN + 5 * HOUR_S) == [hour(1), hour(2)]
        assert (await states(operations))[hour(0)] == "open"

    run_scenario(scenario)


def test_a_segment_is_exported_before_it_is_dropped(run_scenario: Callable[[Scenario], None], tmp_path: Path) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        for number in range(4):
            await crawl(frontier, hour(number), BEGIN + number * HOUR_S, pages=1200)
        (tmp_path / "file").touch()
        with pytest.raises(StorageError, match="file"):
            await drop_expired(operations, Retention(number=2), BEGIN + 4 * HOUR_S, tmp_path / "file")
        assert "dropped" not in (await states(operations)).values()
        folder = tmp_path / "old" / "segments"
        assert await drop_expired(operations, Retention(number=2), BEGIN + 4 * HOUR_S, folder) == [hour(0)]
        assert [each.name for each in folder.iterdir()] == [f"{hour(0)}.jsonl"]
        lines = [json.loads(line) for line in (folder / f"{hour(0)}.jsonl").read_bytes().splitlines()]
        assert sorted(line["url"] for line in lines) == sorted(page(number, "").url for number in range(1200))
        assert {(line["state"], line["segment"], line["reason"]) for line in lines} == {("archived", hour(0), "200")}

    run_scenario(scenario)


class OvertakenOperations:
    """Operations of a worker: while it reads the first rows of an export, another worker does `overtake`."""

    def __init__(self, operations: Any, overtake: Callable[[], Awaitable[object]]) -> None:
        self._operations = operations
        self._overtake: Callable[[], Awaitable[object]] | None = overtake

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operations, name)

    async def rows(self, *arguments: Any) -> Any:
        found = await self._operations.rows(*arguments)
        if self._overtake is not None:
            overtake, self._overtake = self._overtake, None
            await overtake()
        return found


@pytest.mark.parametrize("pages", [7, 1200])
def test_a_worker_that_exports_too_late_leaves_the_export_of_another(
    run_scenario: Callable[[Scenario], None], tmp_path: Path, pages: int
) -> None:
    async def scenario(frontier: Any, operations: Any) -> None:
        for number in range(4):
            await crawl(frontier, hour(number), BEGIN + number * HOUR_S, pages=pages)

        def drop(operations: Any) -> Awaitable[object]:
            return drop_expired(operations, Retention(number=2), BEGIN + 4 * HOUR_S, tmp_path)

        late = OvertakenOperations(operations, lambda: drop(operations))
        assert await drop(late) == []
        assert (await states(operations))[hour(0)] == "dropped"

    run_scenario(scenario)
    (exported,) = [each for each in tmp_path.iterdir() if "jsonl" in each.name]
    assert exported.name == f"{hour(0)}.jsonl"
    assert len(exported.read_bytes().splitlines()) == pages


def test_an_hourly_crawl_never_reaches_the_limit_of_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting, the oldest segments are dropped when there are too many."""
    assert SEGMENTS_KEPT_MAX <= 0.9 * SEGMENTS_MAX, "the other segments are in use, or have names that are no times"
    most, hours = 20, 50
    monkeypatch.setattr("lycosa.frontier.core.segments.SEGMENTS_KEPT_MAX", most)

    async def scenario() -> None:
        frontier = embedded_frontier(tmp_path, PLAIN, expected=1000)
        operations = LocalOperations(frontier)
        dropped: list[str] = []
        for number in range(hours):
            now = BEGIN + number * HOUR_S
            dropped += await drop_expired(operations, Retention(), now)
            await crawl(frontier, hour(number), now)
        assert dropped == [hour(number) for number in range(hours - 1 - most)]
        await frontier.close()
        frontier = embedded_frontier(tmp_path, PLAIN, expected=1000)
        assert len(await states(LocalOperations(frontier))) == hours
        await frontier.close()

    asyncio.run(scenario())
