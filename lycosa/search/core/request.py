"""Requests to a search index, and its answers."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.search.core.query import LooseQuery, SearchQuery


class ValueFilter(NamedTuple):
    """Selects documents whose number is within the bounds (inclusive), or whose keyword is one of the values.

    Documents without a value do not match.
    """

    field: str
    low: int | None = None
    high: int | None = None
    values: tuple[str, ...] = ()


class SearchRequest(NamedTuple):
    """Requests a page of the matches of a query; without a query, of all documents.

    `sort` is one of `Schema.numbers`, or "" for relevance. Documents without the number come last in either direction.
    Without a query and `sort`, the order is undefined.
    """

    query: SearchQuery | LooseQuery | None = None
    filters: tuple[ValueFilter, ...] = ()
    sort: str = ""
    ascending: bool = False
    limit: int = 10
    offset: int = 0
    without: tuple[int, ...] = ()
    """Numeric keys of documents to leave out."""
    exact: bool = False
    """Whether totals and counts must be exact, even if this is slow."""


class IndexMatch(NamedTuple):
    """A matching document, with the data stored with it."""

    key: str | int
    score: float
    stored: bytes = b""


class Matches(NamedTuple):
    """The total number of matches (an estimate, unless `exact`), and one page of them."""

    total: int
    page: list[IndexMatch]
    exact: bool = True


class ValueCounts(NamedTuple):
    """The number of matches for each value of each keyword: estimates, unless `exact`."""

    values: dict[str, dict[str, int]]
    exact: bool = True
