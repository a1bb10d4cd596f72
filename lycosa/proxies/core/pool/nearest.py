"""Keys in the order of a number that changes often: the global pool by latency.

A list kept in order is moved by half at each change, which a million proxies make slow; so it is one of short lists.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain

CHUNK_MAX = 1024
"""A list that is longer is cut in two."""


class LatencyIndex:
    """Pairs of a number and a key, the least first."""

    def __init__(self) -> None:
        self._chunks: list[list[tuple[float, str]]] = []
        self._lasts: list[tuple[float, str]] = []

    def __iter__(self) -> Iterator[str]:
        return (key for _, key in chain.from_iterable(self._chunks))

    def add(self, at: float, key: str) -> None:
        """Put a key that is not there where its number says."""
        entry = (at, key)
        if not self._chunks:
            self._chunks, self._lasts = [[entry]], [entry]
            return
        place = min(bisect_left(self._lasts, entry), len(self._chunks) - 1)
        chunk = self._chunks[place]
        insort(chunk, entry)
        if len(chunk) > CHUNK_MAX:
            half = CHUNK_MAX // 2
            self._chunks[place : place + 1] = [chunk[:half], chunk[half:]]
            self._lasts[place : place + 1] = [chunk[half - 1], chunk[-1]]
        else:
            self._lasts[place] = chunk[-1]

    def remove(self, at: float, key: str) -> None:
        """Take a key out; its number is the one it was added with."""
        entry = (at, key)
        place = bisect_left(self._lasts, entry)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, entry)]
        if chunk:
            self._lasts[place] = chunk[-1]
        else:
            del self._chunks[place], self._lasts[place]
