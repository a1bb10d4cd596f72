"""Marks the words of a query in titles and snippets. Returns escaped HTML with the matches in `<b>`.

Words are found by the rules of `search.core.analyzer`. A phrase, or a word of several parts, matches only where its
words are adjacent. `SNIPPET_TEXT_MAX` and `SPANS_MAX` bound the work for a text, and a run of letters is searched once
for each term.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice, pairwise
from typing import NamedTuple

from lycosa.search.core.analysis import PLAIN, Analysis
from lycosa.search.core.analyzer import SPACED_LETTER, WORD_MAX, folded_starts, is_unspaced, normalize, original_index
from lycosa.search.core.query import SearchQuery
from lycosa.search.core.release_names import season_of, spellings
from lycosa.search.core.results import Document, Hit

SNIPPET_CHARS = 240
SNIPPET_TEXT_MAX = 100_000
"""Maximum number of characters at the start of a text that are searched for a snippet."""
SPANS_MAX = 400
"""Maximum number of occurrences considered per term."""
GAP_MAX = 40
"""Maximum number of characters between two words of a marked phrase."""

_LETTER = re.compile(SPACED_LETTER)
_LETTERS = re.compile(f"{SPACED_LETTER}*")
_WORD_EDGE_CHARS = 24
_FIRST_SEARCH_CHARS = 16_000


class _Span(NamedTuple):
    start: int
    end: int
    term: int


class _Term(NamedTuple):
    """Finds the words of a term. If `spaced`, a match counts only if no letter follows it."""

    words: re.Pattern[str]
    spaced: bool
    part: str
    """A text without which there is no match."""
    word: str
    """The word of the term; "" if it has several."""


class _Text(NamedTuple):
    folded: str
    spellings: Mapping[str, Sequence[tuple[int, int]]] = {}  # it is never changed
    """Maps words to the starts and ends of the spellings that they replace."""


class Highlighter:
    """Marks the words of one query. With `releases`, it also marks other spellings of them in the names of releases:
    x265 and HEVC for h265."""

    def __init__(self, query: SearchQuery, analysis: Analysis = PLAIN, *, releases: bool = False) -> None:
        self._fold, self._releases = analysis.fold, releases
        terms = [term for clause in query.clauses for term in clause if term.where != "site"]
        loose = query.loosened()
        terms += loose.optional if loose else ()
        everywhere = dict.fromkeys(term.words for term in terms if term.where == "any")
        self._text = [_term(found, analysis) for found in everywhere]
        self._title = self._text + [_term(term.words, analysis) for term in terms if term.where == "title"]

    def hit(self, document: Document, score: float) -> Hit:
        return Hit(
            url=document.url,
            title=document.title,
            title_html=self.title(document.title),
            snippet=self.snippet(document.text or document.headings),
            fetched_at=document.fetched_at,
            lang=document.lang,
            score=score,
        )

    def title(self, title: str) -> str:
        text = normalize(_one_line(title))
        return _mark(text, _spans(self._folded(text), self._title))

    def other_matches(self, title: str, others: Iterable[str]) -> Iterator[str]:
        """Yield those other texts that match a term of the query which `title` lacks."""
        text = self._folded(normalize(title))
        lacked = [term for term in self._title if not _has(text, term)]
        for other in others if lacked else ():
            found = self._folded(normalize(other))
            possible = [term for term in lacked if term.part in found.folded or term.word in found.spellings]
            if any(_has(found, term) for term in possible):
                yield other

    def snippet(self, text: str) -> str:
        """Return the part of the text with the most query terms, as HTML."""
        text = normalize(text[:SNIPPET_TEXT_MAX])
        start, end = self._best_part(text)
        start, end = _at_words(text, start, end)
        part = normalize(_one_line(text[start:end]))
        shown = _mark(part, _spans(_Text(self._fold(part)), self._text))
        return f"{'… ' if start > 0 else ''}{shown}{' …' if end < len(text) else ''}"

    def _best_part(self, text: str) -> tuple[int, int]:
        shown, start, end = self._look(text[:_FIRST_SEARCH_CHARS])
        if len(text) > _FIRST_SEARCH_CHARS and shown <= len(self._text) // 2:
            _, start, end = self._look(text)
        return start, end

    def _look(self, text: str) -> tuple[int, int, int]:
        folded = self._fold(text)
        shown, start, end = _best_window(_spans(_Text(folded), self._text), SNIPPET_CHARS)
        if len(folded) != len(text):
            return shown, original_index(text, start), original_index(text, end)
        return shown, start, end

    def _folded(self, text: str) -> _Text:
        folded, spelled = self._fold(text), dict[str, list[tuple[int, int]]]()
        for start, end, word in spellings(folded) if self._releases else ():
            for each in filter(None, (word, season_of(word))):
                spelled.setdefault(each, []).append((start, end))
        return _Text(folded, spelled)


def _term(found: tuple[str, ...], analysis: Analysis) -> _Term:
    """Return a pattern for these words next to each other.

    Two choices make it fast. It begins with a literal, which `re` finds quickly. Without stemming it has no class of
    letters, which `re` takes two milliseconds to compile.
    """
    pieces = [analysis.pattern(found[0])]
    for before, word in pairwise(found):
        touching = is_unspaced(before) or is_unspaced(word) or len(before) == WORD_MAX
        pieces.append(rf"\W{{{0 if touching else 1},{GAP_MAX}}}{analysis.pattern(word)}")
    word = "" if len(found) > 1 else found[0]
    return _Term(re.compile("".join(pieces)), not is_unspaced(found[-1]), found[0].removesuffix("i"), word)


def _spans(text: _Text, terms: Sequence[_Term]) -> list[_Span]:
    found = (
        _Span(start, end, number)
        for number, term in enumerate(terms)
        for start, end in islice(_matches(text, term), SPANS_MAX)
    )
    return sorted(found)


def _has(text: _Text, term: _Term) -> bool:
    return next(_matches(text, term), None) is not None


def _matches(text: _Text, term: _Term) -> Iterator[tuple[int, int]]:
    """Yield the matches that are not parts of longer words."""
    yield from text.spellings.get(term.word, ())
    folded, at = text.folded, 0
    if term.part not in folded:
        return
    while found := term.words.search(folded, at):
        start, end = found.span()
        begins = not start or not _LETTER.match(folded, start) or not _LETTER.match(folded, start - 1)
        if begins and not (term.spaced and _LETTER.match(folded, end)):
            yield start, end
            at = end
        else:  # in the rest of this run of letters, no match begins a word
            at = max(start + 1, _LETTERS.match(folded, start).end())  # type: ignore[union-attr]  # it can be empty


def _best_window(spans: list[_Span], width: int) -> tuple[int, int, int]:
    """Return the number of distinct terms in the best window, and its start and end.

    The best window has the most distinct terms; of several such windows, the one with the most spans.
    """
    if not spans:
        return 0, 0, width
    best, best_at = (0, 0), (spans[0].start, spans[0].end)
    inside: dict[int, int] = {}
    first = 0
    for last, span in enumerate(spans):
        inside[span.term] = inside.get(span.term, 0) + 1
        while first < last and span.end - spans[first].start > width:
            left = spans[first].term
            inside[left] -= 1
            if not inside[left]:
                del inside[left]
            first += 1
        if (len(inside), last - first) > best:
            best, best_at = (len(inside), last - first), (spans[first].start, span.end)
    room = max(0, width - (best_at[1] - best_at[0]))
    start = max(0, best_at[0] - room // 3)  # some text before the match, more after it
    return best[0], start, max(start + width, best_at[1])


def _at_words(text: str, start: int, end: int) -> tuple[int, int]:
    """Shrink the window to whole words, if spaces are near its ends."""
    if start > 0:
        space = text.find(" ", start - 1, start + _WORD_EDGE_CHARS)
        start = space + 1 if space >= 0 else start
    if end < len(text):
        space = text.rfind(" ", end - _WORD_EDGE_CHARS, end + 1)
        end = space if space > start else end
    return start, min(end, len(text))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _mark(text: str, spans: list[_Span]) -> str:
    if not spans:
        return escape(text)
    starts = range(len(text) + 1) if text.isascii() else folded_starts(text)
    pieces: list[str] = []
    done = 0
    for start, end in _merged(spans):
        begin, after = starts[start], starts[end - 1] + 1
        pieces += [escape(text[done:begin]), "<b>", escape(text[max(done, begin) : after]), "</b>"]
        done = after
    pieces.append(escape(text[done:]))
    return "".join(pieces)


def _merged(spans: list[_Span]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end, _ in spans:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
