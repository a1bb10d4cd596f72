"""An index of pages. It stores the documents of a crawl, and returns results with titles and snippets."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.analyzer import words
from lycosa.search.core.highlight import Highlighter
from lycosa.search.core.query import check_page, parse_query, site_names
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.results import Document, SearchPage
from lycosa.search.core.schema import IndexEntry
from lycosa.search.ports import Index
from lycosa.search.speller import Speller
from lycosa.search.word_list import WordCounter

TEXT_MAX = 2_000_000
"""Maximum number of characters of a document's text to index; the whole text is stored."""


class PageIndex:
    """Implements `search.ports.DocumentIndex`. `close` also closes the index and the word list."""

    def __init__(self, index: Index, words: WordCounter | None = None, speller: Speller | None = None) -> None:
        self._index, self._words, self._speller = index, words, speller

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        return self._index.schema.fields

    def add(self, documents: Sequence[Document]) -> None:
        entries = [_entry(document) for document in documents]
        if self._words:
            self._words.add(entries)
        self._index.add(analysis_of(self._index.analysis).entries(entries))

    def commit(self, positions: Mapping[str, int]) -> None:
        self._index.commit(positions)
        if self._words:
            self._words.commit()

    def positions(self) -> dict[str, int]:
        return self._index.positions()

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        started = time.perf_counter()
        check_page(limit, offset)
        analysis = analysis_of(self._index.analysis)
        parsed = analysis.query(parse_query(query))
        found = self._index.find(SearchRequest(parsed, limit=limit, offset=offset))
        suggestion = self._speller.suggestion(query, found.total, self._has_more) if self._speller else ""
        loose = None if found.total else parsed.loosened()
        if loose:
            found = self._index.find(SearchRequest(loose, limit=limit, offset=offset))
        highlighter = Highlighter(parsed, analysis)
        hits = [highlighter.hit(_document(match.stored), match.score) for match in found.page]
        took_ms = (time.perf_counter() - started) * 1000
        return SearchPage(found.total, hits, took_ms, bool(loose and found.total), suggestion)

    def count(self) -> int:
        return self._index.count()

    def close(self) -> None:
        self._index.close()
        if self._words:
            self._words.close()

    def _has_more(self, query: str, total: int) -> bool:
        parsed = analysis_of(self._index.analysis).query(parse_query(query))
        return self._index.has_matches(SearchRequest(parsed), total)


def _entry(document: Document) -> IndexEntry:
    texts = {
        "title": document.title,
        "headings": document.headings,
        "text": document.text[:TEXT_MAX],
        "url": document.url,
    }
    return IndexEntry(
        document.key,
        {name: " ".join(words(text)) for name, text in texts.items()},
        keywords={"site": site_names(document.url)},
        stored=msgspec.msgpack.encode(document),
    )


def _document(stored: bytes) -> Document:
    return msgspec.msgpack.decode(stored, type=Document)
