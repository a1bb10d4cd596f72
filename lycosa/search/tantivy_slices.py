"""The slices of a tantivy index. Each has the documents of SLICE_KEYS consecutive keys, so the last slices have the
newest documents.

A request that may match very many documents is answered from the newest slices only: as many as it takes to have enough
matches. So it takes as long with ten million documents as with one million, unless it filters by a number other than
the time.
"""

from __future__ import annotations

from typing import NamedTuple

import tantivy
from tantivy import Occur, Query

FIELD = "slice"
SLICE_KEYS = 1 << 14
COUNTED_MAX = 50_000
"""If at most this many documents can match, all documents are searched."""
SAMPLE = 4_000
"""Number of matches expected in the slices that are searched first."""
SAMPLE_MIN = 500
"""Minimum number of matches in the slices that answer a request. A total estimated from so few matches is wrong by a
few percent, and by more if older slices differ.
"""
GROWTH = 8
"""Factor by which a part grows if too few of its documents have the number to sort by."""
FEW = 20
"""If the slices have fewer matches, all documents are searched."""


class Part(NamedTuple):
    """Some of the documents, or all. `query` selects them without affecting scores; None selects all.

    `share` is their share of all documents.
    """

    query: Query | None = None
    share: float = 1.0

    @property
    def is_all(self) -> bool:
        return self.query is None

    def of(self, query: Query) -> Query:
        return Query.boolean_query([(Occur.Must, query), (Occur.Must, self.query)]) if self.query else query

    def outside(self, query: Query) -> Query:
        others = [(Occur.MustNot, self.query)] if self.query else [(Occur.Must, Query.empty_query())]
        return Query.boolean_query([(Occur.Must, query), *others])

    def has_enough(self, matches: int) -> bool:
        """Return whether this part has enough matches to answer the request. The requested page does not matter,
        so all pages of a search use the same part."""
        return self.is_all or matches >= SAMPLE_MIN

    def total(self, count: int) -> int:
        """Extrapolate a count to all documents. An estimate is rounded to two significant digits."""
        return count if self.is_all else int(float(f"{count / self.share:.1e}"))


class Slices:
    """The slices at one commit."""

    def __init__(self, fields: tantivy.Schema, searcher: tantivy.Searcher) -> None:
        self._fields = fields
        self._newest = sorted(searcher.terms_with_prefix(FIELD, ""), reverse=True)
        self._documents = sum(count for _, count in self._newest)

    def first(self, most: int) -> Part:
        """Return the documents to search first. `most` is an upper bound for the number of matches."""
        return self._newest_part(SAMPLE / most) if most > COUNTED_MAX else Part()

    def more(self, part: Part, matches: int) -> Part:
        """Return the documents to search next after a part with too few matches."""
        return self._newest_part(part.share * 2 * SAMPLE_MIN / matches) if matches >= FEW else Part()

    def wider(self, part: Part) -> Part:
        """Return the documents to search next if too few documents of a part have the number to sort by."""
        return self._newest_part(part.share * GROWTH)

    def _newest_part(self, share: float) -> Part:
        if share > 0.5:
            return Part()
        names: list[str] = []
        documents = 0
        for name, count in self._newest:
            names.append(name)
            documents += count
            if documents >= share * self._documents:
                break
        query = Query.term_set_query(self._fields, FIELD, names)
        return Part(Query.const_score_query(query, 0.0), documents / self._documents)


def slice_of(key: int) -> str:
    """Return the slice of a key. Slices sort as their keys do."""
    return f"{key // SLICE_KEYS:012x}"
