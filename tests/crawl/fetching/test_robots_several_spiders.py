"""robots.txt in a crawl of several spiders (C2, C3) is fetched once; each spider obeys it for its own user agent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from lycosa import Crawl, Request, Spider
from lycosa.core.retry import RetryPolicy
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, Lease, UrlRecord
from lycosa.frontier.core.states import ROBOTS_TTL_S, Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from tests.servers.misbehaving import Server, running

ROBOTS = "User-agent: alpha\nDisallow: /good\nCrawl-delay: 0.2\n\nUser-agent: *\nDisallow: /index\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with running(robots=ROBOTS) as server:
        yield server


class Alpha(Spider):
    name = "alpha"
    custom_settings = {"user_agent": "Alpha/1.0"}

    async def start(self) -> AsyncIterator[Request]:
        for path in ("/good", "/index"):
            yield Request(self.server.url(path))

    def parse(self, response: Any) -> Any:
        return {"spider": self.name, "path": response.url.rpartition("/")[2]}


class Beta(Alpha):
    name = "beta"
    custom_settings = {"user_agent": "Beta/1.0"}


class NoRobots(Alpha):
    name = "no-robots"
    custom_settings = {"robots": False, "user_agent": "NoRobots/1.0"}


def crawled(server: Server, *spiders: type[Spider]) -> tuple[set[tuple[str, str]], Any]:
    async def scenario() -> Any:
        async with Crawl(list(spiders), spider_args={"server": server}, slow_callback_after=0) as crawl:
            await crawl.run()
            return {(item["spider"], item["path"]) for item in crawl.items}, crawl.summary

    return asyncio.run(scenario())


@pytest.mark.parametrize("order", [(Alpha, Beta), (Beta, Alpha)])
def test_each_spider_obeys_its_own_rules_and_the_file_is_fetched_once(server, order):
    found, summary = crawled(server, *order)
    assert found == {("alpha", "index"), ("beta", "good")}
    assert server.paths().count("/robots.txt") == 1
    assert summary.stats["robotstxt/forbidden"] == 2
    at = [hit.at for hit in server.hits]
    assert at[-1] - at[-2] > 0.15, "the larger Crawl-delay applies to the shared host"


def test_a_spider_obeys_robots_txt_even_if_another_one_does_not(server):
    found, _ = crawled(server, NoRobots, Beta)
    assert found == {("no-robots", "good"), ("no-robots", "index"), ("beta", "good")}


def test_all_gates_receive_a_robots_txt_that_one_gate_refetches():
    async def scenario(server: Server) -> None:
        frontier = memory_frontier(Policy())
        fetcher = CurlFetcher(FetchSettings())
        one, other = (RobotsGate(frontier, fetcher, name, RetryPolicy(), lambda: 0.5, lambda: 0.0) for name in "ab")
        one.peers, other.peers = [other], [one]
        host = server.url("").rstrip("/")
        record = UrlRecord(RECORD_VERSION, 0, f"{host}/robots.txt", host)

        async def rules_after(robots: str) -> list[bool]:
            server.robots = robots
            assert await one.fetch(Lease(1, record, 0.0), 0.0) is None
            return [(await gate.rules(host)).allowed(f"{host}/x") for gate in (one, other)]

        assert await rules_after("User-agent: *\nDisallow: /x\n") == [False, False]
        assert await rules_after("User-agent: a\nDisallow: /x\n") == [False, True]
        assert await rules_after("User-agent: b\nDisallow: /x\n") == [True, False]
        await fetcher.close()
        await frontier.close()

    with running() as server:
        asyncio.run(scenario(server))


def test_a_robots_txt_refetched_by_another_worker_is_read_in_time():
    """Both workers share a frontier, and only one of them leases the look-up."""
    host, now = "http://a.example:80", [1e9]

    async def scenario() -> None:
        frontier: Any = memory_frontier(Policy())
        none: Any = None
        one, other = (RobotsGate(frontier, none, "a", RetryPolicy(), lambda: 0.5, lambda: now[0]) for _ in range(2))
        await one.store(host, HostFacts(b"", 200, now[0]), now[0])
        assert (await other.rules(host)).allowed(f"{host}/x")
        now[0] += ROBOTS_TTL_S + 1.0
        await one.store(host, HostFacts(b"User-agent: *\nDisallow: /x\n", 200, now[0]), now[0])
        assert not (await other.rules(host)).allowed(f"{host}/x")
        await frontier.close()

    asyncio.run(scenario())
