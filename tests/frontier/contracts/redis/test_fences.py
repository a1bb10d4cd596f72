"""Workers of a crawl on Redis that paused, or that receive outdated answers (C3, C6)."""

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

ITERATIONS = 20
"""Iterations of the event loop after which nothing more happens by itself."""

EXPIRED_MAX_S = 60.0
SEGMENTS = [f"2001-01-{day:02}" for day in range(1, 10)]


class LateStatusClient(LooplessClient):
    """A client that delays the responses to `status` until the gate opens."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = asyncio.Event()

    async def execute_command(self, *arguments: Any) -> Any:
        response = self.blocking.execute_command(*arguments)
        if "status" in arguments:
            await self.gate.wait()
        return response


def test_an_outdated_status_does_not_override_a_newer_one(redis) -> None:
    """Otherwise a worker could end although there is work left."""

    async def scenario() -> None:
        client, name = LateStatusClient(redis.url), token_hex(8)
        first = await simulated_frontier(client, name, PLAIN, 0.0, worker="one")
        other = await simulated_frontier(LooplessClient(redis.url), name, PLAIN, 0.0, worker="other")
        late = asyncio.create_task(first.session.status())
        await asyncio.sleep(0)
        await other.push([url(1)])
        now = asyncio.create_task(first.session.refresh())
        for _ in range(ITERATIONS):
            await asyncio.sleep(0)
        client.gate.set()
        await asyncio.gather(late, now)
        assert first.session.is_live()
        assert not await first.is_finished()

    run(scenario())


class RecordingFetcher:
    """A fetcher that records the requested URLs."""

    def __init__(self) -> None:
        self.requested: list[str] = []

    async def fetch(self, request: Request, **_: Any) -> Any:
        self.requested.append(request.url)
        return SimpleNamespace(timings=SimpleNamespace(total_s=0.0, connect_s=0.0, tls_s=0.0))


def test_a_paused_worker_contacts_no_host_that_others_lease(redis) -> None:
    async def scenario() -> None:
        name, policy, recorder = token_hex(8), Policy(robots=False, delay_s=0.1), RecordingFetcher()
        paused, other = [
            await redis_frontier(redis.url, name, policy, Membership(worker), print) for worker in ("still", "other")
        ]
        fetcher = StartReportingFetcher(recorder, paused, Clock())  # type: ignore[arg-type]
        await paused.push([url(1)])
        (lease,) = await paused.lease(1, time.time())
        await fetcher.fetch(Request(lease.record.url))
        assert paused.heartbeat
        paused.heartbeat.stop()
        async with asyncio.timeout(EXPIRED_MAX_S):
            while not await other.lease(1, time.time()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(WorkerLost):
            await fetcher.fetch(Request(lease.record.url))
        assert recorder.requested == [lease.record.url]
        for each in (paused, other):
            await each.close()

    run(scenario())


def test_counts_that_became_zero_are_removed(redis) -> None:
    """Each response has the counts of all segments, and the number of segments grows with time."""

    async def scenario() -> None:
        client, name = LooplessClient(redis.url), token_hex(8)
        frontier = await simulated_frontier(client, name, PLAIN, 1e9, keep_done=False)
        await frontier.push([url(number, segment=segment) for number, segment in enumerate(SEGMENTS)])
        while leases := await frontier.lease(5, 1e9):
            for lease in leases:
                await frontier.ack(lease, "200", (), 1e9)
            await frontier.commit({})
        kinds = {
            field.partition(b"|")[0] for field in client.blocking.hkeys(frontier.session.partitions[0].key + Key.COUNTS)
        }
        assert kinds == {b"done"}
        assert (await frontier.stats()).done == len(SEGMENTS)

    run(scenario())
