"""The log and the summary show a bug of the user's code once, with its own lines and its number of repeats (C10)."""

from __future__ import annotations

import asyncio
import logging
import re

import msgspec
import pytest

from lycosa import Request, Spider, signals
from lycosa.cli.crawl.progress import summary_lines
from lycosa.core.errors import BadSpider
from lycosa.crawl.diagnostics.bug_log import BUGS_MAX, DETAIL_MAX, REPEAT_EVERY_S, Bug, BugLog, WorkerBugLog
from lycosa.crawl.engine.verdict import REASON_MAX, reason_text
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.servers.misbehaving import serving

PAGES = 100


def failure(number: int = 0, error: str = "ValueError('broken')") -> BaseException:
    """Return an exception raised in line 1 of a user's file, a file for each number."""
    try:
        exec(compile(f"raise {error}", f"/project/quotes{number}.py", "exec"), {})
    except Exception as raised:
        return raised
    raise AssertionError


class ManualClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def record(bugs: BugLog, number: int, page: int = 0, error: str = "ValueError('broken')") -> None:
    raised = failure(number, error)
    bugs.record(raised, "parse", f"{type(raised).__name__}: {raised}", f"http://a.example/{page}")


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_only_the_first_occurrence_has_a_line_and_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    bugs = BugLog(ManualClock())
    for page in range(PAGES):
        record(bugs, 0, page)
    assert lines(caplog) == ["parse failed on http://a.example/0: ValueError: broken"]
    assert caplog.records[0].exc_info is not None
    assert [str(bug) for bug in bugs.most_frequent()] == [
        "parse failed 100 times: ValueError: broken (quotes0.py:1), first on http://a.example/0"
    ]


def test_repeats_are_logged_once_per_interval_with_their_number(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    bugs = BugLog(clock)
    for second in range(100):
        clock.now = float(second)
        record(bugs, 0, second)
    repeats = lines(caplog)[1:]
    assert REPEAT_EVERY_S == 30.0
    assert repeats == [
        f"parse failed 30 more times: ValueError: broken (quotes0.py:1), last on http://a.example/{page}"
        for page in (30, 60, 90)
    ]
    assert all(record.exc_info is None for record in caplog.records[1:])


def test_bugs_differ_by_class_of_exception_and_line_but_not_by_message(caplog: pytest.LogCaptureFixture) -> None:
    bugs = BugLog(ManualClock())
    for error in ("ValueError(1)", "ValueError(2)", "KeyError(1)"):
        record(bugs, 0, error=error)
    record(bugs, 1, error="ValueError(1)")
    assert [bug.count for bug in bugs.most_frequent()] == [2, 1, 1]
    assert len(caplog.records) == 3


def test_without_a_line_of_user_code_bugs_differ_by_function(caplog: pytest.LogCaptureFixture) -> None:
    bugs = BugLog(ManualClock())
    for function in ("parse", "parse", "parse_item"):
        bugs.record(BadSpider("no such callback"), function, "no such callback", with_traceback=False)
    assert lines(caplog) == ["parse failed: no such callback", "parse_item failed: no such callback"]
    assert [str(bug) for bug in bugs.most_frequent()] == [
        "parse failed 2 times: no such callback",
        "parse_item failed once: no such callback",
    ]


def test_the_number_of_bugs_and_their_texts_are_limited(caplog: pytest.LogCaptureFixture) -> None:
    bugs = BugLog(ManualClock())
    for number in range(BUGS_MAX + 50):
        record(bugs, number, error="ValueError('x' * 1000)")
    assert len(caplog.records) == BUGS_MAX + 1
    assert len(bugs.most_frequent()) == BUGS_MAX + 1
    assert all(len(bug.detail) <= DETAIL_MAX for bug in bugs.most_frequent())
    further = bugs.most_frequent()[0]
    assert (further.function, further.count) == ("further bugs (parse)", 50)


def test_bugs_of_worker_processes_are_logged_by_the_owner_as_one(caplog: pytest.LogCaptureFixture) -> None:
    owner, workers = BugLog(ManualClock()), [WorkerBugLog(), WorkerBugLog()]
    for page in range(PAGES):
        record(workers[page % 2], 0, page, r"ValueError('\ud800')")
        if page % 10 > 7:
            for bug in workers[page % 2].take():
                owner.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(bug), type=Bug))
    assert not any(bug for worker in workers for bug in worker.take())
    (first,) = lines(caplog)
    assert first.startswith("parse failed on http://a.example/0: ValueError: ?\nTraceback (most recent call last):\n")
    assert first.endswith("ValueError: ?")
    (bug,) = owner.most_frequent()
    assert (bug.count, bug.place, bug.url) == (PAGES, "quotes0.py:1", "http://a.example/0")


class Fails(Spider):
    name = "fails"

    async def start(self):
        for number in range(PAGES):
            yield Request(self.site + f"/echo/{number}")
        yield Request(self.site + "/echo/other", self.other)

    def parse(self, response):
        yield {"a": 1}
        raise ValueError("broken on " + response.url)

    def other(self, response):
        raise ValueError("broken, too")


async def run(kind: type[Spider], **settings: object) -> CrawlResult:
    async with serving() as server:
        return await run_crawl(server, kind(site=server.url("")), **settings)


def test_a_callback_that_fails_on_every_page_is_one_line_in_log_and_summary(caplog: pytest.LogCaptureFixture) -> None:
    result = asyncio.run(run(Fails))
    assert result.summary.snapshot.dead == PAGES + 1
    logged = [record for record in caplog.records if record.name == "lycosa.crawl.diagnostics.bug_log"]
    assert len(logged) == 2, "each bug once"
    shown = [logging.Formatter().formatException(record.exc_info) for record in logged if record.exc_info]
    assert len(shown) == 2
    assert all("/lycosa/" not in text and "test_bug_log.py" in text for text in shown), shown
    summary = summary_lines(result.summary)
    assert sum("ValueError in parse" in line for line in summary) == 2, "the count, and one example"
    line = Fails.parse.__code__.co_firstlineno + 2
    pattern = (
        rf"  bugs    parse failed {PAGES} times: ValueError: broken on http://\S+ \(test_bug_log.py:{line}\), first on"
    )
    assert sum(re.match(pattern, line) is not None for line in summary) == 1, summary


class Listens(Spider):
    name = "listens"

    async def start(self):
        self.crawler.signals.connect(self.on_item, signals.item_scraped)
        for number in range(3):
            yield Request(self.site + f"/echo/{number}")

    def parse(self, response):
        yield {"a": 1}

    def on_item(self, item):
        raise KeyError("price")


def test_a_signal_receiver_that_fails_every_time_is_one_line_too(caplog: pytest.LogCaptureFixture) -> None:
    result = asyncio.run(run(Listens))
    receiver = "Listens.on_item, a receiver of item_scraped, failed"
    assert (len(result.items), result.summary.snapshot.dead) == (3, 0)
    assert lines(caplog).count(f"{receiver}: KeyError('price')") == 1
    line = Listens.on_item.__code__.co_firstlineno + 1
    assert f"  bugs    {receiver} 3 times: KeyError('price') (test_bug_log.py:{line})" in summary_lines(result.summary)


class Mistaken(Spider):
    name = "mistaken"

    async def start(self):
        yield Request(self.site + "/echo/1", self.takes_more, cb_kwargs={"page": 1})
        yield Request(self.site + "/echo/2", "takes_nothing")
        yield Request(self.site + "/echo/3")

    def takes_more(self, response, pag):
        yield {"a": 1}

    def takes_nothing(response):  # noqa: N805
        yield {"a": 1}


def test_wrong_arguments_and_a_missing_parse_are_explained_in_one_line() -> None:
    result = asyncio.run(run(Mistaken))
    assert result.of("/echo/1") == (
        "dead",
        "takes_more takes 'pag', which is not in cb_kwargs: put it there, or give it a default",
    )
    no_response = "takes_nothing takes no response: write def takes_nothing(self, response)"
    assert result.of("/echo/2") == ("dead", no_response)
    missing = "Mistaken has no parse(): write it, or give each Request a callback"
    assert result.of("/echo/3") == ("dead", missing)


class Forgets(Spider):
    name = "forgets"

    async def start(self):
        yield Request(self.site + "/echo/1")
        yield Request(self.site + "/echo/2", self.decodes)

    async def later(self):
        return {}

    async def parse(self, response):
        coroutine = self.later()
        coroutine.close()
        yield coroutine.json()

    def decodes(self, response):
        yield {"kind": response.headers["Content-Type"].decode()}


def test_usual_causes_are_added_to_misleading_messages() -> None:
    result = asyncio.run(run(Forgets))
    awaits = "'coroutine' object has no attribute 'json': await async calls, such as self.fetch(...)"
    assert result.of("/echo/1") == ("dead", f"AttributeError in parse: {awaits}")
    decodes = "'str' object has no attribute 'decode': header fields are already text"
    assert result.of("/echo/2") == ("dead", f"AttributeError in decodes: {decodes}")


def test_a_truncated_reason_ends_with_dots() -> None:
    assert reason_text("x" * REASON_MAX + "\nmore") == "x" * REASON_MAX
    assert reason_text("x" * REASON_MAX + "y") == "x" * (REASON_MAX - 3) + "..."


class Relative(Spider):
    name = "relative"

    async def start(self):
        yield Request(self.site + "/echo/1")

    def parse(self, response):
        yield {"a": 1}
        yield Request("/echo/2")
        yield Request("/echo/3")
        yield Request("javascript:void(0)")


def test_requests_with_relative_urls_cause_one_hint() -> None:
    result = asyncio.run(run(Relative))
    assert (len(result.items), result.summary.skipped) == (1, {"bad URL": 3})
    (note,) = result.summary.notes
    assert re.fullmatch(
        r"Request\('/echo/2'\) on http://\S+/echo/1 is not an absolute URL: write response.follow\(...\)", note
    )


def test_start_requests_is_refused_although_there_are_start_urls() -> None:
    class Old(Spider):
        name = "old"
        start_urls = ("http://a.example/",)

        def start_requests(self):
            yield Request("http://a.example/login")

    class Both(Old):
        async def start(self):
            for request in self.start_requests():
                yield request

    Both()
    with pytest.raises(BadSpider, match=r"Old.start_requests is never called: write async def start"):
        Old()


class Returns(Spider):
    name = "returns"

    def parse(self, response):
        if response:
            yield {"a": 1}
        return {"lost": 1}

    def parse_more(self, response):
        taken = yield from self.helper(response)
        yield {"taken": taken}

    def helper(self, response):
        yield {"b": 1}
        return 1


def test_a_lost_return_value_is_reported_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    Returns()
    line = Returns.parse.__code__.co_firstlineno + 3
    message = (
        f"Returns.parse is a generator, so `return {{'lost': 1}}` in line {line} is lost: yield the value, then return"
    )
    assert [record.getMessage() for record in caplog.records] == [message]
