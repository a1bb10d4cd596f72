"""Encodes a text with one byte per character. The non-ASCII characters of the text, at most 128, are its alphabet.

UTF-8 takes 2 to 4 bytes for a non-ASCII character, and zstd removes only about half of them. Storing the alphabet pays
off only if its characters occur often enough.
"""

from __future__ import annotations

import codecs
from itertools import accumulate, pairwise

from lycosa.storage.records.size_bits import pack_sizes, unpack_sizes

LETTERS_MAX = 128
USES_MIN = 3
"""Minimum mean number of occurrences of a character in the alphabet."""
UNDEFINED = "\ufffe"
"""Stands for a byte without a character in Python's character maps."""
_ASCII = bytes(range(128)).decode()


def alphabet_of(text: str) -> str:
    """Return the characters that are not ASCII; "" if there are none, too many, or if they occur too rarely."""
    if text.isascii():
        return ""
    letters = set(text).difference(_ASCII)
    uses = len(text) - len(text.encode("ascii", "ignore"))
    few = len(letters) <= LETTERS_MAX and len(letters) * USES_MIN <= uses
    return "".join(sorted(letters)) if few and UNDEFINED not in letters else ""


def encode(text: str, alphabet: str) -> bytes:
    """Return the text with one byte per character."""
    return codecs.charmap_encode(text, "strict", codecs.charmap_build(_table(alphabet)))[0]


def decode(data: bytes, alphabet: str) -> str:
    """Return the text. Raises `ValueError` if a byte has no character."""
    return codecs.charmap_decode(data, "strict", _table(alphabet))[0]


def pack(alphabet: str) -> bytes:
    """Return the stored form of an alphabet: the differences of its sorted characters."""
    return pack_sizes([ord(letter) - ord(last) for last, letter in pairwise(_ASCII[-1] + alphabet)])


def unpack(packed: bytes, letters: int) -> str:
    """Return the alphabet, which has this many letters. Raises `ValueError` or `IndexError`."""
    if letters > LETTERS_MAX:
        raise ValueError(f"an alphabet of {letters} letters")
    steps = accumulate(unpack_sizes(packed, letters), initial=ord(_ASCII[-1]))
    try:
        return "".join(map(chr, steps))[1:]
    except OverflowError as error:
        raise ValueError(str(error)) from error


def _table(alphabet: str) -> str:
    return _ASCII + alphabet.ljust(LETTERS_MAX, UNDEFINED)
