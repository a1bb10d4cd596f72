"""Requests to a search index, and its answers."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.search.core.query import LooseQuery, SearchQuery


class ValueFilter(NamedTuple):
    """Selects documents by a field: its number is within the bounds (inclusive), or its keyword is one of the values.

    Documents without a value are left out.
    """

    field: str
    low: int | None = None
    high: int | None = None
    values: tuple[str, ...] = ()


class SearchRequest(NamedTuple):
    """Requests a page of the matches of a query, or of all documents if there is no query.

    `sort` is the name of a number; "" is relevance. Documents without the number come last in either direction.
    With neither a query nor `sort`, the order is undefined.
    """

    query: SearchQuery | LooseQuery | None = None
    filters: tuple[ValueFilter, ...] = ()
    sort: str = ""
    ascending: bool = False
    limit: int = 10
    offset: int = 0
    without: tuple[int, ...] = ()
    """Numeric keys of documents that are not wanted."""
    exact: bool = False
    """Whether totals and counts must be exact, even if that takes long."""


class IndexMatch(NamedTuple):
    """A matching document: its key, its score, and the data stored with it."""

    key: str | int
    score: float
    stored: bytes = b""


class Matches(NamedTuple):
    """The total number of matches, and the matches of the requested page. `exact`: whether the total is no estimate."""

    total: int
    page: list[IndexMatch]
    exact: bool = True


class ValueCounts(NamedTuple):
    """The number of matches that have each value of keywords: exact, or estimates."""

    values: dict[str, dict[str, int]]
    exact: bool = True
