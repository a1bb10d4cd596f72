"""Calls to a crawl in Redis whose task is cancelled while their request or answer is on its way (C3, C6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.frontier.redis.layout import Key
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

TURNS = 20
"""Of the loop, in which a call is on its way for sure."""

RECORDS = [url(n, f"http://h{n}.example:80") for n in range(1, 9)]


class Slow(LooplessClient):
    """A client of which each call waits for the gate, `before` or after the server has done it."""

    def __init__(self, url: str, *, before: bool) -> None:
        super().__init__(url)
        self.before, self.gate, self.calls = before, asyncio.Event(), 0
        self.gate.set()

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command."""
        self.calls += 1
        if self.before:
            await self.gate.wait()
        said = self._real.execute_command(*arguments)
        await self.gate.wait()
        return said

    async def cut_off(self, call: Awaitable[Any]) -> None:
        """Begin a call, and cancel its task once something was sent."""
        self.gate.clear()
        before, task = self.calls, asyncio.ensure_future(call)
        for _ in range(TURNS):
            await asyncio.sleep(0)
        assert self.calls > before
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        self.gate.set()


@pytest.fixture(params=["before", "after"])
def before(request: pytest.FixtureRequest) -> bool:
    """Whether the request is on its way, or the answer."""
    return bool(request.param == "before")


async def joined(redis_url: str, partitions: int, *, before: bool) -> tuple[Any, Slow]:
    """Return a worker's frontier and its client."""
    client = Slow(redis_url, before=before)
    return await simulated_frontier(client, token_hex(8), PLAIN, 0.0, partitions=partitions), client


async def look_often(frontier: Any) -> None:
    """Make calls, one after the other."""
    for _ in range(TURNS):
        await frontier.session.refresh()


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_a_cancelled_lease_was_lent_is_handed_to_the_next(redis, partitions: int, before: bool) -> None:
    async def story() -> None:
        frontier, client = await joined(redis.url, partitions, before=before)
        await frontier.push(RECORDS)
        await client.cut_off(frontier.lease(len(RECORDS), 0.0))
        leases = [lease for _ in range(3) for lease in await frontier.lease(len(RECORDS), 0.0)]
        assert {lease.record.url for lease in leases} == {record.url for record in RECORDS}
        for lease in leases:
            assert await frontier.ack(lease, "200", [], 0.0)
        await frontier.commit({})
        assert (await frontier.stats()).done == len(RECORDS)
        await frontier.close()

    run(story())


@pytest.mark.parametrize("partitions", [1, 3])
def test_what_a_cancelled_call_had_to_say_is_said(redis, partitions: int, before: bool) -> None:
    async def story() -> None:
        frontier, client = await joined(redis.url, partitions, before=before)
        await frontier.push(RECORDS)
        leases = await frontier.lease(len(RECORDS), 0.0)
        for lease in leases:
            await frontier.ack(lease, "200", [], 0.0)
        await client.cut_off(frontier.lease(1, 0.0))
        await frontier.session.refresh()
        assert [await frontier.ack(lease, "200", [], 0.0) for lease in leases] == [False] * len(leases)
        await frontier.commit({})
        stats = await frontier.stats()
        assert (stats.done, stats.unfinished) == (len(leases), len(RECORDS) - len(leases))
        await frontier.close()

    run(story())


def test_what_goes_wrong_with_a_cancelled_call_the_next_one_raises(redis, before: bool) -> None:
    """Here an end that is not taken, which is said only once."""

    async def story() -> None:
        frontier, client = await joined(redis.url, 1, before=before)
        await frontier.push(RECORDS)
        (lease,) = await frontier.lease(1, 0.0)
        (partition,) = frontier.session.partitions
        client._real.hdel(f"{partition.key}{Key.LEASES}{partition.worker}", lease.token)
        await frontier.ack(lease, "200", [], 0.0)
        await client.cut_off(frontier.lease(1, 0.0))
        with pytest.raises(WorkerLost, match="does not hold 1 of its leases any more"):
            await look_often(frontier)
        await frontier.close()

    run(story())


def test_who_leaves_waits_for_what_was_cancelled(redis, before: bool) -> None:
    async def story() -> None:
        frontier, client = await joined(redis.url, 1, before=before)
        await frontier.push(RECORDS)
        await client.cut_off(frontier.lease(1, 0.0))
        await frontier.close()
        assert len(asyncio.all_tasks()) == 1

    run(story())
