"""Workers of one crawl on Redis with different limits: the strictest limits apply, and all workers report it (C5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from tests.frontier.contracts.test_frontier import url
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

PARTITIONS, WAIT_MAX_S = 2, 60.0
FIELDS = ("delay", "places", "ip_delay", "ip_places", "robots", "start_delay")


class Crawl:
    """A crawl that workers with different limits join. `messages` are what they reported."""

    def __init__(self, address: str, partitions: int = PARTITIONS) -> None:
        self.address, self.name, self.partitions = address, token_hex(4), partitions
        self.server = redis_client(address)
        self.messages: list[str] = []

    async def join(self, worker: str, policy: Policy) -> RedisFrontier:
        member = Membership(worker)
        return await redis_frontier(
            self.address, self.name, policy, member, self.messages.append, partitions=self.partitions
        )

    def take_messages(self) -> list[str]:
        messages, self.messages[:] = list(self.messages), []
        return [line for line in messages if "Started crawl" not in line]

    def limits(self) -> dict[str, float]:
        """Return the limits in force, which are the same in all partitions."""
        keys = [f"lycosa:{{{self.name}.{number}}}:m" for number in range(self.partitions)]
        found = [dict(zip(FIELDS, map(float, self.server.hmget(key, FIELDS)), strict=True)) for key in keys]
        assert found == found[:1] * len(keys)
        return found[0]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_MAX_S
        while not condition():
            assert time.monotonic() < deadline, self.limits()
            await asyncio.sleep(0.05)


@pytest.fixture
def crawl(redis) -> Crawl:
    return Crawl(redis.url)


def test_the_strictest_limits_of_live_workers_apply(crawl):
    async def scenario() -> None:
        first = await crawl.join("a", Policy(0.5))
        same = await crawl.join("b", Policy(0.5))
        assert crawl.take_messages() == []
        faster = await crawl.join("c", Policy(0.0, robots=False))
        differs = "delay 0.5 (not 0), robots true (not false)"
        others = f"other workers of the crawl {crawl.name!r} request them"
        assert crawl.take_messages() == [f"this worker uses {differs} while {others}: the strictest limits apply"]
        assert (crawl.limits()["delay"], crawl.limits()["robots"]) == (0.5, 1.0)
        slower = await crawl.join("d", Policy(2.0, concurrency_per_host=1))
        changed = "delay 2 (it was 0.5), concurrency_per_host 1 (it was 8)"
        message = f"all workers of the crawl {crawl.name!r} use {changed} while this one runs"
        assert crawl.take_messages() == [f"{message}: the strictest limits apply"]
        await slower.close()
        assert (crawl.limits()["delay"], crawl.limits()["places"]) == (0.5, 8.0)
        for each in (first, same):
            await each.close()
        assert (crawl.limits()["delay"], crawl.limits()["robots"]) == (0.0, 0.0)
        await faster.close()
        alone = await crawl.join("e", Policy(0.1))
        assert crawl.limits()["delay"] == 0.1
        assert crawl.take_messages() == []
        await alone.close()

    asyncio.run(scenario())


def test_the_gentlest_limits_per_address_of_live_workers_apply(redis):
    """0 means no limit, and is not the smallest one."""
    crawl = Crawl(redis.url, partitions=1)

    async def scenario() -> None:
        first = await crawl.join("a", Policy())
        second = await crawl.join("b", Policy(concurrency_per_ip=4, delay_per_ip_s=1.0))
        third = await crawl.join("c", Policy(concurrency_per_ip=2))
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (2.0, 1.0)
        await third.close()
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (4.0, 1.0)
        await second.close()
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (0.0, 0.0)
        await first.close()

    asyncio.run(scenario())


def test_the_limits_of_a_dead_worker_end(crawl):
    async def scenario() -> None:
        faster = await crawl.join("a", Policy(0.0))
        slower = await crawl.join("b", Policy(3.0))
        slower.heartbeat.stop()
        await slower.session.calls.client.aclose()
        assert crawl.limits()["delay"] == 3.0

        def is_free() -> bool:
            return all(delay == b"0" for delay in delays())

        def delays() -> list[Any]:
            return [crawl.server.hget(f"lycosa:{{{crawl.name}.{number}}}:m", "delay") for number in range(PARTITIONS)]

        async def work() -> None:
            while True:
                await faster.lease(1, time.time())
                await asyncio.sleep(0.05)

        working = asyncio.create_task(work())
        await crawl.wait_until(is_free)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await faster.close()

    asyncio.run(scenario())


def test_a_worker_with_a_shorter_delay_does_not_speed_up_the_crawl(crawl):
    """Requests keep the delay of the other worker, although that one fetches nothing."""

    async def scenario() -> None:
        slower = await crawl.join("a", Policy(0.4, robots=False))
        faster = await crawl.join("b", Policy(0.0, robots=False))
        await faster.push([url(n) for n in range(4)])
        starts: list[float] = []
        while len(starts) < 4:
            for lease in await faster.lease(4, time.time()):
                starts.append(time.time())
                faster.report_start(lease.record.host, starts[-1])
                await faster.ack(lease, "200", [], time.time())
            await asyncio.sleep(0.01)
        await faster.close()
        await slower.close()
        gaps = [later - earlier for earlier, later in pairwise(starts)]
        assert min(gaps) >= 0.35, gaps

    asyncio.run(scenario())
