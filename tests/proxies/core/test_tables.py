"""Tables of a project file: the values they may have, and the errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest
from msgspec import Meta, Struct

from lycosa.core.errors import BadProxy, BadSetting
from lycosa.proxies.core.tables import DURATION, Text, Texts, TextTable, read_table


class Color(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Part:
    color: Color
    weight: Annotated[float, Meta(ge=0, le=2000)] = 1.0


@dataclass(frozen=True)
class Address:
    host: str


class Table(Struct, frozen=True, rename={"every_s": "every"}):
    every_s: Annotated[float, Meta(ge=1, le=1000, extra=DURATION)] = 60.0
    count: Annotated[int, Meta(ge=1, le=9)] | None = None
    on: bool = False
    names: Texts = ()
    sizes: frozenset[int] = frozenset()
    tags: TextTable = {}
    parts: Annotated[list[Part], Meta(max_length=2)] = []
    addresses: tuple[Address, ...] = ()
    word: Annotated[Text, Meta(min_length=2)] = "word"


def parse_address(text: str) -> Address:
    if "." not in text:
        raise BadProxy(f"{text} has no dot")
    return Address(text)


def read(values: object, *, secret: bool = False) -> Table:
    return read_table(values, Table, "top", secret=secret, parsers={Address: parse_address})


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, Table()),
        ({"every": "2m"}, Table(every_s=120.0)),
        ({"every": 5, "count": 3, "on": True}, Table(every_s=5.0, count=3, on=True)),
        ({"names": "one", "sizes": 7}, Table(names=("one",), sizes=frozenset({7}))),
        ({"names": ["one", "two"], "tags": {"asn": 64512}}, Table(names=("one", "two"), tags={"asn": "64512"})),
        ({"parts": [{"color": "red"}]}, Table(parts=[Part(Color.RED)])),
        ({"addresses": "a.example"}, Table(addresses=(Address("a.example"),))),
    ],
)
def test_a_table_becomes_a_value(values: object, expected: Table) -> None:
    assert read(values) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (3, "top: 3 is not a table: write [top]"),
        ({"wrod": 1}, "top: there is no 'wrod': did you mean word?"),
        ({"every": "soon"}, "top.every: 'soon' is not a number from 1 to 1,000, or a duration such as \"10m\""),
        ({"every": "1d"}, 'top.every: 86400.0 is not a number from 1 to 1,000, or a duration such as "10m"'),
        ({"count": 1.0}, "top.count: 1.0 is not a whole number from 1 to 9"),
        ({"on": 1}, "top.on: 1 is not true or false"),
        ({"names": [True]}, "top.names[1]: True is not a text of 0 to 4,096 characters"),
        ({"tags": {"a": [1]}}, "top.tags: {'a': [1]} is not a table: write { name = \"value\" }"),
        ({"parts": 1}, "top.parts: 1 is not a list of at most 2 tables: write [[top.parts]]"),
        ({"parts": [{"color": "red"}, {}]}, "top.parts[2].color: it is missing: write one of red, green"),
        ({"parts": [{"color": "blue"}]}, "top.parts[1].color: 'blue' is not one of red, green"),
        ({"parts": [{"color": "red", "size": 1}]}, "top.parts[1]: there is no 'size': write color, weight"),
        ({"addresses": ["a.example", "b"]}, "top.addresses[2]: b has no dot"),
        ({"word": "x"}, "top.word: 'x' is not a text of 2 to 4,096 characters"),
        ({1: 2}, "top: there is no '1': write every, count, on, names, sizes, tags, parts, addresses, word"),
    ],
)
def test_an_error_names_the_key_the_problem_and_the_remedy(values: object, message: str) -> None:
    with pytest.raises(BadSetting) as caught:
        read(values)
    assert str(caught.value) == message


def test_the_error_of_a_secret_table_repeats_no_value() -> None:
    with pytest.raises(BadSetting) as caught:
        read({"word": "p" * 5000}, secret=True)
    assert str(caught.value) == "top.word: this is not a text of 2 to 4,096 characters"


def test_a_long_value_is_truncated_in_the_error() -> None:
    with pytest.raises(BadSetting, match=r"^top\.word: 'x{59}… is not a text"):
        read({"word": "x" * 5000})
