"""Convert an item to a document: the fields of a page (`PageItem`) are known, those of other items are guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import xxhash

from lycosa.search.core.results import Document

DEPTH_MAX = 20
"""Maximum nesting depth at which strings are collected."""

_KNOWN = frozenset(
    {"url", "final_url", "link", "title", "name", "headings", "lang", "language", "fingerprint", "fetched_at"}
)
_PAGE_ONLY = frozenset({"status", "content_type", "out_links", "depth"})


def to_document(item: Mapping[str, Any], line: bytes) -> Document:
    """Return the document of an item; `line` is the item as JSON.

    The key is its fingerprint, else its URL, else a hash of the line. The title is its `title` or `name`. The text of a
    page is its `text`; the text of other items is every string outside the known fields.
    """
    url = _first(item, "final_url", "url", "link")
    is_page = "text" in item and item.keys() >= _PAGE_ONLY
    texts = [item["text"]] if is_page else [value for name, value in item.items() if name not in _KNOWN]
    return Document(
        key=_first(item, "fingerprint") or url or xxhash.xxh3_128_hexdigest(line),
        url=url,
        title=_first(item, "title", "name"),
        text="\n".join(_strings(texts)),
        headings="\n".join(_strings(item.get("headings", ""))),
        lang=_first(item, "lang", "language"),
        fetched_at=_first(item, "fetched_at"),
    )


def _first(item: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := item.get(name), str) and value), "")


def _strings(value: Any, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict) and depth < DEPTH_MAX:
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each, depth + 1)
