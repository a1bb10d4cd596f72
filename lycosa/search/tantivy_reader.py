"""Searches the documents of one commit of a tantivy index.

If very many documents may match, totals and counts of values are estimated from the newest documents
(`tantivy_slices`).

- Pages sorted by relevance first show the matches among the newest documents, the best first, and then the matches
  among the older documents.
- Pages sorted by a number are always exact. A first search, in the newest documents, fills the page. The last
  number on this page, rounded to an hour or a step, is the bound of a second search, in all documents. The bound is
  dropped if too many documents are within it: more than half as many as may match. If the page reaches documents
  without the number, the first search is repeated among more documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import tantivy
from tantivy import Occur, Order, Query

from lycosa.search.core.request import IndexMatch, Matches, SearchRequest, ValueCounts, ValueFilter
from lycosa.search.core.schema import Schema
from lycosa.search.tantivy_documents import has_search_terms
from lycosa.search.tantivy_queries import TantivyQueries
from lycosa.search.tantivy_ranges import Days, Steps, whole_hours
from lycosa.search.tantivy_slices import Part, Slices


class _PageHits(NamedTuple):
    total: int
    hits: list[tuple[Any, tantivy.DocAddress]]


class TantivyReader:
    """Searches the commit that `stamp` identifies."""

    def __init__(self, schema: Schema, index: tantivy.Index, stamp: tuple[int, int]) -> None:
        self.stamp = stamp
        self._schema, self._fields, self._searcher = schema, index.schema, index.searcher()
        fields, searcher = self._fields, self._searcher
        # Without `self`: a reader in a cycle would keep the files of its commit until the next garbage collection.
        self._days = cache(lambda: Days(fields, searcher) if has_search_terms(fields) else None)
        self._queries = TantivyQueries(schema, index.schema, self._searcher.doc_freq, self._days)

    @property
    def count(self) -> int:
        return self._searcher.num_docs

    @cached_property
    def _slices(self) -> Slices | None:
        return Slices(self._fields, self._searcher) if has_search_terms(self._fields) else None

    @cached_property
    def _steps(self) -> Steps | None:
        return Steps(self._fields, self._searcher, self._schema) if has_search_terms(self._fields) else None

    def find(self, request: SearchRequest) -> Matches:
        rarer = None if request.exact else self._queries.rarer(request)
        if rarer and (found := self._search(rarer, request)).total:
            return Matches(found.total, self._page(request, found), exact=False)
        part = self._newest(request)
        # `near` also scores the words as a phrase. That is slow, and wasted on documents that a filter excludes.
        near = not request.sort and (part.is_all or not request.filters)
        while part.query:
            found = self._search(part.of(self._queries.of(request, near=False)), request)
            if part.has_enough(found.total):
                missing = request.offset + request.limit - found.total
                if missing <= 0:
                    page = self._sorted(request, part, found) if request.sort else found
                    return Matches(part.total(found.total), self._page(request, page), exact=False)
                if not request.sort:
                    found = self._continued(request, part, found, missing)
                    return Matches(found.total, self._page(request, found))
                break
            part = self._more(part, found.total)
        found = self._search(self._queries.of(request, near=near), request)
        return Matches(found.total, self._page(request, found))

    def has_matches(self, request: SearchRequest, more_than: int) -> bool:
        query, newest = self._queries.of(request, near=False), self._newest(request)
        return any(
            len(self._searcher.search(part.of(query), more_than + 1, count=False).hits) > more_than
            for part in dict.fromkeys([newest, Part()])
        )

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        wanted: dict[str, Any] = {field: {"terms": {"field": field, "size": limit}} for field, limit in limits.items()}
        if self._schema.numeric_keys:
            wanted["matches"] = {"value_count": {"field": "key"}}
        part = self._newest(request)
        while True:
            found = self._searcher.aggregate(part.of(self._queries.of(request, near=False)), wanted)
            if part.is_all or part.has_enough(found["matches"]["value"]):
                break
            part = self._more(part, found["matches"]["value"])
        values = {
            field: {bucket["key"]: part.total(bucket["doc_count"]) for bucket in found[field]["buckets"]}
            for field in limits
        }
        return ValueCounts(values, part.is_all)

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        ranges = [{"from": low, "to": high} for low, high in pairwise(bounds)]
        wanted = {field: {"range": {"field": field, "ranges": ranges}}}
        found = self._searcher.aggregate(self._queries.of(request, near=False), wanted)
        counts = {bucket.get("from", 0): bucket["doc_count"] for bucket in found[field]["buckets"]}
        return [counts[low] for low, _ in pairwise(bounds)]

    def _newest(self, request: SearchRequest) -> Part:
        if request.exact or self._slices is None:
            return Part()
        return self._slices.first(self._queries.most(request, self.count))

    def _more(self, part: Part, matches: int) -> Part:
        return self._slices.more(part, matches) if self._slices else Part()

    def _continued(self, request: SearchRequest, part: Part, newest: _PageHits, missing: int) -> _PageHits:
        """Return the number of all matches, and the hits of the page. Documents outside the part rank after those of
        the part."""
        rest = request._replace(offset=max(request.offset - newest.total, 0), limit=min(missing, request.limit))
        older = self._search(part.outside(self._queries.of(rest, near=False)), rest)
        return _PageHits(newest.total + older.total, [*newest.hits, *older.hits])

    def _search(self, query: Query, request: SearchRequest) -> _PageHits:
        found = self._searcher.search(
            query,
            request.limit,
            offset=request.offset,
            order_by_field=request.sort or None,
            order=Order.Asc if request.ascending else Order.Desc,
        )
        return _PageHits(int(found.count), found.hits)  # type: ignore[attr-defined]  # missing in the type stubs

    def _sorted(self, request: SearchRequest, part: Part, newest: _PageHits) -> _PageHits:
        """Return an exact page sorted by a number. `newest` is the page made from the documents of the part only."""
        while not part.is_all:
            (number,) = self._searcher.fast_field_values(request.sort, [newest.hits[-1][1]])
            if number is not None:
                high, low = (int(number), None) if request.ascending else (None, int(number))
                return self._search(self._within(request, ValueFilter(request.sort, low, high)), request)
            part = self._slices.wider(part) if self._slices else Part()
            newest = self._search(part.of(self._queries.of(request, near=False)), request)
        return newest

    def _within(self, request: SearchRequest, bound: ValueFilter) -> Query:
        """Return the query for the matches within a bound. It may also find matches beyond it, if this is faster."""
        query, within = self._queries.of(request, near=False), None
        most = self._queries.most(request, self.count) // 2  # more documents within the bound would only take longer
        if bound.field == self._schema.time:
            bound = whole_hours(bound)
            days = self._days()
            within = self._queries.filter(bound) if days is None or days.most(bound) <= most else None
        elif bound.field in self._schema.stepped and self._steps:
            within = self._steps.query(bound, most)
        else:
            within = self._queries.filter(bound)
        return Query.boolean_query([(Occur.Must, query), (Occur.Must, within)]) if within else query

    def _page(self, request: SearchRequest, found: _PageHits) -> list[IndexMatch]:
        scores = [0.0 if request.sort else score for score, _ in found.hits]
        addresses = [address for _, address in found.hits]
        if self._schema.numeric_keys:
            keys = self._searcher.fast_field_values("key", addresses)
            return [IndexMatch(int(key or 0), score) for key, score in zip(keys, scores, strict=True)]
        stored = (self._searcher.doc(address)["doc"][0] for address in addresses)
        return [IndexMatch("", score, each) for each, score in zip(stored, scores, strict=True)]
