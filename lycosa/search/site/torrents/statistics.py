"""The statistics of the site: torrents by type, language, day and size. Cached, since counting reads the index.

While new numbers are counted, visitors see the older ones, but none older than AGE_MAX_S.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from typing import NamedTuple

from lycosa.search.torrents import TorrentRequest, TorrentSearch

COUNT_EVERY_S = 60.0
"""A request starts a new count if the numbers are older than this."""
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
        self._counting: asyncio.Future[Numbers] | None = None

    async def get(self) -> Numbers:
        kept = self._kept
        age_s = self._now() - kept.counted_at if kept else math.inf
        if age_s > COUNT_EVERY_S and (self._counting is None or self._counting.done()):
            self._counting = asyncio.ensure_future(self._count())
            self._counting.add_done_callback(lambda done: done.cancelled() or done.exception())
        if kept is None or age_s > AGE_MAX_S:
            assert self._counting
            return await asyncio.shield(self._counting)
        return kept

    async def _count(self) -> Numbers:
        today = int(time.time()) // DAY_S * DAY_S
        starts = [today + (1 - n) * DAY_S for n in range(DAYS, -1, -1)]
        counted = await asyncio.gather(
            self._search.count(),
            self._search.count_values(TorrentRequest(), exact=True),
            self._search.count_ranges("found", starts),
            self._search.count_ranges("size", SIZE_BOUNDS),
        )
        torrents, values, days, sizes = counted
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
            exact=all(each.exact for each in counted),
        )
        return self._kept
