"""Find words of a query that may be mistyped, and listed words of similar spelling.

A slip is a missing, added or replaced letter, or two transposed adjacent letters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from lycosa.search.core.analyzer import fold, normalize
from lycosa.search.core.torrent_query import KEYWORDS, NUMBERS

CHECKED_MIN = 4
"""Minimum number of letters of a corrected word. Shorter words are similar to too many others."""
CHECKED_MAX = 24
TWO_SLIPS_MIN = 6
"""Minimum number of letters of a word in which two slips are corrected."""

_SKIPPED = "|".join(["site", *NUMBERS, *KEYWORDS])
_PART = re.compile(
    rf"""(?P<skipped>(?<!\S)(?:-(?:"[^"]*"|\S+)|(?-i:NOT)\s+(?:"[^"]*"|\S+)|(?:{_SKIPPED}):\S+))
        |(?<![^\W_])(?P<word>[^\W\d_]{{{CHECKED_MIN},{CHECKED_MAX}}})(?![^\W_]|:)""",
    re.VERBOSE | re.IGNORECASE,
)
_ALPHABETS = (("a", "z"), ("а", "я"), ("α", "ω"), ("א", "ת"), ("ء", "ي"))  # noqa: RUF001


def respell(query: str, choose: Callable[[str], str]) -> str:
    """Return the query with mistyped words replaced.

    `choose` gets each word that may be mistyped, in folded form, and returns the replacement, or "" to keep the word.
    Filters, exclusions, words with digits and short words stay as they are.
    """

    def replaced(found: re.Match[str]) -> str:
        word = found["word"]
        return (word and choose(fold(normalize(word)))) or found[0]

    return _PART.sub(replaced, query)


def slips_allowed(word: str) -> int:
    """Return the maximum number of slips corrected in this word."""
    if not CHECKED_MIN <= len(word) <= CHECKED_MAX:
        return 0
    return 2 if len(word) >= TWO_SLIPS_MIN else 1


def one_slip(word: str) -> set[str]:
    """Return all texts that differ from the word by one slip, with letters of the word's alphabet only."""
    letters = _letters(word)
    parts = [(word[:place], word[place:]) for place in range(len(word) + 1)]
    found = {head + tail[1:] for head, tail in parts if tail}
    found |= {head + tail[1] + tail[0] + tail[2:] for head, tail in parts if len(tail) > 1}
    found |= {head + letter + tail[1:] for head, tail in parts if tail for letter in letters}
    found |= {head + letter + tail for head, tail in parts for letter in letters}
    return found - {word}


def two_words(word: str) -> Iterator[tuple[str, str]]:
    """Yield the ways to divide a word into two parts of at least two letters."""
    for place in range(2, len(word) - 1):
        yield word[:place], word[place:]


def nearest(word: str, listed: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the listed words within `slips_allowed`, and their frequencies.

    Words with fewer slips come first; of words with the same number of slips, the more frequent ones.
    """
    most = slips_allowed(word)
    letters, places = set(word), _places(word)
    ranked = []
    for other, frequency in set(listed):
        if other == word or len(letters.symmetric_difference(other)) > 2 * most:
            continue
        slips = _distance(len(word), places, other, most)
        if slips <= most:
            ranked.append((slips, -frequency, other))
    return [(other, -frequency) for _, frequency, other in sorted(ranked)]


def distance(one: str, other: str, most: int) -> int:
    """Return the number of slips between two words (restricted Damerau-Levenshtein distance), or `most` + 1 if there
    are more than `most`."""
    return _distance(len(one), _places(one), other, most)


def _places(word: str) -> dict[str, int]:
    places: dict[str, int] = {}
    for place, letter in enumerate(word):
        places[letter] = places.get(letter, 0) | 1 << place
    return places


def _distance(length: int, places: dict[str, int], other: str, most: int) -> int:
    """Compute `distance`.

    Two bit masks hold a column of the dynamic programming table, with one bit for each row. The bit in `more` is
    set if the distance is one more than in the row above, and the bit in `less` if it is one less (H. Hyyro, A
    bit-vector algorithm for computing Levenshtein and Damerau edit distances, 2003).
    """
    if abs(length - len(other)) > most:
        return most + 1
    rows, last = (1 << length) - 1, 1 << (length - 1)
    more, less, same, before, slips = rows, 0, 0, 0, length
    left = len(other)
    for letter in other:
        found = places.get(letter, 0)
        swapped = ((~same & found) << 1) & before
        same = ((((found & more) + more) ^ more) | found | less | swapped) & rows
        right_more = (less | ~(same | more)) & rows
        right_less = same & more
        left -= 1
        slips += bool(right_more & last) - bool(right_less & last)
        if slips - left > most:
            return most + 1
        right_more = right_more << 1 | 1
        more = (right_less << 1 | ~(same | right_more)) & rows
        less = right_more & same & rows
        before = found
    return slips


def _letters(word: str) -> str:
    for first, last in _ALPHABETS:
        if first <= word[0] <= last:
            return "".join(map(chr, range(ord(first), ord(last) + 1)))
    return ""
