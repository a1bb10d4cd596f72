"""Splits text into words, in the same way for documents, queries and all back ends.

Text is folded first: it is converted to lower case, accents and vowel points are removed, compatibility forms are
replaced ("Résumé", also in full-width letters, becomes "resume"), and underscores become spaces. A word is a run of
letters and digits; a run of more than `WORD_MAX` characters is cut into words of that length. In scripts without spaces
between words (Han, Kana, Hangul, Thai, Lao, Burmese, Khmer) every character is a word, and a query word of several
characters is a phrase.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import accumulate

WORD_MAX = 64
COUNTER_DIGITS = 3
"""A number with at most this many digits is taken as the number of a file, track, page, episode or month."""
_STRIDE = 256

_UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e80-\u0edf\u1000-\u109f\u1100-\u11ff\u1780-\u17dd\u2e80-\u2fdf\u3005-\u3007"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua4cf"
    "\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
# Indic scripts and Tibetan. Their vowel signs belong to words, but \w does not match them.
_SIGNED = "\u0900-\u0963\u0966-\u0dff\u0f18-\u0f84\u0f88-\u0fbc"
_DROPPED = (
    "\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u200c-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff"
)

_IS_DROPPED = re.compile(f"[{_DROPPED}]")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_IS_SIGNED = re.compile(f"[{_SIGNED}]")
_NOT_ASCII = re.compile("[^\x00-\x7f]+")
_HALF_WIDTH_KANA = re.compile("[\uff66-\uff9f]+")
_ASCII_WORD = re.compile(rf"\w{{1,{WORD_MAX}}}", re.ASCII)
_NO_DECOMPOSITION = str.maketrans(
    {"ø": "o", "đ": "d", "ð": "d", "ł": "l", "ħ": "h", "\u0131": "i", "ŧ": "t", "æ": "ae", "œ": "oe", "þ": "th"}
)


_LETTER = rf"[^\W{_UNSPACED}]"
SPACED_LETTER = rf"(?:{_LETTER}|[{_SIGNED}])"
"""Regular expression for a character of folded text that continues a word."""


# These three take 45 ms to compile, so they are compiled when they are needed.
@cache
def _word(letter: str) -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}]|{letter}{{1,{WORD_MAX}}}")


@cache
def _unit(letter: str) -> re.Pattern[str]:
    number = rf"\d{{1,{COUNTER_DIGITS}}}"
    counted = rf"[{_UNSPACED}]?{number}[{_UNSPACED}]|[{_UNSPACED}]{number}(?!{letter})"
    run = rf"(?:[{_UNSPACED}](?!{number}(?!{letter})))+"
    return re.compile(rf"{counted}|{run}|{letter}{{1,{WORD_MAX}}}")


@cache
def _parts() -> re.Pattern[str]:
    return re.compile(f"[{_UNSPACED}]|[^{_UNSPACED}]+")


def _letter_of(folded: str) -> str:
    return SPACED_LETTER if _IS_SIGNED.search(folded) else _LETTER


def normalize(text: str) -> str:
    """Compose characters, so that each can be folded separately."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFC", text)
    return _HALF_WIDTH_KANA.sub(lambda run: unicodedata.normalize("NFKC", run[0]), text)


def fold(text: str) -> str:
    """Fold normalized text character by character: a substring folds to a substring of the result."""
    if not text.isascii():
        text = _NOT_ASCII.sub(lambda run: run[0].translate(_FOLDED), text)
    return text.lower().replace("_", " ")


def original_index(text: str, folded_index: int) -> int:
    """Map an index in `fold(text)` to the normalized `text`. An index beyond the end becomes `len(text)`."""
    passed = 0
    for start in range(0, len(text), _STRIDE):
        stride = text[start : start + _STRIDE]
        size = len(fold(stride))
        if passed + size > folded_index:
            ends = accumulate((len(fold(char)) for char in stride), initial=passed)
            return start + sum(1 for end in ends if end <= folded_index) - 1
        passed += size
    return len(text)


def folded_starts(text: str) -> list[int]:
    """Map every index in `fold(text)` to the normalized `text`. The last entry is `len(text)`."""
    starts = list[int]()
    for place, char in enumerate(text):
        starts += [place] * (1 if char < "\x80" else len(_FOLDED[ord(char)]))
    return [*starts, len(text)]


def words(text: str) -> list[str]:
    """Return the folded words in order."""
    folded = fold(normalize(text))
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    return _word(_letter_of(folded)).findall(folded)


def units(text: str) -> list[str]:
    """Return the folded words in order. Adjacent characters of scripts without spaces form one unit.

    A number of at most COUNTER_DIGITS digits forms a unit with just the characters next to it: "第 3 集".
    """
    folded = fold(normalize(text))
    if folded.isascii():
        return _ASCII_WORD.findall(folded)
    found = _unit(_letter_of(folded)).findall(folded)
    return [" ".join(_parts().findall(unit)) if _IS_UNSPACED.search(unit) else unit for unit in found]


def is_unspaced(word: str) -> bool:
    """Return whether the word is one character of a script without spaces."""
    return _IS_UNSPACED.match(word) is not None


class _Folded(dict[int, str]):
    """A `str.translate` table, filled on demand."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_char(chr(code))
        return folded


def _fold_char(char: str) -> str:
    if _IS_DROPPED.match(char):
        return ""
    if not _word(SPACED_LETTER).match(char):
        return " "
    decomposed = unicodedata.normalize("NFKD", char.casefold())
    composed = unicodedata.normalize("NFKC", _IS_DROPPED.sub("", decomposed))
    lower = composed.casefold().translate(_NO_DECOMPOSITION)
    return "".join(each if _word(SPACED_LETTER).match(each) else " " for each in lower)


_FOLDED = _Folded()
