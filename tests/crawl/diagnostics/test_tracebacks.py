"""What the log shows when the user's code fails: his own lines, each place once (C10)."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from lycosa import Request, Spider
from lycosa.core.errors import BadSpider
from lycosa.crawl.diagnostics.tracebacks import PLACES_MAX, Tracebacks, users
from lycosa.crawl.engine.verdict import REASON_MAX, reason_text
from tests.crawl.playing import Played, play
from tests.servers.misbehaving import serving


def fail(number: int = 0) -> BaseException:
    try:
        exec("\n" * number + "1 / 0", {})
    except ZeroDivisionError as error:
        return error
    raise AssertionError


class Fails(Spider):
    name = "fails"

    async def start(self):
        for number in range(3):
            yield Request(self.site + f"/echo/{number}")
        yield Request(self.site + "/echo/other", self.other)

    def parse(self, response):
        yield {"a": 1}
        raise ValueError("broken")

    def other(self, response):
        raise ValueError("broken, too")


async def played_by(kind: type[Spider]) -> Played:
    async with serving() as server:
        return await play(server, kind(site=server.url("")))


def test_a_callback_that_fails_is_shown_with_its_own_lines_and_once(caplog: pytest.LogCaptureFixture) -> None:
    played = asyncio.run(played_by(Fails))
    assert played.summary.snapshot.dead == 4
    told = [record for record in caplog.records if record.name == "lycosa.crawl.engine.visit"]
    assert len(told) == 4, "every page is named"
    shown = [logging.Formatter().formatException(record.exc_info) for record in told if record.exc_info]
    assert len(shown) == 2, "each place once"
    assert all("/lycosa/" not in text and "test_tracebacks.py" in text for text in shown), shown


def test_one_without_a_line_of_the_user_is_shown_whole() -> None:
    error = BaseException().with_traceback(None)
    assert users(error) is None
    assert Tracebacks().of(error) == (BaseException, error, None)


def test_the_places_have_a_bound() -> None:
    shown = Tracebacks()
    for number in range(PLACES_MAX):
        assert shown.of(fail(number)) is not None
    assert shown.of(fail(0)) is None
    assert shown.of(fail(PLACES_MAX)) is not None
    assert shown.of(fail(PLACES_MAX)) is not None, "not remembered any more"


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


def test_arguments_that_do_not_fit_and_a_parse_that_is_not_written_are_told_in_a_line() -> None:
    played = asyncio.run(played_by(Mistaken))
    assert played.of("/echo/1") == (
        "dead",
        "takes_more takes 'pag', which is not in cb_kwargs: put it there, or give it a default",
    )
    nothing = "takes_nothing takes no response: write def takes_nothing(self, response)"
    assert played.of("/echo/2") == ("dead", nothing)
    unwritten = "Mistaken.parse is not written: write it, or give each Request a callback"
    assert played.of("/echo/3") == ("dead", unwritten)


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


def test_what_was_forgotten_is_hinted_at() -> None:
    played = asyncio.run(played_by(Forgets))
    awaits = "'coroutine' object has no attribute 'json': await what is async, such as self.fetch(...)"
    assert played.of("/echo/1") == ("dead", f"AttributeError in parse: {awaits}")
    decodes = "'str' object has no attribute 'decode': header fields are text already"
    assert played.of("/echo/2") == ("dead", f"AttributeError in decodes: {decodes}")


def test_a_reason_that_is_cut_off_says_so() -> None:
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


def test_requests_for_relative_urls_are_hinted_at_once() -> None:
    played = asyncio.run(played_by(Relative))
    assert (len(played.items), played.summary.skipped) == (1, {"bad URL": 3})
    (note,) = played.summary.notes
    assert re.fullmatch(
        r"Request\('/echo/2'\) on http://\S+/echo/1 is no whole URL: write response.follow\(...\)", note
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


def test_a_value_that_a_callback_returns_after_yielding_is_told_at_the_start(caplog: pytest.LogCaptureFixture) -> None:
    Returns()
    line = Returns.parse.__code__.co_firstlineno + 3
    told = f"Returns.parse yields, so that `return {{'lost': 1}}` in line {line} is lost: yield it, then return"
    assert [record.getMessage() for record in caplog.records] == [told]
