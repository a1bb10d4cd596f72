"""Converts an item to a document. The fields of a `PageItem` are known; for other items the user names them, or they
are guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import xxhash

from lycosa.search.core.results import Document

PARTS = ("title", "text", "headings", "url", "lang", "date", "key")
"""The parts of a document that the user can map to fields."""
DEPTH_MAX = 20

_KNOWN = frozenset(
    {"url", "final_url", "link", "title", "name", "headings", "lang", "language", "fingerprint", "fetched_at"}
)
_PAGE_ONLY = frozenset({"status", "content_type", "out_links", "depth"})


Fields = Mapping[str, Sequence[str]]


def to_document(item: Mapping[str, Any], line: bytes, fields: Fields | None = None) -> Document:
    """Return the document of an item; `line` is the item as JSON.

    `fields` maps parts of the document to fields of the item, such as {"title": ["name"], "text": ["maker.name"]}.
    Other parts are guessed: the key is the item's fingerprint, else its URL, else a hash of the line. The title is its
    `title` or `name`. The text of a page is its `text`; the text of other items is every string in the
    remaining fields.
    """
    fields = fields or {}
    named = {part: "\n".join(_named(item, paths)) for part, paths in fields.items()}
    used = _KNOWN.union(*([path, path.partition(".")[0]] for paths in fields.values() for path in paths))
    url = named.get("url", _first(item, "final_url", "url", "link"))
    is_page = "text" in item and item.keys() >= _PAGE_ONLY
    texts = [item["text"]] if is_page else [value for name, value in item.items() if name not in used]
    return Document(
        key=named.get("key", _first(item, "fingerprint")) or url or xxhash.xxh3_128_hexdigest(line),
        url=url,
        title=named.get("title", _first(item, "title", "name")),
        text=named["text"] if "text" in named else "\n".join(_strings(texts)),
        headings=named.get("headings", "\n".join(_strings(item.get("headings", "")))),
        lang=named.get("lang", _first(item, "lang", "language")),
        fetched_at=named.get("date", _first(item, "fetched_at")),
    )


def _named(item: Mapping[str, Any], paths: Sequence[str]) -> Iterator[str]:
    """Yield the texts and numbers in these fields; a.b is the field b in the field a."""
    for path in paths:
        value: Any = item
        for name in [path] if path in item else path.split("."):
            value = value.get(name) if isinstance(value, dict) else None
        yield from [str(value)] if type(value) in {int, float} else _strings(value)


def _first(item: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := item.get(name), str) and value), "")


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict) and depth < DEPTH_MAX:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each, depth + 1)
