"""How many pages a crawl may still fetch (`max_pages`): those of the segment count, whoever fetched them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.crawl.engine.visit import UNCHANGED
from lycosa.crawl.events.stats import RunStats
from lycosa.frontier.ports import FrontierOperations

LOOK_EVERY_S = 1.0
"""How often is looked what other workers of the crawl have fetched."""


class PageQuota:
    """`most` pages of a segment, None: as many as there are. What this run fetches is in its `stats`."""

    def __init__(self, most: int | None, stats: RunStats) -> None:
        self._most = most
        self._stats = stats
        self._others = 0

    async def count(self, operations: FrontierOperations, segment: str) -> None:
        """Count the pages of earlier runs and of other workers. Raises `StateError`."""
        reasons = next((view.reasons for view in await operations.segments() if view.name == segment), {})
        # Ours that are not committed are in the stats only: so the others may have more, and never less.
        self._others = max(0, sum(count for reason, count in reasons.items() if _is_page(reason)) - self._ours)

    async def follow(self, operations: FrontierOperations, segment: str, wake: Callable[[], None]) -> None:
        """Go on counting, and `wake` the engine when nothing is left. Raises `StateError`."""
        while self._most is not None:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.count(operations, segment)
            if self.left(0) <= 0:
                wake()

    def left(self, concurrency: int) -> int:
        """Return how many pages may still be fetched, or `concurrency` where that is not limited."""
        return concurrency if self._most is None else self._most - self._others - self._ours

    @property
    def _ours(self) -> int:
        return self._stats.pages + self._stats.unchanged


def _is_page(reason: str) -> bool:
    return reason == UNCHANGED or (len(reason) == 3 and reason.startswith("2"))
