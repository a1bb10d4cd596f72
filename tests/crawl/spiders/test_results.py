"""What callbacks may return (C1): each form means the same results, and nonsense is named."""

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
def test_every_form_of_callback(make: Any) -> None:
    assert collected(make()) == Results([A], [B], [])


def test_single_results_and_none() -> None:
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
def test_kinds_of_items(item: Any) -> None:
    assert collected([item]).items == [item]


@pytest.mark.parametrize(
    ("nonsense", "told"),
    [
        (5, "an int (5): yield items"),
        ("http://a.example/", "a str ('http://a.example/'): yield response.follow("),
        (b"x", "a bytes (b'x'): yield"),
        (Book, "a class (<class"),
        (1.5, "a float (1.5): yield items"),
    ],
)
def test_nonsense_is_named(nonsense: Any, told: str) -> None:
    with pytest.raises(BadSpider, match=re.escape(f"parse yielded {told}")):
        collected([nonsense])


def test_an_error_in_the_middle_comes_out() -> None:
    def broken() -> Any:
        yield A
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        collected(broken())
