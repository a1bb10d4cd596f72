"""The values of a search index: what it stores of an item, and what it answers."""

from __future__ import annotations

from typing import NamedTuple


class Document(NamedTuple):
    """What an index stores of an item. `key` makes a second version replace the first."""

    key: str
    url: str
    title: str
    text: str
    headings: str = ""
    lang: str = ""
    fetched_at: str = ""


class Hit(NamedTuple):
    """One search result. `snippet` and `title_html` are escaped HTML in which only `<b>` marks the words found."""

    url: str
    title: str
    title_html: str
    snippet: str
    fetched_at: str
    lang: str
    score: float


class SearchPage(NamedTuple):
    """One page of results: how many documents match in all, these hits, and the time the index took.

    `partial` is true when no document has all the words asked for, and these have most of them.
    """

    total: int
    hits: list[Hit]
    took_ms: float
    partial: bool = False
