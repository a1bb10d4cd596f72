"""`await self.fetch(request)` is treated like the request of a page: middlewares, robots.txt, retries, redirects and
crawl delays apply, as the server sees. It works in callbacks, errbacks and pipelines, without deadlocks (C1, C2, C5,
C8).
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from lycosa import CloseSpider, FetchError, IgnoreRequest, Request, Response, Spider
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.pace import assert_paced
from tests.servers.misbehaving import Server, running, serving

TIMEOUT_S = 20.0


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Fetching(Spider):
    """Awaits `act` in its callback."""

    name = "fetching"
    act: Callable[[Spider, Response], Awaitable[Any]]

    async def parse(self, response):
        return await self.act(self, response)


async def run(server: Server, act: Any, path: str = "/good", **settings: Any) -> CrawlResult:
    async with asyncio.timeout(TIMEOUT_S):
        return await run_crawl(server, Fetching(start_urls=[server.url(path)], act=act), **settings)  # type: ignore[arg-type]


def crawled(server: Server, act: Any, path: str = "/good", **settings: Any) -> CrawlResult:
    return asyncio.run(run(server, act, path, **settings))


def gaps(server: Server) -> list[float]:
    return [after.at - before.at for before, after in itertools.pairwise(server.hits)]


def test_an_inline_fetch_is_retried_and_redirected(server):
    async def act(spider, response):
        found = [await spider.fetch(response.urljoin(path)) for path in ("/flaky/1", "/redirect-good", "/503", "/404")]
        return {"found": [(each.url.removeprefix(server.url("")), each.status) for each in found]}

    result = crawled(server, act)
    expected = [("/flaky/1", 200), ("/good", 200), ("/503", 503), ("/404", 404)]
    assert result.items == [{"found": expected}]
    assert result.hits == {"/good": 2, "/flaky/1": 2, "/redirect-good": 1, "/503": 2, "/404": 1}
    assert list(result.rows) == ["/good"], "the frontier remembers no inline fetch"


def test_a_final_failure_is_raised_in_the_callback(server):
    async def act(spider, response):
        raised = []
        for path in ("/short", "/endless", "/redirect-chain/0"):
            try:
                found = await spider.fetch(response.urljoin(path))
                raised.append(found.status)
            except FetchError as error:
                raised.append(str(error))
        return {"raised": raised}

    result = crawled(server, act, max_body=1000, max_redirects=3)
    assert result.items == [{"raised": ["connection lost within the body", "body over 1000 bytes", 302]}]
    assert (result.hits["/short"], result.hits["/redirect-chain/3"]) == (2, 1)


def test_an_uncaught_failure_makes_the_page_dead(server):
    async def act(spider, response):
        await spider.fetch(response.urljoin("/short"))

    assert crawled(server, act).of("/good") == ("dead", "connection lost within the body")


def test_inline_fetches_obey_the_robots_txt_of_each_host():
    async def act(spider, response):
        outcomes = []
        for base in (response.url, spider.other):
            for path in ("/index", "/private"):
                try:
                    outcomes.append((await spider.fetch(base.replace("/good", path))).status)
                except IgnoreRequest as ignored:
                    outcomes.append(str(ignored))
        return {"outcomes": outcomes}

    async def both() -> None:
        rules = "User-agent: *\nDisallow: /private"
        async with serving(robots=rules) as server, serving(host="127.0.0.2", robots=rules) as other:
            spider = Fetching(start_urls=[server.url("/good")], act=act, other=other.url("/good"))  # type: ignore[arg-type]
            async with asyncio.timeout(TIMEOUT_S):
                result = await run_crawl(server, spider, robots=True)
            assert result.items == [{"outcomes": [200, "robots", 200, "robots"]}]
            assert other.paths() == ["/robots.txt", "/index"]
            assert server.paths() == ["/robots.txt", "/good", "/index"]

    asyncio.run(both())


def test_an_uncaught_ignore_request_makes_the_page_dead_instead_of_losing_its_items():
    async def act(spider, response):
        await spider.fetch(response.urljoin("/private"))
        return {"never": "written"}

    async def one() -> None:
        async with serving(robots="User-agent: *\nDisallow: /private") as server:
            spider = Fetching(start_urls=[server.url("/good")], act=act)  # type: ignore[arg-type]
            result = await run_crawl(server, spider, robots=True)
            assert (result.items, result.of("/good")) == ([], ("dead", "IgnoreRequest of an inline fetch: robots"))

    asyncio.run(one())


def test_inline_fetches_keep_the_crawl_delay_of_each_host():
    async def act(spider, response):
        urls = [
            base.replace("/good", f"/good?{number}") for number in range(3) for base in (response.url, spider.other)
        ]
        found = await asyncio.gather(*map(spider.fetch, urls))
        return {"found": len(found)}

    async def both() -> None:
        async with serving() as server, serving(host="127.0.0.2") as other:
            spider = Fetching(start_urls=[server.url("/good")], act=act, other=other.url("/good"))  # type: ignore[arg-type]
            async with asyncio.timeout(TIMEOUT_S):
                result = await run_crawl(server, spider, delay=0.2)
            assert result.items == [{"found": 6}]
            assert (len(server.hits), len(other.hits)) == (4, 3)
            assert_paced(gaps(server), 0.2)
            assert_paced(gaps(other), 0.2)
            assert other.hits[-1].at < server.hits[-1].at, "one host does not wait for the other"

    asyncio.run(both())


def test_inline_fetches_share_the_crawl_delay_with_pages(server):
    class Paced(Fetching):
        async def start(self):
            for number in range(3):
                yield Request(server.url(f"/good?{number}"))

    async def act(spider, response):
        found = await spider.fetch(response.url.replace("/good", "/index"))
        return {"status": found.status}

    async def run() -> CrawlResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await run_crawl(server, Paced(act=act), delay=0.1)  # type: ignore[arg-type]

    result = asyncio.run(run())
    assert (len(result.items), len(server.hits)) == (3, 6)
    assert_paced(gaps(server), 0.1)


@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency_per_host": 1}, {"concurrency": 4}])
def test_fifty_concurrent_fetches_do_not_deadlock(server, settings):
    class Wide(Fetching):
        async def start(self):
            for number in range(4):
                yield Request(server.url(f"/good?{number}"))

    async def act(spider, response):
        inner = [response.url.replace("good", f"slow/{number}") + "&ms=2" for number in range(50)]
        found = await asyncio.gather(*map(spider.fetch, inner))
        return {"found": sum(each.status == 200 for each in found)}

    async def run() -> CrawlResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await run_crawl(server, Wide(act=act), **{"concurrency_per_host": 2, **settings})  # type: ignore[arg-type]

    result = asyncio.run(run())
    assert result.items == [{"found": 50}] * 4
    assert server.busiest <= {"concurrency_per_host": 2, **settings}["concurrency_per_host"]


def test_an_errback_and_a_pipeline_may_fetch_inline(server):
    class Pipeline:
        @classmethod
        def from_crawler(cls, crawler):
            pipeline = cls()
            pipeline.crawler = crawler
            return pipeline

        async def process_item(self, item, spider):
            first = await self.crawler.download(Request(server.url("/index?pipeline")))
            second = await spider.fetch(server.url("/index?spider"))
            return {**item, "statuses": [first.status, second.status]}

    class Failing(Fetching):
        async def start(self):
            yield Request(server.url("/404"), errback=self.on_error)

        async def on_error(self, failure):
            yield {"errback": (await self.fetch(server.url("/index?errback"))).status}

    async def run() -> CrawlResult:
        async with asyncio.timeout(TIMEOUT_S):
            return await run_crawl(server, Failing(), pipelines=[Pipeline], concurrency=1, concurrency_per_host=1)

    result = asyncio.run(run())
    assert result.items == [{"errback": 200, "statuses": [200, 200]}]


def test_middlewares_process_inline_fetches_and_may_answer_them(server):
    class Answers:
        def process_request(self, request):
            if "made" in request.url:
                return Response(request.url, 207)
            if "item" in request.url:
                return {"an": "item"}
            if "close" in request.url:
                raise CloseSpider("enough")
            if "replaced" in request.url:
                return Request(server.url("/index"))
            return None

    async def act(spider, response):
        statuses = [(await spider.fetch(server.url(path))).status for path in ("/made", "/replaced")]
        with pytest.raises(Exception, match="answered an inline request with an item"):
            await spider.fetch(server.url("/item"))
        return {"statuses": statuses}

    result = crawled(server, act, downloader_middlewares={Answers: 5})
    assert (result.items, result.hits) == ([{"statuses": [207, 200]}], {"/good": 1, "/index": 1})

    async def close(spider, response):
        await spider.fetch(server.url("/close"))

    result = crawled(server, close, downloader_middlewares={Answers: 5})
    assert (result.summary.closing, result.of("/good")) == ("enough", ("done", "200"))


def test_inline_requests_may_have_their_own_delay(server):
    async def act(spider, response):
        requests = [Request(server.url(f"/good?{number}"), delay=0.3) for number in range(3)]
        return {"found": len(await asyncio.gather(*map(spider.fetch, requests)))}

    class Waits:
        async def process_request(self, request):
            await asyncio.sleep(0.05)

    result = crawled(server, act, downloader_middlewares={Waits: 5})
    assert result.items == [{"found": 3}]
    assert_paced(gaps(server)[1:], 0.3)


def test_values_that_are_no_request_are_refused(server):
    async def act(spider, response):
        await spider.fetch(5)

    assert crawled(server, act).of("/good") == ("dead", "fetch takes a URL or a Request: int is neither")
