"""Optional steps of text analysis, chosen by the operator.

    simplified        replaces traditional Chinese characters with simplified characters
    stem-LANGUAGE     removes the endings of words, with the Snowball stemmer of this language
    names-only        indexes a torrent by its own name, without the names of its files

The first two apply to the words of documents and of queries. The index stores the names of its steps, because queries
need the same steps as the documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from lycosa.core.errors import IndexFailure
from lycosa.search.core.analyzer import SPACED_LETTER, fold, is_unspaced
from lycosa.search.core.query import SearchQuery, Term
from lycosa.search.core.schema import IndexEntry
from lycosa.search.core.simplified import SIMPLIFIED

STEM = "stem-"
NAMES_ONLY = "names-only"
STEMS_KEPT = 100_000
ENDING_MAX = 6
"""Maximum number of letters after a stem in a highlighted word. Longer words are not highlighted."""


class Analysis:
    """Text analysis with these steps. Raises `IndexFailure` for an unknown name."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self.names = tuple(names)
        self.names_only = NAMES_ONLY in names
        self._simplifies = "simplified" in names
        stemmers = [_stemmer(name.removeprefix(STEM)) for name in names if name.startswith(STEM)]
        self._stem = lru_cache(STEMS_KEPT)(stemmers[0]) if stemmers else None
        self._changes = self._simplifies or bool(stemmers)
        unknown = [name for name in names if name not in {"simplified", NAMES_ONLY} and not name.startswith(STEM)]
        if unknown or len(stemmers) > 1:
            problem = f"{unknown[0][:20]!r} is unknown" if unknown else "has two stemmers"
            known = f"simplified, {NAMES_ONLY}, or {STEM}LANGUAGE of one language"
            raise IndexFailure(f"the analysis {problem}: use {known}")

    def entries(self, entries: Sequence[IndexEntry]) -> Sequence[IndexEntry]:
        return [each._replace(texts=self._texts(each.texts)) for each in entries] if self._changes else entries

    def query(self, query: SearchQuery) -> SearchQuery:
        if not self._changes:
            return query
        clauses = tuple(tuple(map(self._term, clause)) for clause in query.clauses)
        return query._replace(clauses=clauses, excluded=tuple(map(self._term, query.excluded)))

    def fold(self, text: str) -> str:
        """Fold normalized text like `analyzer.fold`, and apply the step `simplified`."""
        folded = fold(text)
        return folded.translate(SIMPLIFIED) if self._simplifies else folded

    def pattern(self, word: str) -> str:
        """Return a regular expression that finds a query word in the result of `fold`."""
        if self._stem is None or is_unspaced(word):
            return re.escape(word)
        # A stem that ends in i often belongs to a word that ends in y.
        stem = re.escape(word[:-1]) + "[iy]" if word.endswith("i") else re.escape(word)
        return rf"{stem}{SPACED_LETTER}{{0,{ENDING_MAX}}}"

    def _texts(self, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: " ".join(map(self._word, text.split())) for name, text in texts.items()}

    def _term(self, term: Term) -> Term:
        return term if term.where == "site" else term._replace(words=tuple(map(self._word, term.words)))

    def _word(self, word: str) -> str:
        if self._simplifies:
            word = word.translate(SIMPLIFIED)
        return self._stem(word) or word if self._stem else word


PLAIN = Analysis()


@lru_cache(16)
def analysis_of(names: tuple[str, ...]) -> Analysis:
    """Return a cached `Analysis`."""
    return Analysis(names)


def _stemmer(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError:
        raise IndexFailure(f"{STEM}{language} needs a library: pip install 'lycosa[stem]'") from None
    if language not in snowballstemmer.algorithms():
        known = ", ".join(sorted(snowballstemmer.algorithms()))
        raise IndexFailure(f"{STEM}{language[:20]}: there is no stemmer of this language: use one of {known}")
    # A stemmer has state, and threads share this function: each word gets a new stemmer.
    return lambda word: str(snowballstemmer.stemmer(language).stemWord(word))
