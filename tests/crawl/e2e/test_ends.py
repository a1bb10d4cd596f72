"""Crawls that end early and resume in the next run (C7); blocking calls; callbacks in threads."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from lycosa import CloseSpider, Crawl, Request, Spider, signals
from lycosa.core.errors import BadSpider
from tests.cli.command import assert_exactly_once, items, lycosa
from tests.servers.misbehaving import Server, running

PAGES = 30
FAST = {"robots": False, "retries": 0, "concurrency": 2, "slow_callback_after": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Pages(Spider):
    name = "pages"
    closed_by = ""
    is_over = False

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.site)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")

    def closed(self, reason: str) -> None:
        type(self).closed_by = reason


def crawled(server: Server, home: Path, spider: type[Spider] = Pages, **settings: Any) -> Any:
    """Crawl the tree, or resume the crawl. Return the summary."""

    async def scenario() -> Any:
        site = server.url(f"/tree/{PAGES}/0")
        options = {"output": str(home / "items.jsonl"), "state": str(home / "state"), **FAST, **settings}
        async with Crawl(spider, spider_args={"site": site}, **options) as crawl:
            return await crawl.run()

    return asyncio.run(scenario())


def assert_resumes(server: Server, home: Path, reason: str, spider: type[Pages] = Pages, **settings: Any) -> Any:
    """Crawl until it closes for this reason, then to the end. Assert that no item is lost or repeated."""
    own: Any = type(spider.__name__, (spider,), {})
    first = crawled(server, home, own, **settings)
    assert (first.stats["finish_reason"], own.closed_by, first.finished) == (reason, reason, False)
    own.is_over = True
    assert crawled(server, home, own).finished
    found = [item["url"] for item in items(home / "items.jsonl")]
    assert_exactly_once(found, {server.url(f"/tree/{PAGES}/{n}") for n in range(PAGES)})
    return first


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("closespider_itemcount", {"close_after_items": 5}),
        ("closespider_pagecount", {"max_pages": 5}),
        ("closespider_timeout", {"close_after": 1.0, "delay": 0.1}),
        ("memusage_exceeded", {"max_memory": 1024**2}),
    ],
)
def test_a_crawl_closed_by_a_setting_resumes(server, tmp_path, reason, settings):
    first = assert_resumes(server, tmp_path, reason, **settings)
    assert first.snapshot.pages < PAGES


def test_a_crawl_closes_after_too_many_errors(server, tmp_path):
    class Fails(Pages):
        def parse(self, response: Any) -> Any:
            yield from super().parse(response)
            if response.depth == 1 and not self.is_over:
                raise ValueError(response.url)

    first = crawled(server, tmp_path, Fails, close_after_errors=2)
    assert (first.stats["finish_reason"], first.snapshot.dead >= 2) == ("closespider_errorcount", True)


class OneItem(Spider):
    """Yields an item for its first page only."""

    name = "one-item"

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.site)

    def parse(self, response: Any) -> Any:
        if response.depth == 0:
            yield {"url": response.url}
        yield from response.follow_all(css="a")


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("closespider_pagecount_no_item", {"close_after_pages_without_item": 4}),
        ("closespider_timeout_no_item", {"close_after_no_items_for": 2.0, "delay": 0.2}),
    ],
)
def test_a_crawl_without_new_items_closes(server, tmp_path, reason, settings):
    first = crawled(server, tmp_path, OneItem, **settings)
    least = 4 if "pagecount" in reason else 0  # on a busy machine the time may be over before any page
    assert (first.stats["finish_reason"], least <= first.snapshot.pages < PAGES) == (reason, True)
    assert crawled(server, tmp_path, OneItem).snapshot.pages == PAGES - first.snapshot.pages


class InCallback(Pages):
    def parse(self, response: Any) -> Any:
        yield from super().parse(response)
        if response.depth == 1 and not self.is_over:
            raise CloseSpider("enough")


class InErrback(Pages):
    def parse(self, response: Any) -> Any:
        yield from super().parse(response)
        yield response.follow("/reset", errback="failed")

    def failed(self, failure: Any) -> Any:
        raise CloseSpider("enough")


class InSignal(Pages):
    @classmethod
    def from_crawler(cls, crawler: Any, **arguments: Any) -> Any:
        spider = super().from_crawler(crawler, **arguments)
        crawler.signals.connect(spider.on_response, signals.response_received)
        return spider

    def on_response(self, response: Any) -> None:
        if response.depth == 1 and not self.is_over:
            raise CloseSpider("enough")


class FromOutside(Pages):
    def parse(self, response: Any) -> Any:
        yield from super().parse(response)
        if response.depth == 1 and not self.is_over:
            self.crawler.stop("enough")


@pytest.mark.parametrize("spider", [InCallback, InErrback, InSignal, FromOutside])
def test_close_spider_works_in_callbacks_errbacks_signals_and_from_outside(server, tmp_path, spider):
    if spider is InErrback:
        first = crawled(server, tmp_path, spider, concurrency=1)
        assert (first.closing, first.finished) == ("enough", False)
    else:
        assert_resumes(server, tmp_path, "enough", spider)


def test_close_spider_in_a_pipeline_drops_its_item(server, tmp_path):
    class Closes:
        def process_item(self, item: Any) -> Any:
            raise CloseSpider("full")

    first = crawled(server, tmp_path, pipelines={Closes: 1})
    assert (first.closing, items(tmp_path / "items.jsonl")) == ("full", [])


def test_the_command_prints_the_reason_and_the_next_run_resumes(server, tmp_path):
    (tmp_path / "spider.py").write_text(
        dedent(f"""
        import lycosa
        class Pages(lycosa.Spider):
            name = "pages"
            start_urls = ["{server.url(f"/tree/{PAGES}/0")}"]
            def parse(self, response):
                yield {{"url": response.url}}
                yield from response.follow_all(css="a")
        """)
    )
    line = ["runspider", "spider.py", "-o", "items.jsonl", "--no-robots", "--concurrency", "1"]
    first = lycosa(*line, "-s", "CLOSESPIDER_ITEMCOUNT=3", cwd=tmp_path)
    assert (first.returncode, first.stderr.startswith("closed (closespider_itemcount): ")) == (0, True), first.stderr
    second = lycosa(*line, cwd=tmp_path)
    assert (second.returncode, second.stderr.startswith("finished: ")) == (0, True), second.stderr
    assert len(items(tmp_path / "items.jsonl")) == PAGES


# ------------------------------------------------------------------------------------------------- blocking


def test_a_blocking_call_is_named_by_the_command(server, tmp_path):
    (tmp_path / "spider.py").write_text(
        dedent(f"""
        import time
        import lycosa
        class Slow(lycosa.Spider):
            name = "slow"
            start_urls = ["{server.url("/good")}"]
            def parse(self, response):
                time.sleep(2.0)
        """)
    )
    done = lycosa("runspider", "spider.py", "--no-robots", "-s", "slow_callback_after=0.2", cwd=tmp_path)
    assert re.search(r"Slow\.parse has blocked the crawl for \d", done.stderr), done.stderr
    assert "at spider.py:8 (time.sleep): use await asyncio.sleep(...)" in done.stderr


class InThreads(Pages):
    """Each callback waits for another one, so two must run at a time, besides the event loop."""

    name = "threads"
    custom_settings = {"callback_mode": "thread", "callback_threads": 4}
    barrier = threading.Barrier(2, timeout=30)

    async def start(self) -> AsyncIterator[Request]:
        for number in range(4):
            yield Request(f"{self.site}?{number}", self.parse_in_pairs)

    def parse_in_pairs(self, response: Any) -> Any:
        self.barrier.wait()
        yield {"thread": threading.current_thread().name}
        yield response.follow("/good?one", self.fetching, dont_filter=True, cb_kwargs={"path": "/echo"})

    def fetching(self, response: Any, path: str) -> Any:
        found = self.fetch_sync(response.urljoin(path))
        return {"status": found.status}


def test_blocking_callbacks_run_concurrently_in_threads(server, tmp_path):
    summary = crawled(server, tmp_path, InThreads, concurrency=8)
    found = items(tmp_path / "items.jsonl")
    assert summary.finished, summary
    assert all(item["thread"].startswith("lycosa-callback-") for item in found if "thread" in item)
    assert sum("thread" in item for item in found) == 4
    assert [item["status"] for item in found if "status" in item] == [200] * 4


def test_an_exception_in_a_thread_makes_only_its_page_dead(server, tmp_path):
    class Fails(Pages):
        custom_settings = {"callback_mode": "thread"}

        def parse(self, response: Any) -> Any:
            yield {"url": response.url}
            yield from response.follow_all(css="a")
            if response.url.endswith("/4"):
                raise ValueError("four")

    summary = crawled(server, tmp_path, Fails)
    assert [reason for _, reason in summary.dead] == ["ValueError in parse: four"]
    assert summary.snapshot.items == PAGES - 4, "the page and its three children are missing"


def test_a_coroutine_stays_on_the_loop_with_threads(server, tmp_path):
    class Both(Pages):
        custom_settings = {"callback_mode": "thread"}

        async def parse(self, response: Any) -> Any:
            await asyncio.sleep(0)
            yield {"thread": threading.current_thread() is threading.main_thread()}
            yield response.follow("/good", self.plain)

        def plain(self, response: Any) -> Any:
            return {"thread": threading.current_thread() is threading.main_thread()}

    crawled(server, tmp_path, Both)
    assert sorted(item["thread"] for item in items(tmp_path / "items.jsonl")) == [False, True]


def test_fetch_sync_works_in_threads_only(server, tmp_path):
    class Wrong(Pages):
        def parse(self, response: Any) -> Any:
            return {"status": self.fetch_sync(response.urljoin("/good")).status}

    ((_, reason),) = crawled(server, tmp_path, Wrong).dead
    assert reason.startswith("this works only in callbacks that run in a thread")


def test_a_callback_that_hangs_in_a_thread_does_not_block_the_end(server, tmp_path, monkeypatch):
    monkeypatch.setattr("lycosa.crawl.workers.threads.CLOSE_GRACE_S", 0.2)
    monkeypatch.setattr("lycosa.crawl.engine.engine.STOP_GRACE_S", 0.2)
    release = threading.Event()

    class Hangs(Pages):
        custom_settings = {"callback_mode": "thread"}

        def parse(self, response: Any) -> Any:
            release.wait(30)

    started_at = time.monotonic()
    summary = crawled(server, tmp_path, Hangs, close_after=0.3)
    release.set()
    assert (summary.closing, time.monotonic() - started_at < 20) == ("closespider_timeout", True)
    assert not summary.finished


def test_an_error_in_the_closed_method_of_a_spider_is_raised_after_all_items_are_written(server, tmp_path):
    class Fails(Pages):
        def closed(self, reason: str) -> None:
            raise ValueError("closed")

    with pytest.raises(BadSpider, match="closed failed"):
        crawled(server, tmp_path, Fails)
    assert len(items(tmp_path / "items.jsonl")) == PAGES
