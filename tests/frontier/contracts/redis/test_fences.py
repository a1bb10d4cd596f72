"""What a worker of a crawl on Redis does that stood still, or hears late how the crawl is (C3, C6)."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.crawl.fetching.start_reporter import StartReportingFetcher
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

TURNS = 20
"""Of the loop, in which whatever can happen happens."""

BURIED_MAX_S = 60.0
SEGMENTS = [f"2001-01-{day:02}" for day in range(1, 10)]


class Late(LooplessClient):
    """A client to which the answers to those who only look come late."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = asyncio.Event()

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command."""
        said = self._real.execute_command(*arguments)
        if "status" in arguments:
            await self.gate.wait()
        return said


def test_what_is_heard_late_is_not_taken_for_what_is(redis) -> None:
    """Else a worker could end although there is something to do."""

    async def story() -> None:
        client, name = Late(redis.url), token_hex(8)
        one = await simulated_frontier(client, name, PLAIN, 0.0, worker="one")
        other = await simulated_frontier(LooplessClient(redis.url), name, PLAIN, 0.0, worker="other")
        late = asyncio.create_task(one.session.status())
        await asyncio.sleep(0)
        await other.push([url(1)])
        now = asyncio.create_task(one.session.refresh())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        client.gate.set()
        await asyncio.gather(late, now)
        assert one.session.is_live()
        assert not await one.is_finished()

    run(story())


class Fetches:
    """A fetcher that notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def fetch(self, request: Request, **_: Any) -> Any:
        """Fetch at once."""
        self.asked.append(request.url)
        return SimpleNamespace(timings=SimpleNamespace(total_s=0.0, connect_s=0.0, tls_s=0.0))


def test_who_stood_still_contacts_no_host_whose_turn_is_that_of_others(redis) -> None:
    async def story() -> None:
        name, policy, fetches = token_hex(8), Policy(robots=False, delay_s=0.1), Fetches()
        still, other = [
            await redis_frontier(redis.url, name, policy, Membership(worker), print) for worker in ("still", "other")
        ]
        fetcher = StartReportingFetcher(fetches, still, Clock())  # type: ignore[arg-type]
        await still.push([url(1)])
        (lease,) = await still.lease(1, time.time())
        await fetcher.fetch(Request(lease.record.url))
        assert still.heartbeat
        still.heartbeat.stop()
        async with asyncio.timeout(BURIED_MAX_S):
            while not await other.lease(1, time.time()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(WorkerLost):
            await fetcher.fetch(Request(lease.record.url))
        assert fetches.asked == [lease.record.url]
        for each in (still, other):
            await each.close()

    run(story())


def test_a_worker_is_not_told_again_and_again_of_what_there_is_no_more(redis) -> None:
    """Each answer has the counts of all segments, of which there may be very many in time."""

    async def story() -> None:
        client, name = LooplessClient(redis.url), token_hex(8)
        frontier = await simulated_frontier(client, name, PLAIN, 1e9, keep_done=False)
        await frontier.push([url(number, segment=segment) for number, segment in enumerate(SEGMENTS)])
        while leases := await frontier.lease(5, 1e9):
            for lease in leases:
                await frontier.ack(lease, "200", (), 1e9)
            await frontier.commit({})
        kinds = {
            field.partition(b"|")[0] for field in client._real.hkeys(frontier.session.partitions[0].key + Key.COUNTS)
        }
        assert kinds == {b"done"}
        assert (await frontier.stats()).done == len(SEGMENTS)

    run(story())
