"""What an index is asked, and what it answers."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.search.core.query import LooseQuery, SearchQuery


class ValueFilter(NamedTuple):
    """Keeps documents whose number is within the bounds (inclusive), or whose keyword is one of the values.

    A document without a value is left out.
    """

    field: str
    low: int | None = None
    high: int | None = None
    values: tuple[str, ...] = ()


class SearchRequest(NamedTuple):
    """A page of the matches of a query; without a query, of all documents. `sort` is a number; "" is relevance.

    Documents without the number come last in either direction; without query and number, the order is undefined.
    """

    query: SearchQuery | LooseQuery | None = None
    filters: tuple[ValueFilter, ...] = ()
    sort: str = ""
    ascending: bool = False
    limit: int = 10
    offset: int = 0


class IndexMatch(NamedTuple):
    """A document that matches: its key, its score, and what was stored with it."""

    key: str | int
    score: float
    stored: bytes = b""


class Matches(NamedTuple):
    """The total number of matches, and those of the page that was asked for."""

    total: int
    page: list[IndexMatch]
