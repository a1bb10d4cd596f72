"""Workers of one crawl on Redis that want other limits: the gentlest that live decide, and all are told (C5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from itertools import pairwise
from secrets import token_hex
from typing import Any

import pytest
import redis as driver

from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from tests.frontier.contracts.test_frontier import url

pytestmark = pytest.mark.redis

PARTITIONS, WAIT_MAX_S = 2, 60.0
FIELDS = ("delay", "places", "ip_delay", "ip_places", "robots", "start_delay")


class Crawl:
    """A crawl that workers with other limits join; `said` is what they were told."""

    def __init__(self, address: str, partitions: int = PARTITIONS) -> None:
        self.address, self.name, self.partitions = address, token_hex(4), partitions
        self.server = driver.Redis.from_url(address)
        self.said: list[str] = []

    async def join(self, worker: str, policy: Policy) -> RedisFrontier:
        member = Membership(worker)
        return await redis_frontier(
            self.address, self.name, policy, member, self.said.append, partitions=self.partitions
        )

    def told(self) -> list[str]:
        said, self.said[:] = list(self.said), []
        return [line for line in said if "started crawl" not in line]

    def limits(self) -> dict[str, float]:
        """Return what holds, which is the same in all partitions."""
        keys = [f"lycosa:{{{self.name}.{number}}}:m" for number in range(self.partitions)]
        found = [dict(zip(FIELDS, map(float, self.server.hmget(key, FIELDS)), strict=True)) for key in keys]
        assert found == found[:1] * len(keys)
        return found[0]

    async def until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_MAX_S
        while not happened():
            assert time.monotonic() < deadline, self.limits()
            await asyncio.sleep(0.05)


@pytest.fixture
def crawl(redis) -> Crawl:
    return Crawl(redis.url)


def test_the_gentlest_that_live_decide(crawl):
    async def story() -> None:
        first = await crawl.join("a", Policy(0.5))
        same = await crawl.join("b", Policy(0.5))
        assert crawl.told() == []
        rude = await crawl.join("c", Policy(0.0, robots=False))
        theirs = "delay 0.5 (not 0), robots true (not false)"
        assert crawl.told() == [
            f"this worker uses {theirs} while others of the crawl {crawl.name!r} want that: the gentlest limits hold"
        ]
        assert (crawl.limits()["delay"], crawl.limits()["robots"]) == (0.5, 1.0)
        gentle = await crawl.join("d", Policy(2.0, concurrency_per_host=1))
        changed = "delay 2 (it was 0.5), concurrency_per_host 1 (it was 8)"
        whose = f"all workers of the crawl {crawl.name!r} use {changed} while this one runs"
        assert crawl.told() == [f"{whose}: the gentlest limits hold"]
        await gentle.close()
        assert (crawl.limits()["delay"], crawl.limits()["places"]) == (0.5, 8.0)
        for each in (first, same):
            await each.close()
        assert (crawl.limits()["delay"], crawl.limits()["robots"]) == (0.0, 0.0)
        await rude.close()
        alone = await crawl.join("e", Policy(0.1))
        assert crawl.limits()["delay"] == 0.1
        assert crawl.told() == []
        await alone.close()

    asyncio.run(story())


def test_limits_of_addresses(redis):
    """0 is no limit, and not the smallest."""
    crawl = Crawl(redis.url, partitions=1)

    async def story() -> None:
        first = await crawl.join("a", Policy())
        second = await crawl.join("b", Policy(concurrency_per_ip=4, delay_per_ip_s=1.0))
        third = await crawl.join("c", Policy(concurrency_per_ip=2))
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (2.0, 1.0)
        await third.close()
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (4.0, 1.0)
        await second.close()
        assert (crawl.limits()["ip_places"], crawl.limits()["ip_delay"]) == (0.0, 0.0)
        await first.close()

    asyncio.run(story())


def test_one_that_dies_wants_nothing_any_more(crawl):
    async def story() -> None:
        rude = await crawl.join("a", Policy(0.0))
        gentle = await crawl.join("b", Policy(3.0))
        gentle.heartbeat.stop()
        await gentle.session.calls.client.aclose()
        assert crawl.limits()["delay"] == 3.0

        def is_free() -> bool:
            return all(delay == b"0" for delay in delays())

        def delays() -> list[Any]:
            return [crawl.server.hget(f"lycosa:{{{crawl.name}.{number}}}:m", "delay") for number in range(PARTITIONS)]

        async def work() -> None:
            while True:
                await rude.lease(1, time.time())
                await asyncio.sleep(0.05)

        working = asyncio.create_task(work())
        await crawl.until(is_free)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await rude.close()

    asyncio.run(story())


def test_a_worker_that_joins_makes_no_crawl_ruder(crawl):
    """The turns of a host are as far apart as the other worker wants, which does nothing."""

    async def story() -> None:
        gentle = await crawl.join("a", Policy(0.4, robots=False))
        rude = await crawl.join("b", Policy(0.0, robots=False))
        await rude.push([url(n) for n in range(4)])
        starts: list[float] = []
        while len(starts) < 4:
            for lease in await rude.lease(4, time.time()):
                starts.append(time.time())
                rude.report_start(lease.record.host, starts[-1])
                await rude.ack(lease, "200", [], time.time())
            await asyncio.sleep(0.01)
        await rude.close()
        await gentle.close()
        gaps = [later - sooner for sooner, later in pairwise(starts)]
        assert min(gaps) >= 0.35, gaps

    asyncio.run(story())
