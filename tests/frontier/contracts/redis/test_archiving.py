"""Archiving a segment of a shared crawl while its pages still find links in other partitions: none is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontier.core.model import Lease, SegmentState, Selection, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin.archiving import archive
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

PLAIN = Policy(robots=False, concurrency_per_host=1000)
HISTORIES = 200 if PROVE else 12
OLD, NEW = "2026-11-21+day", "2026-11-22+day"
NOW = 1.9e9
PAGES = 24


class SlowClient(LooplessClient):
    """Answers late, so that other tasks run in between."""

    def __init__(self, url: str, rng: random.Random) -> None:
        super().__init__(url)
        self._rng = rng

    async def execute_command(self, *arguments: Any) -> Any:
        for _ in range(self._rng.randrange(8)):
            await asyncio.sleep(0)
        return await super().execute_command(*arguments)


def page(number: int, segment: str = OLD) -> UrlRecord:
    host = f"http://h{number % 23}.example"
    return UrlRecord(1, number + 1, f"{host}/{number}", f"{host}:80", segment)


async def crawl(frontier: RedisFrontier, rng: random.Random, seen: list[str]) -> None:
    """Fetch the pages of the old segment: each links to the next two."""
    for _ in range(1000):
        leases = await frontier.lease(rng.randrange(1, 4), NOW)
        for lease in leases:
            number = int(lease.record.url.rpartition("/")[2])
            links = [page(each) for each in (2 * number + 1, 2 * number + 2) if each < PAGES]
            if lease.record.segment == OLD:
                seen.append(lease.record.url)
            assert await frontier.ack(lease, "200", links if lease.record.segment == OLD else (), NOW)
        await frontier.commit({})
        await frontier.session.deliver()
        if not leases and await frontier.is_finished():
            return
    pytest.fail("the crawl does not end")


@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("tries_early", [False, True])
def test_no_link_is_lost_while_its_segment_is_archived(redis: Any, seed: int, tries_early: bool) -> None:
    """With `tries_early`, a worker even tries to archive the segment while it has work."""

    async def scenario() -> None:
        rng, name, seen = random.Random(seed), token_hex(8), []
        workers = [
            await simulated_frontier(
                SlowClient(redis.url, rng), name, PLAIN, NOW, worker=f"w{number}", partitions=3, keep_done=True
            )
            for number in range(3)
        ]
        await workers[0].push([page(0), page(100, NEW)])
        crawling = [asyncio.create_task(crawl(worker, rng, seen)) for worker in workers]
        while tries_early and not all(task.done() for task in crawling):
            await archive(workers[0].session, OLD)
            await asyncio.sleep(0)
        await asyncio.gather(*crawling)
        for _ in range(2):
            await workers[1].stats()
            await workers[1].commit({})
        operations = RedisOperations(workers[0].session)
        assert sorted(seen) == sorted(page(number).url for number in range(PAGES)), f"seed {seed}"
        states = {view.name: view.state for view in await operations.segments()}
        assert states == {OLD: SegmentState.ARCHIVED, NEW: SegmentState.FINISHED}
        assert await workers[2].push([page(99), page(99, NEW)]) == 1, "the old segment takes no more URLs"
        rows = (await operations.rows(Selection(segment=OLD), "", 100)).rows
        assert {row.state for row in rows} == {"archived"}
        for worker in workers:
            await worker.close()

    asyncio.run(scenario())


class HookedClient(LooplessClient):
    """Calls a function once, before the second partition is asked for its work."""

    before_second: Callable[[], Awaitable[None]] | None = None

    async def execute_command(self, *arguments: Any) -> Any:
        if "work" in arguments and ".1}" in str(arguments[3]) and self.before_second is not None:
            hook, self.before_second = self.before_second, None
            await hook()
        return await super().execute_command(*arguments)


def test_a_link_that_moves_to_a_partition_without_work_keeps_the_segment_open(redis: Any) -> None:
    """The first partition had no work when it was asked, and the second has none any more."""

    async def scenario() -> None:
        client, name = HookedClient(redis.url), token_hex(8)
        frontier = await simulated_frontier(client, name, PLAIN, NOW, partitions=3, keep_done=True)
        in_partition = {frontier.session.partition_of(page(number).host).number: number for number in range(23)}
        first, second, third = (page(in_partition[number]) for number in range(3))
        await frontier.push([second, page(100, NEW)])
        leases = {lease.record.segment: lease for lease in await frontier.lease(9, NOW)}

        async def fetch(lease: Lease, links: list[UrlRecord]) -> None:
            assert await frontier.ack(lease, "200", links, NOW)
            await frontier.commit({})
            await frontier.stats()
            await frontier.session.deliver()

        client.before_second = partial(fetch, leases[OLD], [first])
        assert not await archive(frontier.session, OLD)
        assert client.before_second is None
        for link in (third, second):
            (lease,) = await frontier.lease(9, NOW)
            await fetch(lease, [link])
        assert await archive(frontier.session, OLD)
        assert [view.done for view in await RedisOperations(frontier.session).segments()] == [3, 0]

    asyncio.run(scenario())
