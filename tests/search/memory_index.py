"""A search index in memory, for tests. It has the same results as the embedded one, by a full scan.

A field is stored as " word word word ", so that a word or a phrase is found as the text " word " or " word word ".
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lycosa.search.core.analyzer import words
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import LooseQuery, SearchQuery, Term, check_page, parse_query, site_names
from lycosa.search.core.results import Document, SearchPage

WEIGHTS = {"title": 4.0, "headings": 2.0, "text": 1.0, "url": 0.6}


class _Entry(NamedTuple):
    document: Document
    sites: frozenset[str]
    fields: dict[str, str]

    def weight(self, term: Term) -> float:
        """Return the weighted frequency of the term; 0 if it is missing."""
        if term.where == "site":
            return float(term.words[0] in self.sites)
        needle = f" {' '.join(term.words)} "
        places = ["title"] if term.where == "title" else list(WEIGHTS)
        return sum(WEIGHTS[place] * math.log1p(self.fields[place].count(needle)) for place in places)


class MemoryIndex:
    """The `Index` port in memory."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._added: list[Document] = []
        self._positions: dict[str, int] = {}

    def add(self, documents: Sequence[Document]) -> None:
        self._added += documents

    def commit(self, positions: Mapping[str, int]) -> None:
        added, self._added = self._added, []
        # A new dict, since a search in another thread may iterate over the old one.
        self._entries = self._entries | {document.key: _entry(document) for document in added}
        self._positions = {**self._positions, **positions}

    def positions(self) -> dict[str, int]:
        return dict(self._positions)

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        started = time.perf_counter()
        check_page(limit, offset)
        parsed = parse_query(query)
        entries = list(self._entries.values())
        scored = [(score, entry) for entry in entries if (score := _score(entry, parsed))]
        loose = None if scored else parsed.loosened()
        if loose:
            scored = [(score, entry) for entry in entries if (score := _loose_score(entry, loose))]
        scored.sort(key=lambda pair: -pair[0])
        highlighter = Highlighter(parsed)
        hits = [highlighter.hit(entry.document, score) for score, entry in scored[offset : offset + limit]]
        took_ms = (time.perf_counter() - started) * 1000
        return SearchPage(len(scored), hits, took_ms, bool(loose and scored))

    def count(self) -> int:
        return len(self._entries)

    def close(self) -> None:
        self._added.clear()


def _entry(document: Document) -> _Entry:
    texts = {"title": document.title, "headings": document.headings, "text": document.text, "url": document.url}
    fields = {field: f" {' '.join(words(text))} " for field, text in texts.items()}
    return _Entry(document, frozenset(site_names(document.url)), fields)


def _score(entry: _Entry, query: SearchQuery) -> float:
    """Return the score of a document; 0 if it does not match."""
    counts = [max(entry.weight(term) for term in clause) for clause in query.clauses]
    return sum(counts) if all(counts) and not _is_excluded(entry, query) else 0.0


def _loose_score(entry: _Entry, query: LooseQuery) -> float:
    optional = [count for term in query.optional if (count := entry.weight(term))]
    required = [max(entry.weight(term) for term in clause) for clause in query.clauses]
    enough = len(optional) >= query.needed and all(required) and not _is_excluded(entry, query)
    return sum(optional) + sum(required) if enough else 0.0


def _is_excluded(entry: _Entry, query: SearchQuery | LooseQuery) -> bool:
    return any(entry.weight(term) for term in query.excluded)
