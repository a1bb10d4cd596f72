"""Keeps the proxies of the global pool sorted by latency, which changes often.

Each change of a sorted list moves half of its entries on average. With a million proxies this is slow, so the list is
split into chunks.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from itertools import chain

CHUNK_MAX = 1024


class LatencyIndex:
    """Keys sorted by a number, such as a latency."""

    def __init__(self) -> None:
        self._chunks: list[list[tuple[float, str]]] = []
        self._lasts: list[tuple[float, str]] = []

    def __iter__(self) -> Iterator[str]:
        return (key for _, key in chain.from_iterable(self._chunks))

    def add(self, number: float, key: str) -> None:
        """The key must be new."""
        entry = (number, key)
        if not self._chunks:
            self._chunks, self._lasts = [[entry]], [entry]
            return
        place = min(bisect_left(self._lasts, entry), len(self._chunks) - 1)
        chunk = self._chunks[place]
        insort(chunk, entry)
        if len(chunk) > CHUNK_MAX:
            middle = CHUNK_MAX // 2
            self._chunks[place : place + 1] = [chunk[:middle], chunk[middle:]]
            self._lasts[place : place + 1] = [chunk[middle - 1], chunk[-1]]
        else:
            self._lasts[place] = chunk[-1]

    def remove(self, number: float, key: str) -> None:
        """`number` must be the one that the key was added with."""
        entry = (number, key)
        place = bisect_left(self._lasts, entry)
        chunk = self._chunks[place]
        del chunk[bisect_left(chunk, entry)]
        if chunk:
            self._lasts[place] = chunk[-1]
        else:
            del self._chunks[place], self._lasts[place]
