"""Suggests another spelling for a query with few results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from lycosa.core.errors import BadQuery
from lycosa.search.core.spelling import respell
from lycosa.search.word_list import WordList

FEW = 3
"""Other spellings are tried for a query with at most this many results."""
TRIES = 4
"""Maximum number of spellings searched."""
CHECKED = 5
"""Maximum number of words of a query for which replacements are looked up."""
RARER = 10
"""A replacement must be at least this many times as frequent as the word of the query."""


class Speller:
    """Suggests spellings and completions from a word list."""

    def __init__(self, words: WordList) -> None:
        self._words = words

    def completions(self, prefix: str, limit: int) -> list[str]:
        """Return frequent words that begin with `prefix`, which must be folded."""
        return self._words.completions(prefix, limit)

    def suggestion(self, query: str, total: int, has_more: Callable[[str, int], bool]) -> str:
        """Return another spelling of the query that has more than `total` results; "" if there is none, or `total`
        exceeds FEW.

        `has_more` returns whether a spelling has more than this many results.
        """
        if total > FEW:
            return ""
        with self._words.connected() as words:
            tried = list(dict.fromkeys(_spellings(words, query)))[:TRIES]

        def finds_more(other: str) -> bool:
            with suppress(BadQuery):  # a spelling may be too long, or have too many words
                return other != query and has_more(other, total)
            return False

        return next(filter(finds_more, tried), "")


def _spellings(words: WordList, query: str) -> Iterator[str]:
    better: dict[str, list[str]] = {}

    def note(word: str) -> str:
        if len(better) < CHECKED:
            better.setdefault(word, [])
        return ""

    respell(query, note)
    known = words.frequencies(better)
    for word in better:
        better[word] = _better(words, word, known.get(word, 0))
    best = {word: found[0] for word, found in better.items() if found}
    yield respell(query, lambda word: best.get(word, ""))
    for word, found in better.items():
        for other in found:
            yield respell(query, lambda each, word=word, other=other: other if each == word else "")  # type: ignore[misc]


def _better(words: WordList, word: str, frequency: int) -> list[str]:
    found = [other for other, _ in words.similar(word, max(frequency * RARER, 1))][:2]
    divided = "" if frequency else words.divided(word)
    return [*found, divided] if divided else found
