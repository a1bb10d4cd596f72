"""`await self.fetch(request)` behaves like a page: middlewares, robots.txt, retries, redirects and crawl delays, as the
server sees them; from callbacks, errbacks and pipelines, without deadlocks (C1, C2, C5, C8; issue 4)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from lycosa import CloseSpider, FetchError, IgnoreRequest, Request, Response, Spider
from tests.crawl.playing import Played, play
from tests.pace import assert_paced
from tests.servers.misbehaving import Server, running, serving

TIME_S = 20.0


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Fetching(Spider):
    """Calls `does` in its callback."""

    name = "fetching"
    does: Callable[[Spider, Response], Awaitable[Any]]

    async def parse(self, response):
        return await self.does(self, response)


async def played(server: Server, does: Any, path: str = "/good", **settings: Any) -> Played:
    async with asyncio.timeout(TIME_S):
        return await play(server, Fetching(start_urls=[server.url(path)], does=does), **settings)  # type: ignore[arg-type]


def crawled(server: Server, does: Any, path: str = "/good", **settings: Any) -> Played:
    return asyncio.run(played(server, does, path, **settings))


def gaps(server: Server) -> list[float]:
    return [after.at - before.at for before, after in itertools.pairwise(server.hits)]


def test_an_inline_fetch_is_retried_and_redirected(server):
    async def does(spider, response):
        found = [await spider.fetch(response.urljoin(path)) for path in ("/flaky/1", "/redirect-good", "/503", "/404")]
        return {"found": [(each.url.removeprefix(server.url("")), each.status) for each in found]}

    done = crawled(server, does)
    expected = [("/flaky/1", 200), ("/good", 200), ("/503", 503), ("/404", 404)]
    assert done.items == [{"found": expected}]
    assert done.hits == {"/good": 2, "/flaky/1": 2, "/redirect-good": 1, "/503": 2, "/404": 1}
    assert list(done.rows) == ["/good"], "the frontier remembers none of them"


def test_a_final_failure_is_raised(server):
    async def does(spider, response):
        raised = []
        for path in ("/short", "/endless", "/redirect-chain/0"):
            try:
                found = await spider.fetch(response.urljoin(path))
                raised.append(found.status)
            except FetchError as error:
                raised.append(str(error))
        return {"raised": raised}

    done = crawled(server, does, max_body=1000, max_redirects=3)
    assert done.items == [{"raised": ["connection lost within the body", "body over 1000 bytes", 302]}]
    assert (done.hits["/short"], done.hits["/redirect-chain/3"]) == (2, 1)


def test_an_uncaught_failure_kills_the_page(server):
    async def does(spider, response):
        await spider.fetch(response.urljoin("/short"))

    assert crawled(server, does).of("/good") == ("dead", "connection lost within the body")


def test_it_obeys_the_robots_txt_of_each_host():
    async def does(spider, response):
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
            spider = Fetching(start_urls=[server.url("/good")], does=does, other=other.url("/good"))  # type: ignore[arg-type]
            async with asyncio.timeout(TIME_S):
                done = await play(server, spider, robots=True)
            assert done.items == [{"outcomes": [200, "robots", 200, "robots"]}]
            assert other.paths() == ["/robots.txt", "/index"]
            assert server.paths() == ["/robots.txt", "/good", "/index"]

    asyncio.run(both())


def test_an_uncaught_ignored_fetch_kills_the_page_instead_of_losing_its_items():
    async def does(spider, response):
        await spider.fetch(response.urljoin("/private"))
        return {"never": "written"}

    async def one() -> None:
        async with serving(robots="User-agent: *\nDisallow: /private") as server:
            spider = Fetching(start_urls=[server.url("/good")], does=does)  # type: ignore[arg-type]
            done = await play(server, spider, robots=True)
            assert (done.items, done.of("/good")) == ([], ("dead", "IgnoreRequest of an inline fetch: robots"))

    asyncio.run(one())


def test_it_keeps_the_crawl_delay_of_each_host():
    async def does(spider, response):
        urls = [
            base.replace("/good", f"/good?{number}") for number in range(3) for base in (response.url, spider.other)
        ]
        found = await asyncio.gather(*map(spider.fetch, urls))
        return {"found": len(found)}

    async def both() -> None:
        async with serving() as server, serving(host="127.0.0.2") as other:
            spider = Fetching(start_urls=[server.url("/good")], does=does, other=other.url("/good"))  # type: ignore[arg-type]
            async with asyncio.timeout(TIME_S):
                done = await play(server, spider, delay=0.2)
            assert done.items == [{"found": 6}]
            assert (len(server.hits), len(other.hits)) == (4, 3)
            assert min(gaps(server) + gaps(other)) >= 0.15
            assert other.hits[-1].at < server.hits[-1].at, "one host does not wait for the other"

    asyncio.run(both())


def test_it_shares_the_crawl_delay_with_the_pages_of_the_crawl(server):
    class Paced(Fetching):
        async def start(self):
            for number in range(3):
                yield Request(server.url(f"/good?{number}"))

    async def does(spider, response):
        found = await spider.fetch(response.url.replace("/good", "/index"))
        return {"status": found.status}

    async def run() -> Played:
        async with asyncio.timeout(TIME_S):
            return await play(server, Paced(does=does), delay=0.1)  # type: ignore[arg-type]

    done = asyncio.run(run())
    assert (len(done.items), len(server.hits)) == (3, 6)
    assert_paced(gaps(server), 0.1)


@pytest.mark.parametrize("settings", [{"concurrency": 1}, {"concurrency_per_host": 1}, {"concurrency": 4}])
def test_fifty_concurrent_fetches_do_not_deadlock(server, settings):
    class Wide(Fetching):
        async def start(self):
            for number in range(4):
                yield Request(server.url(f"/good?{number}"))

    async def does(spider, response):
        inner = [response.url.replace("good", f"slow/{number}") + "&ms=2" for number in range(50)]
        found = await asyncio.gather(*map(spider.fetch, inner))
        return {"found": sum(each.status == 200 for each in found)}

    async def run() -> Played:
        async with asyncio.timeout(TIME_S):
            return await play(server, Wide(does=does), **{"concurrency_per_host": 2, **settings})  # type: ignore[arg-type]

    done = asyncio.run(run())
    assert done.items == [{"found": 50}] * 4
    assert server.busiest <= {"concurrency_per_host": 2, **settings}["concurrency_per_host"]


def test_from_an_errback_a_pipeline_and_an_inner_page(server):
    class Pipeline:
        @classmethod
        def from_crawler(cls, crawler):
            made = cls()
            made.crawler = crawler
            return made

        async def process_item(self, item, spider):
            first = await self.crawler.download(Request(server.url("/index?pipeline")))
            second = await spider.fetch(server.url("/index?spider"))
            return {**item, "statuses": [first.status, second.status]}

    class Failing(Fetching):
        async def start(self):
            yield Request(server.url("/404"), errback=self.on_error)

        async def on_error(self, failure):
            yield {"instead": (await self.fetch(server.url("/index?errback"))).status}

    async def run() -> Played:
        async with asyncio.timeout(TIME_S):
            return await play(server, Failing(), pipelines=[Pipeline], concurrency=1, concurrency_per_host=1)

    done = asyncio.run(run())
    assert done.items == [{"instead": 200, "statuses": [200, 200]}]


def test_middlewares_process_it_and_may_answer_it(server):
    class Answers:
        def process_request(self, request):
            if "made" in request.url:
                return Response(request.url, 207)
            if "item" in request.url:
                return {"an": "item"}
            if "close" in request.url:
                raise CloseSpider("enough")
            if "instead" in request.url:
                return Request(server.url("/index"))
            return None

    async def does(spider, response):
        statuses = [(await spider.fetch(server.url(path))).status for path in ("/made", "/instead")]
        with pytest.raises(Exception, match="answered an inline request with an item"):
            await spider.fetch(server.url("/item"))
        return {"statuses": statuses}

    done = crawled(server, does, downloader_middlewares={Answers: 5})
    assert (done.items, done.hits) == ([{"statuses": [207, 200]}], {"/good": 1, "/index": 1})

    async def closes(spider, response):
        await spider.fetch(server.url("/close"))

    done = crawled(server, closes, downloader_middlewares={Answers: 5})
    assert (done.summary.closing, done.of("/good")) == ("enough", ("done", "200"))


def test_a_delay_of_its_own(server):
    async def does(spider, response):
        requests = [Request(server.url(f"/good?{number}"), delay=0.3) for number in range(3)]
        return {"found": len(await asyncio.gather(*map(spider.fetch, requests)))}

    class Waits:
        async def process_request(self, request):
            await asyncio.sleep(0.05)

    done = crawled(server, does, downloader_middlewares={Waits: 5})
    assert done.items == [{"found": 3}]
    assert_paced(gaps(server)[1:], 0.3)


def test_wrong_values_are_named(server):
    async def does(spider, response):
        await spider.fetch(5)

    assert crawled(server, does).of("/good") == ("dead", "fetch takes a URL or a Request: int is neither")
