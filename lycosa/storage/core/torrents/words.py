"""Splits names into words, and finds listed words in them.

A name is compared in lower case and compatibility form (NFKC), with dots and underscores replaced by spaces, and 【】
by []. Words are runs of letters and digits. A run of Chinese, Japanese or Korean characters is one word; listed words
are found inside it. A listed word may have several parts ("web dl").

A list may contain the hash of a word, so that it can be published without revealing the word. `4-0123456789abcdef` is
the length of the word and 8 bytes of BLAKE2b. A hashed word has at most three parts, joined without spaces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import add
from typing import Generic, TypeVar

from lycosa.core.errors import UsageError

PARTS_MAX = 4
"""Maximum number of parts of a listed word."""
HASHED = re.compile(r"([1-9][0-9]?)-([0-9a-f]{16})")
FIRST_RUN = "\u2e80"
"""The first character of the scripts that have no spaces between words."""

UNLISTED_MAX = 1 << 16
"""Maximum number of words remembered as not listed; they take about 8 MB."""

_DIGEST = blake2b(digest_size=8, person=b"torrent word")
_SEPARATORS = str.maketrans("._【】\u00d7", "  []x")
_ASCII_WORDS = re.compile(r"[a-z0-9]+")
_WORDS = re.compile(
    r"[a-z0-9\u00b5-\u00d6\u00d8-\u00f6\u00f8-\u10ff\u1200-\u1fff]+"
    r"|[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u303c\u3041-\u309f\u30a1-\u30fa\u30fc-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

T = TypeVar("T")


def normalized(text: str) -> str:
    """Return the normalized form of a text, in which words and patterns are searched."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).casefold()
    return text.lower().translate(_SEPARATORS)


def words_of(text: str) -> list[str]:
    """Return the words of a normalized text."""
    return (_ASCII_WORDS if text.isascii() else _WORDS).findall(text)


def hashed_word(word: str) -> str:
    """Return the hashed form of a word. Raises `UsageError` unless it has 2 to 99 letters and digits."""
    joined = "".join(words_of(normalized(word)))
    if not 2 <= len(joined) <= 99:
        raise UsageError(f"a hashed word has 2 to 99 letters and digits, not {len(joined)}")
    return f"{len(joined)}-{_digest(joined).hex()}"


def _digest(word: str) -> bytes:
    digest = _DIGEST.copy()
    digest.update(word.encode() if word.isascii() else word.encode("utf-8", "surrogatepass"))
    return digest.digest()


class WordIndex(Generic[T]):
    """Maps listed words, plain and hashed, to values. Raises `UsageError` for an invalid word."""

    def __init__(self, clear: Iterable[tuple[str, T]], hashed: Iterable[tuple[str, T]] = ()) -> None:
        self._by_first: dict[str, list[tuple[tuple[str, ...], T]]] = {}
        self._inside: dict[str, list[T]] = {}
        self._hashed: dict[int, dict[bytes, list[T]]] = {}
        self._unlisted: set[str] = set()
        for word, value in clear:
            self._add(word, value)
        for word, value in hashed:
            self._add_hashed(word, value)
        longest_first = sorted(self._inside, key=len, reverse=True)
        self._inside_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def find(self, words: Sequence[str]) -> list[T]:
        """Return the values of all listed words in this sequence, with repetitions."""
        found: list[T] = []
        for place, word in enumerate(words):
            if word >= FIRST_RUN:
                for inside in self._inside_pattern.findall(word):
                    found += self._inside[inside]
            elif entries := self._by_first.get(word):
                for rest, value in entries:
                    if not rest or tuple(words[place + 1 : place + 1 + len(rest)]) == rest:
                        found.append(value)
        return found + self._find_hashed(words) if self._hashed and words else found

    def _find_hashed(self, words: Sequence[str]) -> list[T]:
        """Return the values of hashed words. Each string is looked up once, even if it occurs several times.

        The strings are: each word, two and three consecutive words joined, and, in scripts without spaces, pieces of
        words. The same words occur in many names, so words that are not listed are cached.
        """
        if words and max(words) < FIRST_RUN:
            pairs = [*map(add, words, words[1:])]
            joined = {*words, *pairs, *map(add, pairs, words[2:])}
        else:
            joined = self._joined_with_runs(words)
        found: list[T] = []
        by_length, unlisted = self._hashed, self._unlisted
        if len(unlisted) > UNLISTED_MAX:
            unlisted.clear()
        for word in joined - unlisted:
            if (by_digest := by_length.get(len(word))) is None:
                continue
            if values := by_digest.get(_digest(word)):
                found += values
            else:
                unlisted.add(word)
        return found

    def _joined_with_runs(self, words: Sequence[str]) -> set[str]:
        """Return the strings to look up if some words are runs. A run is a word in a script without spaces.

        The strings are: each word; two and three consecutive words joined, unless one of them is a run; and each piece
        of a run that is as long as some hashed word.
        """
        following = [*words[1:], FIRST_RUN]
        joined = set(words)
        joined |= {one + two for one, two in zip(words, following, strict=True) if max(one, two) < FIRST_RUN}
        threes = zip(words, following, [*following[1:], FIRST_RUN], strict=True)
        joined |= {one + two + three for one, two, three in threes if max(one, two, three) < FIRST_RUN}
        for run in {word for word in words if word >= FIRST_RUN}:
            joined.update(run[at : at + length] for length in self._hashed for at in range(len(run) - length + 1))
        return joined

    def _add(self, word: str, value: T) -> None:
        parts = words_of(normalized(word))
        if not 1 <= len(parts) <= PARTS_MAX:
            raise UsageError(f"{word!r} does not have 1 to {PARTS_MAX} parts: a part is letters and digits")
        if parts[0] < FIRST_RUN:
            self._by_first.setdefault(parts[0], []).append((tuple(parts[1:]), value))
        elif len(parts) == 1:
            self._inside.setdefault(parts[0], []).append(value)
        else:
            raise UsageError(
                f"{word!r} begins with Chinese, Japanese or Korean characters: remove the spaces, or use a pattern"
            )

    def _add_hashed(self, word: str, value: T) -> None:
        if not (match := HASHED.fullmatch(word)):
            raise UsageError(f"{word!r} is not a hashed word, such as 4-0123456789abcdef")
        self._hashed.setdefault(int(match[1]), {}).setdefault(bytes.fromhex(match[2]), []).append(value)
