"""The statistics of the site: torrents by type, language, day and size. Counted rarely, since it reads the index."""

from __future__ import annotations

import asyncio
import time
from typing import NamedTuple

from lycosa.search.torrents import TorrentSearch

KEPT_S = 60.0
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
    """What the statistics page shows."""

    torrents: int
    types: dict[str, int]
    languages: dict[str, int]
    days: list[Day]
    """The newest first."""
    sizes: dict[str, int]
    counted_at: float


class Statistics:
    """Counts torrents, and caches the numbers for KEPT_S."""

    def __init__(self, search: TorrentSearch) -> None:
        self._search = search
        self._kept: Numbers | None = None
        self._turn = asyncio.Lock()

    async def get(self) -> Numbers:
        """Return numbers that are at most KEPT_S old."""
        async with self._turn:
            if self._kept is None or time.monotonic() - self._kept.counted_at > KEPT_S:
                self._kept = await self._count()
            return self._kept

    async def _count(self) -> Numbers:
        today = int(time.time()) // DAY_S * DAY_S
        starts = [today + (1 - n) * DAY_S for n in range(DAYS, -1, -1)]
        count, values, days, sizes = await asyncio.gather(
            self._search.count(),
            self._search.values_of_all(),
            self._search.count_ranges("found", starts),
            self._search.count_ranges("size", SIZE_BOUNDS),
        )
        dated = [Day(time.strftime("%Y-%m-%d", time.gmtime(start)), n) for start, n in zip(starts, days, strict=False)]
        shown = dict(zip(SIZE_LABELS, sizes, strict=True))
        return Numbers(count, values["type"], values["language"], dated[::-1], shown, time.monotonic())
