"""Mistakes in user code are explained in one line that says what to write instead (C1); correct code has no message."""

from __future__ import annotations

import functools
import io
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from parsel import Selector

from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.middlewares.chain import METHODS
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

PAGE = Response("http://a.example/", 200, None, b"<p>text</p>")


class Quotes(Spider):
    name = "quotes"

    def parse(self, response: Any) -> Iterator[Any]:
        yield {}

    def parse_book(self, response: Any, key: str, number: int = 0) -> Iterator[Any]:
        yield {}

    async def parse_later(self, response: Any) -> None:
        """Return nothing."""

    async def parse_many(self, response: Any, **rest: Any) -> AsyncIterator[Any]:
        yield {}


QUOTES = Quotes()


def outside(response: Any) -> None:
    """A function outside the spider."""


@pytest.mark.parametrize("callback", ["parse_book", QUOTES.parse, QUOTES.parse_later])
def test_a_correct_callback_has_no_message(callback: Any) -> None:
    assert user_errors.check_callback(callback, QUOTES) == ""


@pytest.mark.parametrize(
    ("callback", "line"),
    [
        ("prase_book", "Quotes has no method 'prase_book' for the callback: did you mean 'parse_book'?"),
        ("xyz", "Quotes has no method 'xyz' for the callback"),
        (
            QUOTES.parse(PAGE),
            "the callback is the result of parse(): write callback=self.parse, without the parentheses",
        ),
        (
            QUOTES.parse_many(PAGE),
            "the callback is the result of parse_many(): write callback=self.parse_many, without the parentheses",
        ),
        ([{}], "the callback is a list ([{}]): write callback=self.method, without parentheses"),
        (
            functools.partial(QUOTES.parse_book, key="k"),
            "the callback is a functools.partial: give the method itself, and its arguments in cb_kwargs",
        ),
        (
            lambda response: None,
            "the callback is a lambda: it could not be found again after a restart, so make it a method of Quotes",
        ),
        (
            outside,
            (
                "the callback is outside, which is not a method of Quotes: it could not be found again after a "
                "restart, so make it a method of Quotes"
            ),
        ),
    ],
    ids=lambda value: str(value).partition(" at 0x")[0],
)
def test_a_wrong_callback_is_explained(callback: Any, line: str) -> None:
    assert user_errors.check_callback(callback, QUOTES) == line


def test_a_coroutine_as_errback_is_explained() -> None:
    coroutine = QUOTES.parse_later(PAGE)
    line = user_errors.check_callback(coroutine, QUOTES, "errback")
    coroutine.close()
    assert line == "the errback is the result of parse_later(): write errback=self.parse_later, without the parentheses"


@pytest.mark.parametrize(
    ("method", "cb_kwargs", "line"),
    [
        (QUOTES.parse_book, {"key": "k"}, ""),
        (QUOTES.parse_book, {"key": "k", "number": 1}, ""),
        (QUOTES.parse_many, {"whatever": 1}, ""),
        (
            QUOTES.parse_book,
            {"number": 1},
            "parse_book takes 'key', which is not in cb_kwargs: put it there, or give it a default",
        ),
        (
            QUOTES.parse_book,
            {"key": "k", "other": 1},
            "cb_kwargs has 'other', which parse_book does not take: add the argument, or **kwargs",
        ),
        (print, {}, ""),
    ],
)
def test_wrong_arguments_are_explained(method: Any, cb_kwargs: dict[str, Any], line: str) -> None:
    assert user_errors.check_arguments(method, cb_kwargs) == line


def recursive_list() -> list[Any]:
    values: list[Any] = []
    values.append(values)
    return values


@dataclass
class Point:
    x: int


def test_plain_data_can_be_stored() -> None:
    assert (
        user_errors.check_storable("meta", {"a": [1, 2.5, "x", b"y", None, {"b": (1,)}], 3: True, "point": Point(1)})
        == ""
    )


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            {"page": PAGE},
            (
                "meta['page'] is a Response, which cannot be stored: keep what you need from it, "
                "response.url or response.text"
            ),
        ),
        (
            {"a": {"b": [1, Selector(text="<p>")]}},
            "meta['a']['b'][1] is a Selector, which cannot be stored: keep its text, with .get() or .getall()",
        ),
        (
            {"all": PAGE.css("p")},
            "meta['all'] is a SelectorList, which cannot be stored: keep its text, with .get() or .getall()",
        ),
        ({"next": Request("http://a.example/")}, "meta['next'] is a Request, which cannot be stored: keep its url"),
        (
            {"rows": (n for n in "ab")},
            "meta['rows'] is a generator, which cannot be stored: keep what it yields, list(...)",
        ),
        (
            {"file": io.BytesIO()},
            "meta['file'] is a BytesIO, which cannot be stored: keep the path, and open the file in the callback",
        ),
        ({"n": 2**70}, "meta['n'] is an int, which cannot be stored: keep a number this large as text, str(...)"),
        ({"then": QUOTES.parse}, "meta['then'] is a method, which cannot be stored: keep the name of a method"),
        (
            {"lock": threading.Lock()},
            "meta['lock'] is a lock, which cannot be stored: use numbers, strings, bytes, lists and dicts",
        ),
        (
            {"a": recursive_list()},
            "meta['a'] is a list, which cannot be stored: it contains itself, or has too many levels",
        ),
    ],
    ids=lambda value: str(value)[:20],
)
def test_data_that_cannot_be_stored_is_explained(value: dict[str, Any], line: str) -> None:
    assert user_errors.check_storable("meta", value) == line


class BrokenRepr:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (
            "/page/2",
            "a str ('/page/2'): yield response.follow('/page/2') to fetch it, or yield an item, {'text': ...}",
        ),
        (
            "https://a.example/",
            (
                "a str ('https://a.example/'): yield response.follow('https://a.example/') to fetch it, or yield an "
                "item, {'text': ...}"
            ),
        ),
        ("a title", "a str ('a title'): yield an item, {'text': ...}"),
        (
            PAGE,
            (
                "a Response (<200 http://a.example/>): yield an item made from it, or response.follow(...) to fetch "
                "another page"
            ),
        ),
        (
            PAGE.css("p::text"),
            (
                "a SelectorList ([<Selector query='descendant-or-self::p/text()' data='text'>...): yield an item with "
                "its text, {'text': selected.get()}"
            ),
        ),
        ([1], "a list ([1]): write yield from, to yield each of its elements"),
        ({1}, "a set ({1}): write yield from, to yield each of its elements"),
        (ValueError("v"), "a ValueError (ValueError('v')): raise it"),
        (
            Point,
            "a class (<class 'tests.crawl.diagnostics.test_user_errors.Point'>): yield an instance of it, Point(...)",
        ),
        (3, "an int (3): yield items (a dict, a dataclass...) or Requests"),
        (BrokenRepr(), "a BrokenRepr: yield items (a dict, a dataclass...) or Requests"),
        ("x" * 99, f"a str ('{'x' * 59}...): yield an item, {{'text': ...}}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_wrong_result_is_explained(value: Any, line: str) -> None:
    assert user_errors.check_result(value, "parse") == f"parse yielded {line}"


def test_generators_and_coroutines_as_results_are_explained() -> None:
    assert user_errors.check_result(QUOTES.parse(PAGE), "p").endswith(
        ": write yield from, to yield each of its elements"
    )
    assert user_errors.check_result(QUOTES.parse_many(PAGE), "p").endswith(": write async for each in ...: yield each")
    coroutine = QUOTES.parse_later(PAGE)
    assert user_errors.check_result(coroutine, "p").endswith(": await it, as in yield await ...")
    assert user_errors.check_storable("meta", {"a": coroutine}).endswith("cannot be stored: await it first")
    coroutine.close()


def test_objects_of_scrapy_are_explained() -> None:
    kind = type("FormRequest", (), {"__module__": "scrapy.http.request.form"})
    assert user_errors.check_result(kind(), "parse").endswith(": write from lycosa import FormRequest")


def returns_value(response: Any) -> Iterator[Any]:
    yield {}
    if response:
        return {"lost": 1}


def returns_nothing(response: Any) -> Iterator[Any]:
    def inner() -> int:
        return 1

    yield inner()
    if response:
        return None
    if not response:
        return
    yield from [lambda: 2]


def plain(response: Any) -> dict[str, Any]:
    return {}


def test_a_return_value_lost_in_a_generator_is_found() -> None:
    line = returns_value.__code__.co_firstlineno + 3
    expected = (
        f"returns_value is a generator, so `return {{'lost': 1}}` in line {line} is lost: yield the value, then return"
    )
    assert user_errors.check_lost_return(returns_value) == expected
    wrapped = functools.wraps(returns_value)(lambda response: plain(response) or returns_value(response))
    assert user_errors.check_lost_return(wrapped) == expected


@pytest.mark.parametrize("function", [returns_nothing, plain, QUOTES.parse_later, QUOTES.parse, print])
def test_functions_without_a_lost_value_have_no_message(function: Any) -> None:
    assert user_errors.check_lost_return(function) == ""


def test_a_generator_without_source_has_no_message() -> None:
    namespace: dict[str, Any] = {}
    exec("def parse(r):\n    yield 1\n    return 2\n", namespace)
    assert user_errors.check_lost_return(namespace["parse"]) == ""


class Plain(Spider):
    name = "plain"

    def start(self) -> Any:
        yield Request("http://a.example/")


class Empty(Spider):
    name = "empty"

    async def start(self) -> None:  # type: ignore[override]
        return


class Old(Spider):
    name = "old"

    def start_requests(self) -> Any:
        yield Request("http://a.example/")


class Both(Old):
    async def start(self) -> AsyncIterator[Request]:
        for request in self.start_requests():
            yield request


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Quotes, ""),
        (Both, ""),
        (Plain, "Plain.start is not async: write async def start(self), and yield Requests"),
        (Empty, "Empty.start yields nothing: yield Requests in it"),
        (Old, "Old.start_requests is never called: write async def start(self) instead"),
    ],
)
def test_invalid_start_methods_are_explained(kind: type[Spider], line: str) -> None:
    assert user_errors.check_start(kind()) == line


@pytest.mark.parametrize(("method", "hint"), [("prase", "; did you mean prase?"), ("parse_item", ": write it")])
def test_a_missing_method_is_named_with_its_misspelling(method: str, hint: str) -> None:
    spider = type("A", (Spider,), {"name": "a", method: lambda self, response: None})()
    assert user_errors.check_missing_method(spider, "parse") == f"A has no parse(){hint}"


@pytest.mark.parametrize(
    ("urls", "line"),
    [
        (["https://a.example/", "FTP://x/"], ""),
        (("http://a.example/",), ""),
        ("https://a.example/", "start_urls of Q is a string: write a list, ['https://a.example/']"),
        (5, "start_urls of Q is an int (5): write a list of URLs"),
        (["http://a/", "a.example/x"], "start_urls[1] of Q is 'a.example/x': write 'https://a.example/x'"),
        (["//a.example/"], "start_urls[0] of Q is '//a.example/': write 'https://a.example/'"),
        ([None], "start_urls[0] of Q is a NoneType (None): write a URL as a string"),
    ],
)
def test_invalid_start_urls_are_explained(urls: Any, line: str) -> None:
    assert user_errors.check_start_urls(urls, "Q") == line


@pytest.mark.parametrize("domain", ["example.com", ".example.com", "localhost", "127.0.0.1", "[::1]"])
def test_valid_allowed_domains_have_no_message(domain: str) -> None:
    assert user_errors.check_allowed_domains([domain, None], "Q") == "", "as in Scrapy, None does not count"


@pytest.mark.parametrize(
    ("domain", "right"),
    [
        ("https://example.com", "example.com"),
        ("https://u:p@example.com/x?y", "example.com"),
        ("example.com:8080", "example.com"),
        ("example.com/path", "example.com"),
        ("*.example.com", "example.com"),
        ("http://[::1]:80/", "[::1]:80"),
    ],
)
def test_a_url_or_port_in_allowed_domains_is_explained(domain: str, right: str) -> None:
    line = user_errors.check_allowed_domains(["a.example", domain], "Q")
    assert line == f"allowed_domains of Q has {domain!r}: write {right!r}, which includes its subdomains"


def test_domains_that_are_not_a_list_of_text_are_explained() -> None:
    text = "allowed_domains of Q is a string: write a list, ['example.com']"
    assert user_errors.check_allowed_domains("example.com", "Q") == text
    assert user_errors.check_allowed_domains(7, "Q") == "allowed_domains of Q is an int (7): write a list of domains"
    line = "allowed_domains of Q has a bytes (b'x'): write domains as strings, 'example.com'"
    assert user_errors.check_allowed_domains([b"x"], "Q") == line


def test_misspelled_attributes_are_found() -> None:
    wrong = type("Wrong", (Spider,), {"name": "w", "start_url": "http://a.example/"})
    assert user_errors.check_attributes(wrong()) == "Wrong.start_url has no effect: did you mean start_urls?"
    assert user_errors.check_attributes(QUOTES) == ""


class UsesIt(Spider):
    name = "uses-it"
    start_url = "http://a.example/"
    allowed_domain = "a.example"

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        self.start_urls, self.allowed_domains = [self.start_url], [self.allowed_domain]


class HasBoth(Spider):
    name = "has-both"
    start_urls = ("http://a.example/",)
    start_url = "http://b.example/"


class Starts(Spider):
    name = "starts"
    start_url = "http://a.example/"

    async def start(self) -> AsyncIterator[Any]:
        yield "nothing"


class BuildsOn(UsesIt):
    start_url = "http://b.example/"


class Forgets(Spider):
    name = "forgets"
    allowed_domain = ("a.example",)


@pytest.mark.parametrize("spider", [UsesIt, HasBoth, Starts, BuildsOn])
def test_attributes_that_the_spider_uses_have_no_message(spider: type[Spider]) -> None:
    assert user_errors.check_attributes(spider(start_url="http://c.example/")) == ""


def test_an_attribute_that_is_never_used_is_found() -> None:
    line = "Forgets.allowed_domain has no effect: did you mean allowed_domains?"
    assert user_errors.check_attributes(Forgets()) == line


class Good:
    def process_request(self, request: Any) -> None: ...
    def process_url(self, url: str) -> None: ...
    @classmethod
    def from_crawler(cls, crawler: Any) -> Any: ...
    def spider_opened(self) -> None: ...


def part(name: str) -> object:
    return type("Part", (), {name: lambda self, request: None})()


@pytest.mark.parametrize(
    ("name", "rest"),
    [
        ("process_requests", "did you mean process_request?"),
        ("process_reponse", "did you mean process_response?"),
        ("proces_exception", "did you mean process_exception?"),
        ("process_spider_outputs", "did you mean process_spider_output?"),
        ("process_start_requests", "write async def process_start(self, start)"),
        ("process_item", "it is a method of pipelines: put the class into pipelines"),
        ("process_spider_output_async", "write process_spider_output as an async generator instead"),
    ],
)
def test_methods_that_are_never_called_are_found(name: str, rest: str) -> None:
    assert user_errors.check_methods(part(name), METHODS) == f"Part.{name} is never called: {rest}"
    assert user_errors.check_methods(type(part(name)), METHODS) == f"Part.{name} is never called: {rest}"


def test_correct_methods_and_methods_with_other_names_have_no_message() -> None:
    assert user_errors.check_methods(Good(), METHODS) == ""
    assert user_errors.check_methods(part("process_items"), ["process_item"]) == (
        "Part.process_items is never called: did you mean process_item?"
    )
    assert user_errors.check_methods(part("process_item"), ["process_item"]) == ""


def test_every_method_has_a_line_for_what_it_may_return() -> None:
    assert set(METHODS) <= set(user_errors.RETURNS)


@pytest.mark.parametrize(
    ("method", "value", "line"),
    [
        (
            "Part.process_request",
            True,
            "returned a bool (True): return None, a Response, a Request or an item, or raise IgnoreRequest",
        ),
        (
            "Part.process_response",
            None,
            (
                "returned None: return a Response, a Request or an item, or raise IgnoreRequest "
                "(it usually ends with return response)"
            ),
        ),
        (
            "Part.process_spider_output",
            3,
            "returned an int (3): return items and Requests: a list or a generator of them",
        ),
        ("Part.process_item", None, "returned None: return the item, or raise DropItem"),
        ("Part.other", 1, "returned an int (1): return a valid value"),
    ],
)
def test_a_wrong_return_value_is_explained(method: str, value: Any, line: str) -> None:
    assert user_errors.check_returned(method, value) == f"{method} {line}"


def test_a_coroutine_that_was_not_awaited_is_explained() -> None:
    coroutine = QUOTES.parse_later(PAGE)
    line = user_errors.check_returned("Part.process_exception", coroutine)
    coroutine.close()
    assert line.endswith("(a plain method that calls an async one has to be async too, and await it)")


def test_messages_have_one_line() -> None:
    line = user_errors.check_result("two\nlines " * 40, "parse")
    assert "\n" not in line
    assert len(line) < 250


class AgentAttribute(Spider):
    name = "agent-attribute"
    user_agent = "Mine/1.0"


def test_an_attribute_that_became_a_setting_is_found() -> None:
    line = "AgentAttribute.user_agent has no effect: write custom_settings = {'USER_AGENT': 'Mine/1.0'}"
    assert user_errors.check_attributes(AgentAttribute()) == line


def test_an_old_start_requests_that_returns_a_list_is_found() -> None:
    class Before(Spider):
        name = "before"

        def start_requests(self) -> list[Request]:
            return [Request("http://a.example/")]

    assert (
        user_errors.check_start(Before())
        == "Before.start_requests is never called: write async def start(self) instead"
    )
