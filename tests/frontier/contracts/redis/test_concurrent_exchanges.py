"""Exchanges of several tasks of one worker at the same time (C3)."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.frontier.redis.scripts import keys_of
from lycosa.frontier.redis.worker.calls import ExchangeRequest
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

ROUNDS_MAX = 20
"""Exchanges after which a commit would never end."""

SLOW_STEPS = 20
"""Steps of the event loop that a slow call takes."""


class SlowClient(LooplessClient):
    """Each call takes SLOW_STEPS if its arguments contain `slow`. `before` is called before each call."""

    slow: Any = None
    ended = 0

    def before(self, arguments: tuple[Any, ...]) -> None:
        pass

    async def execute_command(self, *arguments: Any) -> Any:
        self.before(arguments)
        reply = await super().execute_command(*arguments)
        if self.slow in arguments:
            for _ in range(SLOW_STEPS):
                await asyncio.sleep(0)
        self.ended += 1
        return reply


async def frontier_of(client: Any) -> Any:
    """Return a frontier of three partitions, with one queued record in each."""
    frontier = await simulated_frontier(client, token_hex(8), PLAIN, 0.0, partitions=3)
    hosts = {frontier.session.partition_of(host): host for host in (f"http://h{n}.example:80" for n in range(20))}
    await frontier.push([url(number, host) for number, host in enumerate(hosts.values())])
    return frontier


async def fetch_pages(frontier: Any) -> None:
    """Lease and ack the record of each partition."""
    for lease in await frontier.lease(3, 0.0):
        await frontier.ack(lease, "200", [], 0.0)


def test_a_commit_waits_for_its_decision_while_another_exchange_sends_it(redis) -> None:
    """The server restarts after the other partitions have prepared the commit, so it must not be decided."""

    async def scenario() -> None:
        client: Any = SlowClient(redis.url)
        frontier = await frontier_of(client)
        first = frontier.session.partitions[0]
        await frontier.commit({"items": 10})
        await frontier.session.refresh()
        await fetch_pages(frontier)
        others = []

        def restart(arguments: tuple[Any, ...]) -> None:
            if "commit" in arguments and not others:
                redis.cli("DEBUG", "CHANGE-REPL-ID")
                others.append(asyncio.create_task(frontier.session.exchange([ExchangeRequest(first)])))

        client.before, client.slow = restart, "commit"
        with pytest.raises(WorkerLost):
            await frontier.commit({"items": 20})
        await asyncio.gather(*others, return_exceptions=True)
        await frontier.close()
        assert await frontier.positions() == {"items": 10}

    run(scenario())


def test_a_commit_ends_although_other_exchanges_send_it_to_the_former_server(redis) -> None:
    """The server of the first partition changes. Nothing is lost, so the commit is decided on the new one."""

    async def scenario() -> None:
        client: Any = SlowClient(redis.url)
        frontier = await frontier_of(client)
        first = frontier.session.partitions[0]
        await frontier.session.refresh()
        await fetch_pages(frontier)
        await frontier.session.refresh()
        first.server = "the former server"
        others = []

        def send_too(arguments: tuple[Any, ...]) -> None:
            assert len(others) < ROUNDS_MAX
            if "exchange" in arguments and keys_of(first.key)[0] not in arguments:
                others.append(asyncio.create_task(frontier.session.exchange([ExchangeRequest(first)])))

        client.before, client.slow = send_too, "exchange"
        await frontier.commit({"items": 20})
        await asyncio.gather(*others)
        await frontier.close()
        assert await frontier.positions() == {"items": 20}

    run(scenario())


def test_no_commit_follows_one_that_failed(redis) -> None:
    """Otherwise its positions would cover pages that a partition has lost."""

    async def scenario() -> None:
        client: Any = SlowClient(redis.url)
        frontier = await frontier_of(client)
        last = frontier.session.partitions[-1]
        await frontier.commit({"items": 10})
        await fetch_pages(frontier)
        last.serial += 1  # an exchange was lost
        with pytest.raises(WorkerLost):
            await frontier.commit({"items": 20})
        with pytest.raises(WorkerLost):
            await frontier.commit({"items": 30})
        await frontier.close()
        assert await frontier.positions() == {"items": 10}

    run(scenario())


def test_no_exchange_overtakes_the_calls_of_one_that_failed(redis) -> None:
    async def scenario() -> None:
        client: Any = SlowClient(redis.url)
        frontier = await frontier_of(client)
        first, _, last = frontier.session.partitions
        first.serial += 1  # an exchange with the first partition was lost
        client.slow, client.ended, serial = keys_of(last.key)[0], 0, last.serial
        with pytest.raises(WorkerLost):
            await frontier.session.exchange([ExchangeRequest(each) for each in (first, last)])
        assert (client.ended, last.serial) == (2, serial + 1)
        await frontier.close()

    run(scenario())
