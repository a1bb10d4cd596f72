"""Splits names into words, and finds listed words in them.

A name is compared in lower case and compatibility form (NFKC), with spaces for dots and underscores. Words are runs of
letters and digits. A run of Chinese, Japanese or Korean characters is one word; listed words are found inside it. A
listed word may have several parts ("web dl").

A hashed word lets a list be published without revealing the word. `4-0123456789abcdef` is the length of the word, and
its BLAKE2b hash of 8 bytes. Its parts are joined without spaces. It is found in at most three consecutive words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import pairwise
from operator import add
from typing import Generic, TypeVar

from lycosa.core.errors import UsageError

PARTS_MAX = 4
HASHED = re.compile(r"([1-9][0-9]?)-([0-9a-f]{16})")
FIRST_RUN = "\u2e80"
"""The first code point of Chinese, Japanese and Korean characters."""

UNLISTED_MAX = 1 << 16
"""Maximum number of words remembered as not listed; they take about 8 MB."""

_DIGEST = blake2b(digest_size=8, person=b"torrent word")
_SEPARATORS = ((".", " "), ("_", " "), ("【", "["), ("】", "]"), ("\u00d7", "x"))
_ASCII_WORDS = "".join(char if char.islower() or char.isdigit() else " " for char in map(chr, range(128)))
"""Translates ASCII characters so that only words and spaces are left."""
_WORDS = re.compile(
    r"[a-z0-9\u00b5-\u00d6\u00d8-\u00f6\u00f8-\u10ff\u1200-\u1fff]+"
    r"|[\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u303c\u3041-\u309f\u30a1-\u30fa\u30fc-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]+"
)

T = TypeVar("T")


def normalized(text: str) -> str:
    """Return the form of a text in which words and patterns are searched."""
    if text.isascii():
        return text.lower().replace(".", " ").replace("_", " ")
    text = unicodedata.normalize("NFKC", text).casefold().lower()
    for separator, replacement in _SEPARATORS:  # faster than `translate`
        text = text.replace(separator, replacement)
    return text


def words_of(text: str) -> list[str]:
    """Return the words of a normalized text."""
    if text.isascii():
        return text.translate(_ASCII_WORDS).split()
    return _WORDS.findall(text)


def hashed_word(word: str) -> str:
    """Return the hashed form of a word. Raises `UsageError` unless it has 2 to 99 letters and digits."""
    joined = "".join(words_of(normalized(word)))
    if not 2 <= len(joined) <= 99:
        raise UsageError(f"a hashed word has 2 to 99 letters and digits, not {len(joined)}")
    return f"{len(joined)}-{_digests([joined])[0].hex()}"


def _digests(words: Sequence[str]) -> list[bytes]:
    digests, new = list[bytes](), _DIGEST.copy
    for word in "\n".join(words).encode("utf-8", "surrogatepass").split(b"\n"):
        digest = new()
        digest.update(word)
        digests.append(digest.digest())
    return digests


class WordIndex(Generic[T]):
    """Maps listed words, plain and hashed, to values. Raises `UsageError` for an invalid word."""

    def __init__(self, clear: Iterable[tuple[str, T]], hashed: Iterable[tuple[str, T]] = ()) -> None:
        self._by_first: dict[str, list[tuple[tuple[str, ...], T]]] = {}
        self._inside: dict[str, list[T]] = {}
        self._hashed: dict[bytes, dict[int, list[T]]] = {}
        """The values of hashed words, by the digest and then by the length of the word."""
        self._lengths: set[int] = set()
        self._unlisted: set[str] = set()
        for word, value in clear:
            self._add(word, value)
        for word, value in hashed:
            self._add_hashed(word, value)
        longest_first = sorted(self._inside, key=len, reverse=True)
        self._inside_pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def find(self, words: Sequence[str]) -> list[T]:
        """Return the values of all listed words in this sequence, with repetitions."""
        by_first = self._by_first
        joined: set[str] = set(words) if self._hashed else set()
        distinct = joined or words
        has_runs = not "".join(distinct).isascii() and max(distinct) >= FIRST_RUN
        found: list[T] = []
        if (has_runs and self._inside) or not by_first.keys().isdisjoint(distinct):
            for place, word in enumerate(words):
                if word in by_first:
                    for rest, value in by_first[word]:
                        if not rest or tuple(words[place + 1 : place + 1 + len(rest)]) == rest:
                            found.append(value)
                elif word >= FIRST_RUN:
                    for inside in self._inside_pattern.findall(word):
                        found += self._inside[inside]
        return found + self._find_hashed(words, joined, has_runs=has_runs) if joined else found

    def _find_hashed(self, words: Sequence[str], joined: set[str], *, has_runs: bool) -> list[T]:
        """Return the values of hashed words. `joined`, the distinct words, is changed.

        Each string is looked up once, even if it occurs several times. The strings are: each word, two and three
        consecutive words joined, and pieces of Chinese, Japanese and Korean words. Unlisted words are cached.
        """
        if has_runs:
            runs = {word for word in joined if word >= FIRST_RUN}
            spans = {*pairwise(words), *zip(words, words[1:], words[2:], strict=False)}
            joined.update("".join(span) for span in spans if runs.isdisjoint(span))
            for run in runs:
                for length in self._lengths:
                    joined.update([run[at : at + length] for at in range(len(run) - length + 1)])
        else:
            pairs = [*map(add, words, words[1:])]
            joined.update(pairs, map(add, pairs, words[2:]))
        lengths, unlisted = self._lengths, self._unlisted
        if len(unlisted) > UNLISTED_MAX:
            unlisted.clear()
        new = [word for word in joined - unlisted if len(word) in lengths]
        if not new:
            return []
        digests = _digests(new)
        unlisted.update(new)
        found: list[T] = []
        if not self._hashed.keys().isdisjoint(digests):
            for word, digest in zip(new, digests, strict=True):
                if values := self._hashed.get(digest, {}).get(len(word)):
                    found += values
                    unlisted.remove(word)
        return found

    def _add(self, word: str, value: T) -> None:
        parts = words_of(normalized(word))
        if not 1 <= len(parts) <= PARTS_MAX:
            raise UsageError(
                "{word!r} does not have 1 to {most} parts: a part is letters and digits", word=word, most=PARTS_MAX
            )
        if parts[0] < FIRST_RUN:
            self._by_first.setdefault(parts[0], []).append((tuple(parts[1:]), value))
        elif len(parts) == 1:
            self._inside.setdefault(parts[0], []).append(value)
        else:
            raise UsageError(
                "{word!r} begins with Chinese, Japanese or Korean characters: remove the spaces, or use a pattern",
                word=word,
            )

    def _add_hashed(self, word: str, value: T) -> None:
        if not (match := HASHED.fullmatch(word)):
            raise UsageError(f"{word!r} is not a hashed word, such as 4-0123456789abcdef")
        length = int(match[1])
        self._lengths.add(length)
        self._hashed.setdefault(bytes.fromhex(match[2]), {}).setdefault(length, []).append(value)
