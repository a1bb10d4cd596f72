"""What callbacks may return (C1): every form gives the same results, and errors name the callback."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from lycosa.core.errors import BadSpider
from lycosa.crawl.spiders.results import Results, collect
from lycosa.html.links import PageLink
from lycosa.http.core.request import Request

A, B = {"n": 1}, Request("http://a.example/")
LINK = PageLink("http://a.example/l", 1, "http://a.example:80", False)


def collected(returned: Any) -> Results:
    return asyncio.run(collect(returned, "parse"))


def generator() -> Any:
    yield A
    yield None
    yield B


async def agenerator() -> Any:
    yield A
    yield B


async def coroutine() -> Any:
    return [A, B]


async def coroutine_of_generator() -> Any:
    return generator()


@pytest.mark.parametrize(
    "make",
    [generator, agenerator, coroutine, coroutine_of_generator, lambda: [A, B], lambda: (A, B), lambda: iter([A, B])],
)
def test_every_form_of_callback_gives_the_same_results(make: Any) -> None:
    assert collected(make()) == Results([A], [B], [])


def test_a_single_result_or_none_may_be_returned() -> None:
    assert collected(None) == Results([], [], [])
    assert collected(A) == Results([A], [], [])
    assert collected(B) == Results([], [B], [])
    assert collected(LINK) == Results([], [], [LINK])
    assert collected([A, LINK]) == Results([A], [], [LINK])


@dataclass
class Book:
    title: str


class Film(msgspec.Struct):
    title: str


@pytest.mark.parametrize("item", [Book("x"), Film("x"), {"title": "x"}])
def test_items_may_be_dicts_dataclasses_or_structs(item: Any) -> None:
    assert collected([item]).items == [item]


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (5, "an int (5): yield items"),
        ("http://a.example/", "a str ('http://a.example/'): yield response.follow("),
        (b"x", "a bytes (b'x'): yield"),
        (Book, "a class (<class"),
        (1.5, "a float (1.5): yield items"),
    ],
)
def test_a_wrong_result_is_refused_with_advice(result: Any, message: str) -> None:
    with pytest.raises(BadSpider, match=re.escape(f"parse yielded {message}")):
        collected([result])


def test_an_exception_of_a_generator_is_raised() -> None:
    def broken() -> Any:
        yield A
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        collected(broken())
