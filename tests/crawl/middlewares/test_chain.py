"""Middlewares: their order among the built-in ones, how they are named, created and called, and the errors for invalid
ones (C2, C7). Each test crawls a page of the misbehaving server.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lycosa import BadMiddleware, CloseSpider, IgnoreRequest, NotConfigured, Request, Response, RetryRequest, Spider
from lycosa.app.crawl.middlewares import DOWNLOADER_ORDER, SPIDER_ORDER
from lycosa.core.errors import BadSetting, FetchError
from tests.conftest import ROOT
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.servers.misbehaving import Server, running


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Page(Spider):
    """Yields the status of its page."""

    name = "page"

    def parse(self, response):
        yield {"page": response.status}


def crawled(server: Server, path: str = "/good", spider: type[Spider] = Page, **settings: Any) -> CrawlResult:
    return asyncio.run(run_crawl(server, spider(start_urls=[server.url(path)]), **settings))  # type: ignore[arg-type]


class Logging:
    """Logs the requests, responses and exceptions that it processes."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self.log = name, log

    def process_request(self, request):
        self.log.append(f"{self.name} > {request.headers.get('Cookie', '-')}")

    def process_response(self, request, response):
        self.log.append(f"{self.name} < {response.status}")
        return response

    def process_exception(self, request, exception):
        self.log.append(f"{self.name} ! {type(exception).__name__}")


def log_of(server: Server, path: str, *orders: int, **settings: Any) -> list[str]:
    log: list[str] = []
    parts = {Logging(str(order), log): order for order in orders}
    crawled(server, path, downloader_middlewares=parts, **settings)
    return log


def test_requests_pass_in_order_and_responses_in_reverse_order(server):
    assert log_of(server, "/good", 300, 100, 200) == [
        "100 > -",
        "200 > -",
        "300 > -",
        "300 < 200",
        "200 < 200",
        "100 < 200",
    ]


def test_with_equal_orders_the_first_middleware_is_nearer_to_the_engine(server):
    log: list[str] = []
    parts = {Logging("a", log): 10, Logging("b", log): 10}
    crawled(server, downloader_middlewares=parts)
    assert log == ["a > -", "b > -", "b < 200", "a < 200"]


def test_the_order_decides_if_a_503_is_seen_at_every_try_or_after_the_last_try(server):
    assert log_of(server, "/503", 560) == ["560 > -", "560 < 503"] * 2
    assert log_of(server, "/503", 540) == ["540 > -", "540 > -", "540 < 503"]
    assert log_of(server, "/fails?status=503", 540) == ["540 > -", "540 > -", "540 < 200"]


def test_the_order_decides_if_an_exception_is_seen_at_every_try_or_after_the_last_try(server):
    assert log_of(server, "/drop", 560) == ["560 > -", "560 ! ConnectionLost"] * 2
    assert log_of(server, "/drop", 540) == ["540 > -", "540 > -", "540 ! ConnectionLost"]


def test_middlewares_on_the_fetcher_side_see_redirects_and_cookies(server):
    expected = ["0 > -", "1 > -", "1 < 302", "0 > -", "1 > session=7", "1 < 200", "0 < 200"]
    log: list[str] = []
    crawled(server, "/cookies-required", downloader_middlewares={Logging("0", log): 590, Logging("1", log): 710})
    assert log == expected


def test_a_middleware_that_sees_a_failure_after_the_last_try_may_replace_it(server):
    class Replaces:
        def process_response(self, request, response):
            return response.replace(status=200) if response.status == 503 else response

        async def process_exception(self, request, exception):
            return Response(request.url, 201)

    for path, status in (("/503", 200), ("/drop", 201)):
        server.hits.clear()
        result = crawled(server, path, downloader_middlewares={Replaces: 540})
        assert (result.of(path), result.items) == (("done", str(status)), [{"page": status}])
        assert result.hits[path] == 2


def test_control_exceptions_bypass_process_exception_and_errbacks_get_the_raised_exception(server):
    log: list[str] = []

    class Own(IgnoreRequest):
        """An exception of the project."""

    class Raises:
        def process_request(self, request):
            name = request.url.rpartition("?")[2]
            raise {"retry": RetryRequest("why"), "close": CloseSpider("why"), "own": Own("why")}[name]

    class WithErrback(Page):
        async def start(self):
            for url in self.start_urls:
                yield Request(url, errback=self.failed)

        def failed(self, failure):
            yield {"own": failure.check(Own) is Own}

    parts = {Raises: 1, Logging("2", log): 2}
    for name, expected in (("retry", []), ("close", []), ("own", ["2 ! Own"])):
        log.clear()
        result = crawled(server, f"/good?{name}", WithErrback, downloader_middlewares=parts)
        assert log == expected
    assert result.items == [{"own": True}]


@pytest.mark.parametrize("mode", ["loop", "thread"])
def test_close_spider_works_in_functions_that_yield_nothing(server, mode):
    class Closing(Page):
        def parse(self, response):
            raise CloseSpider("parse")

        def failed(self, failure):
            raise CloseSpider("errback")

        async def start(self):
            yield Request(self.start_urls[0], errback=self.failed)

    class Last:
        def process_spider_output(self, response, result):
            raise CloseSpider("output")

        def process_spider_exception(self, response, exception):
            raise CloseSpider("exception")

    class Broken(Page):
        def parse(self, response):
            raise ValueError

    for path, spider, parts, reason in (
        ("/good", Closing, {}, "parse"),
        ("/404", Closing, {}, "errback"),
        ("/good", Page, {Last: 5}, "output"),
        ("/good", Broken, {Last: 5}, "exception"),
    ):
        result = crawled(server, path, spider, spider_middlewares=parts, callback_mode=mode)
        assert (result.summary.closing, result.items, result.rows[path].state) == (reason, [], "done")


def test_an_async_middleware_that_returns_the_same_response_does_not_undo_a_failure(server):
    class Waits:
        async def process_response(self, request, response):
            await asyncio.sleep(0)
            return response

    assert crawled(server, "/503", downloader_middlewares={Waits: 540}).of("/503") == ("dead", "503")


def test_built_in_middlewares_can_be_disabled_replaced_and_moved(server):
    class Own:
        def process_response(self, request, response):
            return request.replace(url=server.url("/good")) if response.status == 500 else response

    off = crawled(server, "/500", downloader_middlewares={"retry": None})
    assert (off.of("/500"), off.hits["/500"]) == (("done", "500"), 1)
    own = crawled(server, "/500", downloader_middlewares={"retry": None, Own: 550})
    assert (own.of("/500"), own.of("/good"), own.hits["/500"]) == (("done", "replaced"), ("done", "200"), 1)
    log: list[str] = []
    crawled(server, "/503", downloader_middlewares={Logging("540", log): 540, "retry": 530})
    assert log == ["540 > -", "540 < 503"] * 2


def test_a_spider_middleware_can_be_disabled(server):
    assert crawled(server, "/404", spider_middlewares={"httperror": None}).items == [{"page": 404}]


def test_scrapys_names_of_middlewares_work(server):
    off = {"scrapy.downloadermiddlewares.retry.RetryMiddleware": None}
    assert crawled(server, "/500", downloader_middlewares=off).of("/500") == ("done", "500")


class Named:
    """Used by its import path."""

    def process_request(self, request):
        raise IgnoreRequest("found by its name")


def test_a_middleware_may_be_a_class_an_object_or_a_name(server):
    for part in (Named, Named(), f"{__name__}:Named"):
        result = crawled(server, downloader_middlewares={part: 5})
        assert result.of("/good") == ("done", "found by its name")
    assert crawled(server, downloader_middlewares=[Named]).of("/good") == ("done", "found by its name")


def test_custom_settings_may_name_middlewares(server):
    class Custom(Page):
        custom_settings = {"DOWNLOADER_MIDDLEWARES": {Named: 5}}

    assert crawled(server, spider=Custom).of("/good") == ("done", "found by its name")


def test_middlewares_get_the_crawler_and_the_spider(server):
    class Made:
        @classmethod
        def from_crawler(cls, crawler):
            middleware = cls()
            middleware.crawler, middleware.log = crawler, []
            return middleware

        def process_request(self, request, spider):
            self.crawler.stats.inc_value(f"made/{spider.name}/{self.crawler.settings['BOT_NAME']}")

        async def process_response(self, request, response, spider=None):
            self.crawler.stats.inc_value(f"answered/{spider.name}/{self.crawler.spider is spider}")
            return response

    class Inside:
        def process_spider_input(self, response, spider):
            response.meta["by"] = spider.name

        async def process_spider_output(self, response, result, *, spider):
            async for each in result:
                yield {**each, "by": response.meta["by"], "after": spider.name}

    result = crawled(server, downloader_middlewares={Made: 5}, spider_middlewares={Inside: 5}, bot_name="bot")
    assert (result.stats["made/page/bot"], result.stats["answered/page/True"]) == (1, 1)
    assert result.items == [{"page": 200, "by": "page", "after": "page"}]


def test_a_middleware_that_raises_not_configured_is_not_used(server, caplog):
    class Unset:
        @classmethod
        def from_crawler(cls, crawler):
            raise NotConfigured("MIRROR is not set")

        def process_request(self, request):
            raise AssertionError

    assert crawled(server, downloader_middlewares={Unset: 5}).of("/good") == ("done", "200")
    assert "Unset is not used: MIRROR is not set" in caplog.text


def test_start_requests_pass_process_start(server):
    class Twice:
        async def process_start(self, start):
            async for request in start:
                yield request
                yield request.replace(url=request.url + "?again")

    class Tagged:
        async def process_start(self, start, spider):
            async for request in start:
                yield request.replace(flags=[*request.flags, spider.name])

    class Again:
        async def process_start(self, start):
            async for request in start:
                yield request.replace(flags=[*request.flags, "again"])

    class Flagged(Page):
        def parse(self, response):
            yield {"flags": response.request.flags}

    result = crawled(server, spider=Flagged, spider_middlewares={Twice: 1, Again: 2, Tagged: 3})
    assert result.hits == {"/good": 1, "/good?again": 1}
    assert result.items == [{"flags": ["page", "again"]}] * 2


def test_the_result_of_process_spider_exception_passes_the_middlewares_nearer_to_the_engine(server):
    log: list[str] = []

    class Through:
        def __init__(self, name: str, rescued: Any = None) -> None:
            self.name, self.rescued = name, rescued

        def process_spider_output(self, response, result):
            log.append(f"{self.name} <")
            yield from result

        def process_spider_exception(self, response, exception):
            log.append(f"{self.name} ! {exception}")
            return self.rescued

    class Broken(Page):
        def parse(self, response):
            raise ValueError("parse")

    class Breaks(Through):
        def process_spider_output(self, response, result):
            raise ValueError("output")

    parts = {Through("1"): 1, Through("2", [{"rescued": 2}]): 2, Through("3"): 3}
    result = crawled(server, spider=Broken, spider_middlewares=parts)
    assert (log, result.items) == (["3 ! parse", "2 ! parse", "1 <"], [{"rescued": 2}])
    log.clear()
    parts = {Through("1", [{"rescued": 1}]): 1, Breaks("2", [{"rescued": 2}]): 2, Through("3"): 3}
    result = crawled(server, spider_middlewares=parts)
    assert (log, result.items) == (["3 <", "1 ! output"], [{"rescued": 1}])
    log.clear()
    result = crawled(server, "/404", spider_middlewares={Through("1", [{"rescued": 404}]): 100})
    assert (log, result.items) == (["1 ! 404"], [{"rescued": 404}]), (
        "without an errback, process_spider_exception gets the exception of process_spider_input"
    )


@pytest.mark.parametrize(
    ("setting", "part", "message"),
    [
        ("downloader_middlewares", {"retri": None}, r"there is no built-in 'retri': did you mean retry\?"),
        ("downloader_middlewares", {"depth": None}, "there is no built-in 'depth'"),
        ("spider_middlewares", {"retry": 5}, "there is no built-in 'retry'"),
        ("downloader_middlewares", {"tests.no_such:Thing": 5}, "there is no module 'tests.no_such'"),
        ("downloader_middlewares", {f"{__name__}:Nmed": 5}, "did you mean Named"),
        ("downloader_middlewares", {Named: "first"}, "is not a list of classes"),
        ("downloader_middlewares", {3: 5}, "is not a list of classes"),
        ("downloader_middlewares", {Exception: 5}, "Exception of Page has none of the methods process_request"),
    ],
)
def test_an_invalid_middleware_is_refused_before_the_crawl(server, setting, part, message):
    with pytest.raises((BadSetting, BadMiddleware), match=message):
        crawled(server, **{setting: part})
    assert server.hits == []


def test_a_method_with_wrong_arguments_is_refused_before_the_crawl(server):
    class Wrong:
        def process_request(self):
            pass

    with pytest.raises(BadMiddleware, match=r"Wrong\.process_request\(\) must take 1 argument"):
        crawled(server, downloader_middlewares={Wrong: 5})


def test_a_misspelled_method_is_reported(server, caplog):
    class Misspelled:
        def process_request(self, request):
            pass

        def process_respnse(self, request, response):
            pass

    crawled(server, downloader_middlewares={Misspelled: 5}, log_level="WARNING")
    assert re.search(r"Misspelled.*process_respnse.*process_response", caplog.text)


class Nonsense:
    """Returns invalid values."""

    def process_response(self, request, response, spider):
        """Forget to return."""

    def process_spider_output(self, response, result):
        return "text"

    def process_spider_input(self, response):
        return response

    def process_results(self, response, results):
        return None


@pytest.mark.parametrize(
    ("side", "method", "message"),
    [
        (
            "downloader",
            "process_response",
            r"Nonsense\.process_response returned None: return a Response, a Request or",
        ),
        ("spider", "process_spider_output", "process_spider_output yielded a str ('text'): yield an item"),
        ("spider", "process_spider_input", "process_spider_input returned a Response (<200 "),
        ("spider", "process_results", "process_results returned None: return the Results"),
    ],
)
def test_an_error_names_the_method_that_returned_a_wrong_value(server, side, method, message):
    part = type("Nonsense", (), {method: vars(Nonsense)[method]})
    state, reason = crawled(server, **{f"{side}_middlewares": {part: 5}}).of("/good")
    assert state == "dead"
    assert message.replace("\\", "") in reason


def test_a_request_that_is_replaced_too_often_is_dead(server):
    class Always:
        def process_response(self, request, response):
            return request

    result = crawled(server, downloader_middlewares={Always: 5})
    assert result.of("/good") == ("dead", "replaced more than 20 times")
    assert result.hits["/good"] == 21


def test_a_host_that_was_not_contacted_has_no_delay(server):
    class Local:
        def process_request(self, request):
            if "local" in request.url:
                return Response(request.url, 200, {"content-type": "text/html"})
            if "ignored" in request.url:
                raise IgnoreRequest("no")
            return {"item": request.url} if "item" in request.url else None

    class ManyStarts(Page):
        async def start(self):
            for number in range(20):
                for kind in ("local", "ignored", "item"):
                    yield Request(server.url(f"/{kind}/{number}"))

    async def run() -> CrawlResult:
        async with asyncio.timeout(60):
            return await run_crawl(server, ManyStarts(), downloader_middlewares={Local: 5}, delay=3600)

    done = asyncio.run(run())
    assert (len(done.rows), done.hits, len(done.items)) == (60, {}, 40)


def documented(kind: str) -> dict[str, int]:
    page = (ROOT / "docs" / "middlewares.md").read_text(encoding="utf-8")
    rows = page.split(f"| {kind} middleware | order |", 1)[1].split("\n\n", 1)[0]
    return {name: int(number) for name, number in re.findall(r"^\| `(\w+)` \| (\d+) \|", rows, re.MULTILINE)}


def test_the_documentation_lists_the_orders():
    assert documented("downloader") == DOWNLOADER_ORDER
    assert documented("spider") == SPIDER_ORDER


def test_a_fetch_error_of_a_middleware_is_retried(server):
    class Flaky:
        tries = 0

        def process_request(self, request):
            type(self).tries += 1
            if self.tries == 1:
                raise FetchError("once")

    result = crawled(server, downloader_middlewares={Flaky: 5})
    assert (result.of("/good"), result.stats["retry/reason_count/once"]) == (("done", "200"), 1)
