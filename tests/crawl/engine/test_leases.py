"""A lease is renewed until its visit ends: no work is lost or repeated (C6, F5)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lycosa.crawl.engine.engine import LEASE_EXPIRED, EngineLimits
from lycosa.crawl.engine.leases import LeaseRenewer
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from tests.crawl.engine_setup import build_engine
from tests.servers.tree import grow

LEASE_S = 1.0
SLOW_S = 3.0
POLICY = Policy(robots=False, lease_s=LEASE_S)


class Slow(Spider):
    """Its callback takes longer than a lease lasts."""

    name = "slow"

    def __init__(self, urls: list[str], *, blocks: bool) -> None:
        super().__init__()
        self.start_urls = urls
        self.blocks = blocks
        self.calls: list[str] = []

    async def parse(self, response: Any) -> Any:
        self.calls.append(response.url)
        if self.blocks and response.url.endswith("/1"):
            return {"url": response.url}  # the lease of this page expires while the other one blocks
        if self.blocks:
            time.sleep(SLOW_S)  # noqa: ASYNC251  the mistake under test
        else:
            await asyncio.sleep(SLOW_S)
        return {"url": response.url}


@pytest.mark.parametrize("blocks", [False, True])
def test_a_callback_that_takes_three_times_its_lease_runs_once(blocks: bool) -> None:
    async def scenario(urls: list[str]) -> None:
        async with AsyncExitStack() as stack:
            spider = Slow(urls, blocks=blocks)
            crawl = await build_engine(stack, spider, POLICY)
            await crawl.engine.run(crawl.operations)
            stats = await crawl.frontier.stats()
            assert sorted(spider.calls) == sorted(item["url"] for item in crawl.sink.items) == urls
            assert (stats.reasons, crawl.stats.retries) == ({"200": len(urls)}, 0)

    with grow(3) as tree:
        asyncio.run(scenario([tree.url, tree.url[:-1] + "1"]))


def test_a_visit_over_the_time_limit_is_retried_and_then_dead() -> None:
    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Slow([url], blocks=False)
            crawl = await build_engine(stack, spider, POLICY, EngineLimits(lease_max_s=0.5))
            await crawl.engine.run(crawl.operations)
            stats = await crawl.frontier.stats()
            assert (stats.dead_reasons, crawl.stats.retries) == ({LEASE_EXPIRED: 1}, 4)
            assert 1 <= len(spider.calls) <= 5, "on a busy machine the time may be over before the callback is called"

    with grow(1) as tree:
        asyncio.run(scenario(tree.url))


def test_an_expired_lease_is_renewed_if_its_url_was_not_leased_again() -> None:
    async def scenario() -> None:
        frontier = memory_frontier(POLICY)
        host = "http://a.example:80"
        await frontier.push([UrlRecord(1, n, f"{host}/{n}", host) for n in (1, 2)])
        renewed, lost = await frontier.lease(2, 100.0)
        leases = LeaseRenewer(frontier, 3600.0)
        leases.add(renewed, 100.0)
        assert leases.next_renewal() == 100.5
        await leases.renew(100.4)
        assert leases.next_renewal() == 100.5, "no renewal before half of the lease time"
        await leases.renew(107.0)  # the loop was blocked for seven seconds
        assert await frontier.expire(107.0) == 1, "only the lease that no task renews has expired"
        assert await frontier.lease(2, 107.4) != [], "the URL of the expired lease is leased again"
        assert leases.next_renewal() == 107.5
        assert await frontier.ack(renewed, "200", (), 107.6)
        leases.remove(renewed)
        leases.add(lost, 107.0)
        await leases.renew(109.0)
        assert leases.next_renewal() is None, "the lease is not ours any more"
        assert not await frontier.ack(lost, "200", (), 109.0)

    asyncio.run(scenario())
