"""Documents, and what a search returns."""

from __future__ import annotations

from typing import NamedTuple


class Document(NamedTuple):
    """An item in a search index. A document replaces the one with the same `key`."""

    key: str
    url: str
    title: str
    text: str
    headings: str = ""
    lang: str = ""
    fetched_at: str = ""


class Hit(NamedTuple):
    """One search result. `snippet` and `title_html` are escaped HTML, with matching words in `<b>`."""

    url: str
    title: str
    title_html: str
    snippet: str
    fetched_at: str
    lang: str
    score: float


class SearchPage(NamedTuple):
    """One page of results, with the total number of matches and the duration of the search.

    `partial`: no document has all words of the query; the hits have some of them. `suggestion`: if there are few
    results, another spelling of the query that has more; else "".
    """

    total: int
    hits: list[Hit]
    took_ms: float
    partial: bool = False
    suggestion: str = ""
