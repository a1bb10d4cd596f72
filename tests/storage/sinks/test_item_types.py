"""Which items are written, and how (C8)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import pydantic
import pytest

from lycosa.core.errors import BadItem
from lycosa.crawl.items.page_item import PageItem
from lycosa.storage.sinks.file import FileSink
from tests.storage.output_files import lines
from tests.storage.written_sinks import FILES, put, run


@dataclass
class Book:
    title: str
    price: Decimal


@attrs.define
class Film:
    title: str
    year: int


class Song(pydantic.BaseModel):
    title: str
    released: date


class Colour(Enum):
    RED = "red"


class Foreign:
    """A number type of another library."""


def page(text: str = "text") -> PageItem:
    return PageItem(
        "http://a/", "http://a/", 200, "text/html", "T", ["h"], text, "en", 3, "2026-01-01T00:00:00Z", 0, "f"
    )


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (Book("b", Decimal("1.10")), '{"title":"b","price":"1.10"}'),
        (Film("f", 1979), '{"title":"f","year":1979}'),
        (Song(title="s", released=date(2026, 1, 2)), '{"title":"s","released":"2026-01-02"}'),
        ({"song": [Song(title="s", released=date(2026, 1, 2))]}, '{"song":[{"title":"s","released":"2026-01-02"}]}'),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "n": 2**70},
            '{"at":"2026-01-02T00:00:00Z","n":1180591620717411303424}',
        ),
        ({"b": b"ab", "s": {1}, "t": (1, 2), "c": Colour.RED}, '{"b":"YWI=","s":[1],"t":[1,2],"c":"red"}'),
        ({"nan": float("nan"), "none": None, 1: True}, '{"nan":null,"none":null,"1":true}'),
        ({"half": "a\ud83d", "pair": "\ud83d\ude00"}, '{"half":"a\ufffd","pair":"😀"}'),
        ({"path": Path("a/b"), "range": range(3)}, '{"path":"a/b","range":[0,1,2]}'),
    ],
)
def test_items_of_many_types_are_written_as_json(tmp_path, item, line):
    asyncio.run(run(FileSink(tmp_path / "i.jsonl"), None, item))
    assert (tmp_path / "i.jsonl").read_text() == line + "\n"


def cyclic_item() -> dict[str, Any]:
    item: dict[str, Any] = {}
    item["self"] = item
    return item


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"a": 1, "price": Foreign()},
            "price: a 'Foreign' cannot be written; only text, numbers, dates, bytes, lists, dicts and items can (dict)",
        ),
        ({"a": [{"b": 1}, {"b": Foreign()}]}, "a[1].b: "),
        (Film("t", Foreign()), "year: "),  # type: ignore[arg-type]
        (Book("t", Foreign()), "price: "),  # type: ignore[arg-type]
        (page(Foreign()), "text: "),  # type: ignore[arg-type]
        ({"a": {(1, 2): 3}}, "a: cannot be written; the keys of a dict must be text or numbers (dict)"),
        ({"a": "\ud800", "b": Foreign()}, "b: "),
        (Foreign(), "a 'Foreign' cannot be written; only"),
        (cyclic_item(), "cannot be written"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_invalid_item_is_refused_with_its_field_and_not_written(tmp_path, item, message):
    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
        await sink.open(None)
        with pytest.raises(BadItem) as caught:
            put(sink, item)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        put(sink, {"next": 1})
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"next": 1}]


def test_later_changes_of_an_item_are_not_written(tmp_path):
    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
        await sink.open(None)
        item = {"n": 1}
        put(sink, item)
        item["n"] = 2
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"n": 1}]


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_only_items_with_fields_are_rows(tmp_path, kind):
    with pytest.raises(BadItem, match="cannot be a row of a table: only an item with fields can"):
        FILES[kind](tmp_path / f"i.{kind}").prepare(["a"])
