"""Start requests are queued while the crawl runs (C1, C6): a `start` that waits, or never ends, delays nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import lycosa
from lycosa import CloseSpider, LycosaError, Request, Spider
from tests.servers.misbehaving import running
from tests.servers.tree import Tree, grow

TIME_S = 30.0


@pytest.fixture(scope="module")
def tree() -> Iterator[Tree]:
    with grow(30) as tree:
        yield tree


def url(tree: Tree, number: int) -> str:
    return f"{tree.url.removesuffix('/0')}/{number}"


def crawled(spider: Spider, **settings: Any) -> lycosa.Crawl:
    async def crawl() -> lycosa.Crawl:
        async with asyncio.timeout(TIME_S), lycosa.Crawl(spider, robots=False, **settings) as crawl:
            await crawl.run()
            return crawl

    return asyncio.run(crawl())


class Waiting(Spider):
    """Yields the next page when the previous one was parsed, so it needs a crawl that runs meanwhile."""

    name = "waiting"
    pages = 5
    ends = True
    urls: list[str]

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.read = asyncio.Event()

    async def start(self):
        for number in range(self.pages):
            yield Request(self.urls[number])
            await self.read.wait()
            self.read.clear()
        if not self.ends:
            await asyncio.Event().wait()

    def parse(self, response):
        self.read.set()
        yield {"url": response.url}
        if not self.ends and response.url == self.urls[self.pages - 1]:
            raise CloseSpider("enough")


def test_a_start_that_waits_for_its_own_pages_does_not_deadlock(tree):
    urls = [url(tree, number) for number in range(5)]
    crawl = crawled(Waiting(urls=urls))
    assert [item["url"] for item in crawl.items] == urls
    assert crawl.summary is not None
    assert (crawl.summary.finished, crawl.summary.stats["finish_reason"]) == (True, "finished")


def test_a_start_that_never_ends_is_cancelled_when_the_crawl_closes(tree):
    crawl = crawled(Waiting(urls=[url(tree, number) for number in range(5)], ends=False))
    assert crawl.summary is not None
    assert (len(crawl.items), crawl.summary.closing) == (5, "enough")


class Failing(Waiting):
    """Fails after its first page."""

    name = "failing"

    async def start(self):
        yield Request(self.urls[0])
        await self.read.wait()
        raise ZeroDivisionError("late")


def test_a_start_that_fails_later_ends_the_crawl_with_its_error(tree, tmp_path):
    urls = [url(tree, number) for number in range(5)]
    with pytest.raises(LycosaError, match=r"Failing.start failed .*ZeroDivisionError: late"):
        crawled(Failing(urls=urls), state=tmp_path / "state", output=tmp_path / "items.jsonl")
    crawl = crawled(type("Failing", (Waiting,), {"name": "failing"})(urls=urls), state=tmp_path / "state")
    assert Counter(item["url"] for item in crawl.items).keys() <= set(urls), "the next run resumes"
    assert crawl.summary is not None
    assert crawl.summary.snapshot.done == 5


class Many(Spider):
    """Yields more start requests than fit into one batch."""

    name = "many"
    first = ""

    async def start(self):
        for number in range(2500):
            yield Request(f"{self.first}?{number}")

    def parse(self, response):
        yield {"url": response.url}


def test_thousands_of_start_requests_are_crawled_once():
    with running() as server:
        crawl = crawled(Many(first=server.url("/good")))
        assert len({item["url"] for item in crawl.items}) == len(crawl.items) == len(server.hits) == 2500


def test_a_finished_crawl_has_nothing_to_do_when_start_yields_the_same_requests(tree, tmp_path):
    class One(Spider):
        name = "one"
        start_urls = (url(tree, 1),)

        def parse(self, response):
            return {"url": response.url}

    summaries = [crawled(One(), state=tmp_path / "state").summary for _ in range(2)]
    assert [each.nothing_to_do for each in summaries if each] == [False, True]
