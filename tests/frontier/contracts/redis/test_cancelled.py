"""Calls to a crawl in Redis whose task is cancelled while the request or its response is in flight (C3, C6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.frontier.redis.layout import Key
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

ITERATIONS = 20
"""Iterations of the event loop after which a call is certainly in flight."""

RECORDS = [url(n, f"http://h{n}.example:80") for n in range(1, 9)]


class DelayedClient(LooplessClient):
    """A client that delays each call until the gate opens: `before` or after the server executes it."""

    def __init__(self, url: str, *, before: bool) -> None:
        super().__init__(url)
        self.before, self.gate, self.calls = before, asyncio.Event(), 0
        self.on_command: Callable[..., Any] = lambda *_: None
        self.gate.set()

    async def execute_command(self, *arguments: Any) -> Any:
        self.calls += 1
        self.on_command(*arguments)
        if self.before:
            await self.gate.wait()
        response = self.blocking.execute_command(*arguments)
        await self.gate.wait()
        return response

    async def cancel_in_flight(self, call: Awaitable[Any]) -> None:
        """Start a call, and cancel its task once a command was sent."""
        task = await self.start_and_cancel(call)
        with pytest.raises(asyncio.CancelledError):
            await task
        self.gate.set()

    async def start_and_cancel(self, call: Awaitable[Any]) -> asyncio.Future[Any]:
        """Start a call, and cancel its task once a command was sent. Return the task; the gate is still closed."""
        self.gate.clear()
        calls_before, task = self.calls, asyncio.ensure_future(call)
        await iterate()
        assert self.calls > calls_before
        task.cancel()
        return task


@pytest.fixture(params=["before", "after"])
def before(request: pytest.FixtureRequest) -> bool:
    """Whether the cancelled call is delayed before it reaches the server, or after."""
    return bool(request.param == "before")


async def joined(redis_url: str, partitions: int, *, before: bool) -> tuple[Any, DelayedClient]:
    """Join a new crawl. Return the worker's frontier and its client."""
    client = DelayedClient(redis_url, before=before)
    return await simulated_frontier(client, token_hex(8), PLAIN, 0.0, partitions=partitions), client


async def iterate() -> None:
    """Let the event loop run."""
    for _ in range(ITERATIONS):
        await asyncio.sleep(0)


async def make_calls(frontier: Any) -> None:
    """Make several calls, one after the other."""
    for _ in range(ITERATIONS):
        await frontier.session.refresh()


@pytest.mark.parametrize("partitions", [1, 3])
def test_records_leased_by_a_cancelled_call_are_returned_by_later_calls(redis, partitions: int, before: bool) -> None:
    async def scenario() -> None:
        frontier, client = await joined(redis.url, partitions, before=before)
        await frontier.push(RECORDS)
        await client.cancel_in_flight(frontier.lease(len(RECORDS), 0.0))
        leases = [lease for _ in range(3) for lease in await frontier.lease(len(RECORDS), 0.0)]
        assert {lease.record.url for lease in leases} == {record.url for record in RECORDS}
        for lease in leases:
            assert await frontier.ack(lease, "200", [], 0.0)
        await frontier.commit({})
        assert (await frontier.stats()).done == len(RECORDS)
        await frontier.close()

    run(scenario())


@pytest.mark.parametrize("partitions", [1, 3])
def test_changes_of_a_cancelled_call_are_still_sent(redis, partitions: int, before: bool) -> None:
    async def scenario() -> None:
        frontier, client = await joined(redis.url, partitions, before=before)
        await frontier.push(RECORDS)
        leases = await frontier.lease(len(RECORDS), 0.0)
        for lease in leases:
            await frontier.ack(lease, "200", [], 0.0)
        await client.cancel_in_flight(frontier.lease(1, 0.0))
        await frontier.session.refresh()
        assert [await frontier.ack(lease, "200", [], 0.0) for lease in leases] == [False] * len(leases)
        await frontier.commit({})
        stats = await frontier.stats()
        assert (stats.done, stats.unfinished) == (len(leases), len(RECORDS) - len(leases))
        await frontier.close()

    run(scenario())


@pytest.mark.parametrize("cancellations", [1, 2])
def test_a_cancelled_commit_is_completed_before_the_next(redis, before: bool, cancellations: int) -> None:
    """Here the other partitions are preparing it. Otherwise the next commit would make it final in some of them.

    After one cancellation the call itself waits: acks after it must not be in this commit.
    """

    async def scenario() -> None:
        frontier, client = await joined(redis.url, 3, before=before)
        await frontier.commit({"items": 10})
        await frontier.push(RECORDS)
        for lease in await frontier.lease(len(RECORDS), 0.0):
            await frontier.ack(lease, "200", [], 0.0)
        decided = []
        client.on_command = lambda *arguments: "commit" in arguments and decided.append(arguments[-3])
        task = await client.start_and_cancel(frontier.commit({"items": 20}))
        await iterate()
        assert not task.done()
        if cancellations == 2:
            task.cancel()
            await iterate()
            assert task.done()
        client.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert decided == ([20] if cancellations == 1 else [])
        await frontier.commit({"items": 30})
        await frontier.close()
        assert decided == [20, 30]

    run(scenario())


def test_an_error_of_a_cancelled_call_is_raised_by_a_later_one(redis, before: bool) -> None:
    """Here the error is a refused ack, which the server reports only once."""

    async def scenario() -> None:
        frontier, client = await joined(redis.url, 1, before=before)
        await frontier.push(RECORDS)
        (lease,) = await frontier.lease(1, 0.0)
        (partition,) = frontier.session.partitions
        client.blocking.hdel(f"{partition.key}{Key.LEASES}{partition.worker}", lease.token)
        await frontier.ack(lease, "200", [], 0.0)
        await client.cancel_in_flight(frontier.lease(1, 0.0))
        with pytest.raises(WorkerLost, match="no longer holds 1 of its leases"):
            await make_calls(frontier)
        await frontier.close()

    run(scenario())


def test_closing_waits_for_cancelled_calls(redis, before: bool) -> None:
    async def scenario() -> None:
        frontier, client = await joined(redis.url, 1, before=before)
        await frontier.push(RECORDS)
        await client.cancel_in_flight(frontier.lease(1, 0.0))
        await frontier.close()
        assert len(asyncio.all_tasks()) == 1

    run(scenario())
