"""The statistics of the site: torrents by type, language, day and size. Cached, since counting reads the index.

While new numbers are counted, visitors see the older ones, but none older than AGE_MAX_S.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import NamedTuple, TypeVar

from lycosa.search.torrents import TorrentRequest, TorrentSearch

COUNT_EVERY_S, COUNT_EVERY_MAX_S = 60.0, 300.0
"""A request starts a new count if the numbers are older than this: than COUNT_EVERY_S if counting is fast."""
COUNTING_SHARE = 0.004
"""The share of the time that counting may take, within the limits above."""
AGE_MAX_S = 600.0
"""Maximum age of the numbers shown; if they are older, the visitor waits."""
DAY_S = 86_400
DAYS = 30
SIZE_BOUNDS = (0, 10**6, 10**7, 10**8, 10**9, 4 * 10**9, 20 * 10**9, 10**11, 10**18)
SIZE_LABELS = (
    "under 1 MB",
    "1 to 10 MB",
    "10 to 100 MB",
    "100 MB to 1 GB",
    "1 to 4 GB",
    "4 to 20 GB",
    "20 to 100 GB",
    "over 100 GB",
)

Counted = TypeVar("Counted")


class Day(NamedTuple):
    """A day (ISO 8601), and the number of torrents found on it."""

    date: str
    found: int


class Numbers(NamedTuple):
    """The numbers on the statistics page. Unless `exact`, they include some torrents that were removed."""

    torrents: int
    types: dict[str, int]
    languages: dict[str, int]
    days: list[Day]
    """The newest first."""
    sizes: dict[str, int]
    counted_at: float
    exact: bool = True


class Statistics:
    """Counts torrents, and caches the numbers."""

    def __init__(self, search: TorrentSearch, now: Callable[[], float] = time.monotonic) -> None:
        self._search, self._now = search, now
        self._kept: Numbers | None = None
        self._count_every_s = COUNT_EVERY_S
        self._counting: asyncio.Future[Numbers] | None = None

    async def get(self) -> Numbers:
        kept = self._kept
        age_s = self._now() - kept.counted_at if kept else math.inf
        waits = age_s > AGE_MAX_S
        if age_s > self._count_every_s and (self._counting is None or self._counting.done()):
            self._counting = asyncio.ensure_future(self._count(at_once=4 if waits else 1))
            self._counting.add_done_callback(lambda done: done.cancelled() or done.exception())
        if kept is None or waits:
            assert self._counting
            return await asyncio.shield(self._counting)
        return kept

    async def _count(self, at_once: int) -> Numbers:
        """Count. At ten million torrents, each number keeps a core busy for a third of a second, so unless a visitor
        waits, they are counted one after the other, and other requests have the other cores."""
        turns = asyncio.Semaphore(at_once)

        async def counted(count: Callable[[], Awaitable[Counted]]) -> Counted:
            async with turns:
                return await count()

        began = self._now()
        today = int(time.time()) // DAY_S * DAY_S
        starts = [today + (1 - n) * DAY_S for n in range(DAYS, -1, -1)]
        torrents, values, days, sizes = await asyncio.gather(
            counted(self._search.count),
            counted(partial(self._search.count_values, TorrentRequest(), exact=True)),
            counted(partial(self._search.count_ranges, "found", starts)),
            counted(partial(self._search.count_ranges, "size", SIZE_BOUNDS)),
        )
        dated = [
            Day(time.strftime("%Y-%m-%d", time.gmtime(start)), found)
            for start, found in zip(starts, days.counts, strict=False)
        ]
        self._kept = Numbers(
            torrents.total,
            values.values["type"],
            values.values["language"],
            dated[::-1],
            dict(zip(SIZE_LABELS, sizes.counts, strict=True)),
            self._now(),
            exact=all(each.exact for each in (torrents, values, days, sizes)),
        )
        took_s = self._kept.counted_at - began
        self._count_every_s = min(max(took_s / COUNTING_SHARE, COUNT_EVERY_S), COUNT_EVERY_MAX_S)
        return self._kept
