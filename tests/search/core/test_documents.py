"""Documents made from items (C7): from the known fields of pages, and from named or likely fields of other items."""

from __future__ import annotations

import json

import msgspec
import pytest

from lycosa.crawl.items.page_item import PageItem
from lycosa.search.core.documents import DEPTH_MAX, to_document
from lycosa.search.core.results import Document

AT = "2026-11-21T07:00:00Z"


def test_document_of_a_page():
    item = PageItem("http://h/1", "http://h/final", 200, "text/html", "T", ["A", "B"], "body", "en", 3, AT, 1, "00ff")
    line = msgspec.json.encode(item)
    assert to_document(json.loads(line), line) == Document("00ff", "http://h/final", "T", "body", "A\nB", "en", AT)


def test_document_of_named_fields():
    item = {"id": 7, "name": "Lamp", "maker": {"name": "Ada", "town": "X"}, "price": 3, "tags": ["red"], "title": "no"}
    fields = {"key": ["id"], "title": ["name"], "text": ["maker.name", "price", "missing.field", "tags"]}
    assert to_document(item, b"", fields) == Document("7", "", "Lamp", "Ada\n3\nred")
    assert to_document(item, b"", {"title": ["name"]})._replace(key="") == Document("", "", "Lamp", "Ada\nX\nred")
    assert to_document({"a.b": "dotted", "a": 1}, b"", {"url": ["a.b"], "date": ["a"]}) == (
        Document("dotted", "dotted", "", "", fetched_at="1")
    )


@pytest.mark.parametrize(
    ("item", "document"),
    [
        (
            {"url": "http://h/", "name": "Lamp", "price": 3, "tags": ["red", {"size": "big"}], "note": None},
            Document("http://h/", "http://h/", "Lamp", "red\nbig"),
        ),
        ({"title": ["no string"], "text": "words", "url": 5}, Document("", "", "", "words")),
        ({"fingerprint": "ff", "link": "http://l/", "language": "zh"}, Document("ff", "http://l/", "", "", "", "zh")),
        ({}, Document("", "", "", "")),
    ],
)
def test_document_of_any_item(item, document):
    made = to_document(item, b"the line")
    assert made._replace(key="") == document._replace(key="")
    assert made.key == (document.key or to_document({}, b"the line").key)


def test_key_of_an_item_without_url_is_a_hash_of_its_line():
    keys = {to_document({"a": "b"}, line).key for line in (b"one", b"two", b"one")}
    assert len(keys) == 2


def test_nesting_depth_is_bounded():
    deep: object = "at the bottom"
    for _ in range(DEPTH_MAX + 5):
        deep = [deep]
    assert to_document({"deep": deep}, b"").text == ""
