"""A search index in memory: for tests, small sites and reading. Finds what the embedded one finds, by looking at all.

A field is kept as " word word word ": a word or a phrase is there exactly when " word " or " word word " is in it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lycosa.search.core.analyzer import words
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import LooseQuery, SearchQuery, Term, check_page, parse_query, site_names
from lycosa.search.core.results import Document, Hit, SearchPage

WEIGHTS = {"title": 4.0, "headings": 2.0, "text": 1.0, "url": 0.6}


class _Entry(NamedTuple):
    document: Document
    sites: frozenset[str]
    fields: dict[str, str]

    def weight(self, term: Term) -> float:
        """Return how often the term is there, weighted; 0 when it is not."""
        if term.where == "site":
            return float(term.words[0] in self.sites)
        needle = f" {' '.join(term.words)} "
        places = ["title"] if term.where == "title" else list(WEIGHTS)
        return sum(WEIGHTS[place] * math.log1p(self.fields[place].count(needle)) for place in places)


class MemoryIndex:
    """An `Index` that ends with the process."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._added: list[Document] = []
        self._positions: dict[str, int] = {}

    def add(self, documents: Sequence[Document]) -> None:
        """Add or replace documents by key; visible after `commit`."""
        self._added += documents

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make the added documents searchable, and remember how far each source was read (bytes)."""
        added, self._added = self._added, []
        self._entries = self._entries | {document.key: _entry(document) for document in added}
        self._positions = {**self._positions, **positions}

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit."""
        return dict(self._positions)

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        """Return the best matches, see `search.core.query` for the language. Raises `IndexFailure`."""
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
        hits = [_hit(entry.document, score, highlighter) for score, entry in scored[offset : offset + limit]]
        took_ms = (time.perf_counter() - started) * 1000
        return SearchPage(len(scored), hits, took_ms, bool(loose and scored))

    def count(self) -> int:
        """Return the number of documents."""
        return len(self._entries)

    def close(self) -> None:
        """Drop what was not committed."""
        self._added.clear()


def _entry(document: Document) -> _Entry:
    texts = {"title": document.title, "headings": document.headings, "text": document.text, "url": document.url}
    fields = {field: f" {' '.join(words(text))} " for field, text in texts.items()}
    return _Entry(document, frozenset(site_names(document.url)), fields)


def _score(entry: _Entry, query: SearchQuery) -> float:
    """Return 0 for a document that does not match."""
    counts = [max(entry.weight(term) for term in clause) for clause in query.clauses]
    return sum(counts) if all(counts) and not _is_excluded(entry, query) else 0.0


def _loose_score(entry: _Entry, query: LooseQuery) -> float:
    optional = [count for term in query.optional if (count := entry.weight(term))]
    required = [max(entry.weight(term) for term in clause) for clause in query.clauses]
    enough = len(optional) >= query.needed and all(required) and not _is_excluded(entry, query)
    return sum(optional) + sum(required) if enough else 0.0


def _is_excluded(entry: _Entry, query: SearchQuery | LooseQuery) -> bool:
    return any(entry.weight(term) for term in query.excluded)


def _hit(document: Document, score: float, highlighter: Highlighter) -> Hit:
    return Hit(
        url=document.url,
        title=document.title,
        title_html=highlighter.title(document.title),
        snippet=highlighter.snippet(document.text or document.headings),
        fetched_at=document.fetched_at,
        lang=document.lang,
        score=score,
    )
