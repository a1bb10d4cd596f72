"""The URLs of the frontier benchmark. Each is a function of its number, so that a hundred million need no memory.

A batch is 50 pushes: 30 pages that are new, 10 of the RECENT ones pushed last, 10 drawn evenly from all pushed so far,
so 40 % are duplicates. 10,000 hosts; the share of the n-th is in proportion to 1/n (Zipf).
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from itertools import accumulate
from random import Random
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

HOSTS = 10_000
BATCH = 50
NEW = 30
RECENT = 10_000
SEED = 7
STRIDE = 387_420_489
"""Odd and no multiple of 5: so the products of numbers below PATHS and STRIDE, modulo PATHS, are all different, and in
no order."""

PATHS = 10**9
SECTIONS = ("catalogue", "books/fiction", "products", "news/2026", "forum", "p", "archive", "reviews/latest")


class Page(NamedTuple):
    """A URL in canonical form, and its host key."""

    url: str
    host: str


class Batch(NamedTuple):
    """Pages to push together; `new` of them were never pushed before."""

    pages: list[Page]
    new: int


class Workload:
    """`urls` different pages and their duplicates, always the same ones in the same order."""

    def __init__(self, urls: int, seed: int = SEED) -> None:
        self.urls = urls
        self._seed = seed
        self._origins = [f"https://www.shop-{number}.example" for number in range(HOSTS)]
        self._hosts = [origin + ":443" for origin in self._origins]
        weights = list(accumulate(1 / rank for rank in range(1, HOSTS + 1)))
        self._shares = [int(weight / weights[-1] * 2**53) for weight in weights[:-1]]

    def page(self, number: int) -> Page:
        """Return the page with this number."""
        drawn = xxh3_64_intdigest(number.to_bytes(8, "big"), self._seed)
        host = bisect(self._shares, drawn >> 11)
        path = f"/{SECTIONS[drawn & 7]}/item-{number * STRIDE % PATHS}.html"
        return Page(self._origins[host] + path, self._hosts[host])

    def batches(self) -> Iterator[Batch]:
        """Yield batches until every page was pushed once."""
        chance = Random(self._seed)
        for first in range(0, self.urls, NEW):
            new = min(NEW, self.urls - first)
            known = first + new
            recent, others = min(known, RECENT), BATCH - NEW
            numbers = list(range(first, known))
            numbers += [known - 1 - int(chance.random() * recent) for _ in range(others // 2)]
            numbers += [int(chance.random() * known) for _ in range(others // 2)]
            chance.shuffle(numbers)
            yield Batch([self.page(number) for number in numbers], new)

    def unique(self) -> Iterator[Batch]:
        """Yield batches of pages that are all new."""
        for first in range(0, self.urls, BATCH):
            last = min(first + BATCH, self.urls)
            yield Batch([self.page(number) for number in range(first, last)], last - first)

    def further(self, turn: int) -> Batch:
        """Return a batch of pages that `batches` does not yield, another batch each turn."""
        first = self.urls + turn * BATCH
        return Batch([self.page(number) for number in range(first, first + BATCH)], BATCH)

    def last(self, known: int) -> Batch:
        """Return again the last new pages of the first `known` pages."""
        pages = [self.page(number) for number in range(max(0, known - BATCH), known)]
        return Batch(pages, 0)

    def mean_length(self) -> float:
        """Return the mean length of a URL, in characters."""
        sample = range(0, self.urls, max(1, self.urls // 1000))
        return sum(len(self.page(number).url) for number in sample) / len(sample)
