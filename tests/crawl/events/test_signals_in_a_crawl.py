"""Crawls with every kind of event send every signal and set every stat (C7), so that no listed name is unused."""

from __future__ import annotations

import asyncio
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from lycosa import CloseSpider, Crawl, DontCloseSpider, DropItem, FilesPipeline, Request, Spider, StopDownload, signals
from lycosa.app.crawl.run import crawl
from lycosa.app.crawl.spec import crawl_spec
from lycosa.config import Settings
from lycosa.core.errors import StateError
from lycosa.crawl.engine import engine as engine_module
from lycosa.crawl.events.signals import SIGNALS
from lycosa.crawl.events.stats_collector import NAMES_MAX, STAT_NAMES
from tests.crawl.events.stat_names import unlisted_names
from tests.servers.misbehaving import Server, running

ROBOTS = "User-agent: *\nDisallow: /private\n"


@pytest.fixture
def server() -> Iterator[Server]:
    with running(robots=ROBOTS) as server:
        yield server


class RecordsSignals(Spider):
    """Records every signal with its arguments, in order."""

    name = "records-signals"
    signals_recorded = tuple(SIGNALS.values())

    @classmethod
    def from_crawler(cls, crawler: Any, **arguments: Any) -> Any:
        spider = super().from_crawler(crawler, **arguments)
        spider.recorded = []
        for signal in cls.signals_recorded:
            crawler.signals.connect(spider.record, signal)
        return spider

    def record(self, signal: Any, sender: Any, **arguments: Any) -> Any:
        self.recorded.append((signal.name, arguments))
        handler = getattr(self, f"on_{signal.name}", None)
        return handler(**arguments) if handler else None

    async def start(self) -> AsyncIterator[Request]:
        for url in self.urls:
            yield Request(url)

    def parse(self, response: Any) -> Any:
        return None


def crawled(spider: type[Spider], urls: Any, **settings: Any) -> tuple[Any, dict[str, Any]]:
    """Run a crawl. Return the spider and the stats."""
    spiders: list[Any] = []

    class Collected(spider):  # type: ignore[misc,valid-type]
        def set_crawler(self, crawler: Any) -> None:
            super().set_crawler(crawler)
            spiders.append(self)

    async def run() -> Any:
        options = {"retries": 1, "backoff_base": 0.01, "slow_callback_after": 0, "robots": False, **settings}
        async with asyncio.timeout(60), Crawl(Collected, spider_args={"urls": urls}, **options) as crawl:
            await crawl.run()
        return crawl.summary

    summary = asyncio.run(run())
    assert unlisted_names(summary.stats) == []
    return spiders[0], dict(summary.stats)


class Everything(RecordsSignals):
    """Causes every event of a crawl, except for early ends and the cache."""

    name = "everything"
    idle_count = 0

    async def parse(self, response: Any) -> Any:
        yield {"n": "good"}
        yield {"n": "drop"}
        yield {"n": "file", "file_urls": [response.urljoin("/image/1.png"), "ftp://a.example/1"]}
        for path in ("/good", "/good", "/private/x", "/404", "/fails?times=1", "/reset", "/coded/gzip", "/b" * 200):
            yield response.follow(path, self.leaf)
        yield response.follow("/index?fails", self.fails)
        yield response.follow("/index?item", self.bad_item)
        yield response.follow("/index?inline", self.inline)
        yield response.follow("/index?deep", self.deep)
        yield Request("http://other.example/", self.leaf)

    def leaf(self, response: Any) -> None:
        self.logger.warning("a leaf")

    def fails(self, response: Any) -> None:
        raise ValueError("on purpose")

    def bad_item(self, response: Any) -> Any:
        return {"n": "bad"}

    async def inline(self, response: Any) -> Any:
        found = await self.fetch(response.urljoin("/echo"))
        yield {"n": "inline", "status": found.status}

    def deep(self, response: Any) -> Any:
        yield response.follow("/index?deeper", self.deep)

    async def on_spider_idle(self, spider: Any) -> None:
        self.idle_count += 1
        if self.idle_count == 1:
            assert await self.crawler.crawl(Request(self.urls[0] + "?idle", self.leaf))
            assert not await self.crawler.crawl(Request(self.urls[0] + "?idle", self.leaf))


class DropsAndFails:
    """Drops one item and fails on another one."""

    def process_item(self, item: Any) -> Any:
        if item["n"] == "drop":
            raise DropItem("on purpose")
        if item["n"] == "bad":
            raise ValueError("a bad item")
        return item


def everything(server: Server, tmp_path: Path) -> tuple[Any, dict[str, Any]]:
    return crawled(
        Everything,
        [server.url("/index")],
        robots=True,
        depth=2,
        deny="*other.example*",
        max_url_length=200,
        memory_warning=1024**2,
        files_store=str(tmp_path / "files"),
        pipelines={DropsAndFails: 1, FilesPipeline: 2},
    )


def many_names(server: Server) -> dict[str, Any]:
    class ManyNames(RecordsSignals):
        name = "many-names"

        def parse(self, response: Any) -> None:
            for number in range(NAMES_MAX + 1):
                self.crawler.stats.inc_value(f"retry/reason_count/{number}")

    return crawled(ManyNames, [server.url("/index")])[1]


def out_of_memory(server: Server) -> dict[str, Any]:
    return crawled(RecordsSignals, [server.url("/index")], max_memory=1024**2)[1]


def no_robots_txt() -> dict[str, Any]:
    return crawled(RecordsSignals, ["http://127.0.0.1:1/"], robots=True, retries=0)[1]


def out_of_bounds(server: Server) -> dict[str, Any]:
    class LeavesDomain(RecordsSignals):
        name = "leaves-domain"
        allowed_domains = ("127.0.0.1",)

        def parse(self, response: Any) -> Any:
            yield Request("http://other.example/")
            yield Request("http://other.example/2")

    stats = crawled(LeavesDomain, [server.url("/index")])[1]
    assert (stats["offsite/filtered"], stats["offsite/domains"]) == (2, 1)
    return stats


def cache(tmp_path: Path) -> list[dict[str, Any]]:
    """A cache that misses, stores, hits, revalidates, invalidates, serves a stale response, and is damaged."""
    folder = str(tmp_path / "cache")
    options = {"http_cache": "rfc9111", "http_cache_dir": folder, "retries": 0}
    found = []
    with running() as server:
        paths = ["control=max-age=900", "control=max-age=0&etag=a", "control=max-age=900&age=900", "control=no-store"]
        urls = [server.url(f"/cached?{path}") for path in paths]
        found += [crawled(RecordsSignals, urls, **options)[1] for _ in range(2)]
    found.append(crawled(RecordsSignals, urls, **options)[1])
    found.append(crawled(RecordsSignals, urls, **options, http_cache_ignore_missing=True)[1])
    for file in (tmp_path / "cache").iterdir():
        file.write_bytes(b"damaged" * 1000)
    found.append(crawled(RecordsSignals, urls[:1], **options)[1])
    return found


def full_device(server: Server, tmp_path: Path) -> dict[str, Any]:
    """Write items to a full device."""
    collectors: list[Any] = []

    class Writes(RecordsSignals):
        name = "writes"

        def parse(self, response: Any) -> Any:
            collectors.append(self.crawler.stats)
            return {"n": "x" * 100_000}

    spec = crawl_spec(Settings(state=str(tmp_path / "state"), robots=False), Writes, {"urls": [server.url("/index")]})
    standard_output = os.dup(1)
    try:
        with Path("/dev/full").open("wb") as full:
            os.dup2(full.fileno(), 1)
        with pytest.raises(StateError):
            asyncio.run(crawl(spec))
    finally:
        os.dup2(standard_output, 1)
        os.close(standard_output)
    return dict(collectors[0].get_stats())


def test_every_signal_is_sent_with_its_arguments(server, tmp_path):
    spider, stats = everything(server, tmp_path)
    recorded = {name: set(arguments) for name, arguments in spider.recorded}
    assert sorted(set(SIGNALS) - set(recorded)) == [], "never sent"
    assert recorded == {name: set(signal.arguments) for name, signal in SIGNALS.items()}
    names = [name for name, _ in spider.recorded]
    assert names.index("spider_opened") == names.index("engine_started") + 1
    assert names[-1] == "engine_stopped"
    assert names.index("feed_exporter_closed") > names.index("spider_closed")
    assert spider.idle_count == 2
    counts = Counter(names)
    assert counts["request_reached_downloader"] == counts["request_left_downloader"]
    assert counts["request_reached_downloader"] == stats["downloader/request_count"]
    assert counts["response_received"] == stats["response_received_count"]
    assert counts["item_scraped"] == stats["item_scraped_count"] == 3
    assert counts["request_dropped"] == stats["dupefilter/filtered"] == 2
    assert counts["request_scheduled"] == stats["scheduler/enqueued"] + stats["dupefilter/filtered"]


def test_every_stat_is_set(server, tmp_path):
    found = [everything(server, tmp_path)[1], many_names(server), out_of_memory(server), no_robots_txt()]
    found += [out_of_bounds(server), full_device(server, tmp_path), *cache(tmp_path)]
    names = {name for stats in found for name in stats}
    never = [
        listed
        for listed in STAT_NAMES
        if not any(re.fullmatch(re.sub(r"<\w+>", ".+", re.escape(listed)), name) for name in names)
    ]
    assert never == []


def test_stats_have_the_expected_values(server, tmp_path):
    _, stats = everything(server, tmp_path)
    expected = {
        "item_dropped_count": 1,
        "item_error_count": 1,
        "robotstxt/request_count": 1,
        "robotstxt/response_status_count/200": 1,
        "robotstxt/forbidden": 1,
        "depth/request_ignored_count": 1,
        "urllength/request_ignored_count": 1,
        "offsite/filtered": 1,
        "httperror/response_ignored_status_count/404": 1,
        "retry/reason_count/503": 1,
        "retry/max_reached": 1,
        "httpcompression/response_count": 1,
        "file_count": 1,
        "memusage/warning_reached": 1,
        "feedexport/success_count/memory": 1,
        "finish_reason": "finished",
    }
    assert {name: stats.get(name, 0) for name in expected} == expected


# ------------------------------------------------------------------------------------------------- idle


def test_a_crawl_that_is_kept_alive_sends_spider_idle_again_and_fetches_pushed_requests(server, monkeypatch):
    monkeypatch.setattr(engine_module, "IDLE_AGAIN_S", 0.2)

    class Waits(RecordsSignals):
        name = "waits"
        signals_recorded = (signals.spider_idle, signals.response_received)
        tasks = 0

        async def on_spider_idle(self, spider: Any) -> None:
            count = sum(name == "spider_idle" for name, _ in self.recorded)
            if count == 2:  # pushed by a task outside the crawl, while the crawl waits
                self.push = asyncio.ensure_future(self.crawler.crawl(Request(self.urls[0] + "?later")))
            if count < 4:
                raise DontCloseSpider

    spider, stats = crawled(Waits, [server.url("/index")])
    assert [name for name, _ in spider.recorded] == [
        "response_received",
        "spider_idle",
        "spider_idle",
        "response_received",
        "spider_idle",
        "spider_idle",
    ]
    assert 0.4 <= stats["elapsed_time_seconds"] < 20


def test_a_push_wakes_a_crawl_that_is_kept_alive(server, monkeypatch):
    monkeypatch.setattr(engine_module, "IDLE_AGAIN_S", 30.0)

    class Woken(RecordsSignals):
        name = "woken"
        signals_recorded = (signals.spider_idle,)

        def on_spider_idle(self, spider: Any) -> None:
            if len(self.recorded) == 1:
                asyncio.get_running_loop().call_later(0.1, self.push)
                raise DontCloseSpider

        def push(self) -> None:
            self.task = asyncio.ensure_future(self.crawler.crawl(Request(self.urls[0] + "?later")))

    spider, stats = crawled(Woken, [server.url("/index")])
    assert (len(spider.recorded), stats["response_received_count"]) == (2, 2)
    assert stats["elapsed_time_seconds"] < 20


def test_a_spider_may_start_empty_and_get_requests_when_idle(server):
    class PushesWhenIdle(RecordsSignals):
        name = "pushes-when-idle"
        signals_recorded = (signals.spider_idle,)

        async def on_spider_idle(self, spider: Any) -> None:
            if len(self.recorded) <= 3:
                await self.crawler.crawl(Request(server.url(f"/index?{len(self.recorded)}")))

    spider, stats = crawled(PushesWhenIdle, [])
    assert (len(spider.recorded), stats["response_received_count"]) == (4, 3)


def test_close_spider_raised_at_spider_idle_ends_the_crawl(server):
    class Closes(RecordsSignals):
        name = "closes"
        signals_recorded = (signals.spider_idle,)

        def on_spider_idle(self, spider: Any) -> None:
            raise CloseSpider("nothing more")

    assert crawled(Closes, [server.url("/index")])[1]["finish_reason"] == "nothing more"


def test_crawler_crawl_needs_a_running_crawl():
    class Early(RecordsSignals):
        name = "early"
        signals_recorded = ()

        async def start(self) -> AsyncIterator[Request]:
            await self.crawler.crawl(Request("http://a.example/"))
            yield Request("http://a.example/")

    with pytest.raises(Exception, match="the crawl is not running yet"):
        crawled(Early, [])


# ------------------------------------------------------------------------------------- while a response arrives


class Stops(RecordsSignals):
    name = "stops"
    signals_recorded = (signals.headers_received, signals.bytes_received)
    at = "headers_received"
    fail = True

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.urls[0], errback=self.failed)

    def parse(self, response: Any) -> None:
        self.result = ("callback", response.status, len(response.body))

    def failed(self, failure: Any) -> None:
        assert failure.check(StopDownload)
        self.result = ("errback", failure.response.status, len(failure.response.body))

    def record(self, signal: Any, sender: Any, **arguments: Any) -> None:
        super().record(signal, sender, **arguments)
        if signal.name == self.at:
            raise StopDownload(fail=self.fail)


@pytest.mark.parametrize("at", ["headers_received", "bytes_received"])
@pytest.mark.parametrize("fail", [True, False])
def test_stop_download_ends_the_transfer_and_calls_callback_or_errback(server, at, fail):
    spider_class = type("StopsAt", (Stops,), {"at": at, "fail": fail})
    spider, stats = crawled(spider_class, [server.url("/endless")], max_body=10**9)
    called, status, size = spider.result
    assert (called, status, 0 < size < 10**6) == ("errback" if fail else "callback", 200, at == "bytes_received")
    assert stats["finish_reason"] == "finished"


def test_the_received_bytes_make_up_the_body(server):
    class KeepsBody(RecordsSignals):
        name = "keeps-body"
        signals_recorded = (signals.headers_received, signals.bytes_received)

        def parse(self, response: Any) -> None:
            self.body = response.body

    spider, _ = crawled(KeepsBody, [server.url("/coded/gzip")])
    assert b"".join(arguments["data"] for name, arguments in spider.recorded if name == "bytes_received") == spider.body
    ((_, received),) = [each for each in spider.recorded if each[0] == "headers_received"]
    assert (received["body_length"], received["headers"].get("content-encoding")) == (
        int(received["headers"].get("content-length")),
        "gzip",
    )
