"""How many pages a crawl may still fetch. `max_pages` limits the pages of a segment over all workers and runs.

If each request has its own period, the limit applies to all segments of a run together. Pages with a status other than
2xx (`handle_httpstatus_list`) are counted only by the run and the worker that fetched them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.crawl.engine.visit import UNCHANGED
from lycosa.crawl.events.stats import RunStats
from lycosa.frontier.core.segments import CurrentSegments
from lycosa.frontier.ports import FrontierOperations

POLL_EVERY_S = 1.0


class PageQuota:
    """Compares the pages of a segment with `max_pages` (None: no limit). `stats` counts the pages of this run."""

    def __init__(self, max_pages: int | None, stats: RunStats) -> None:
        self._max_pages = max_pages
        self._stats = stats
        self._others = 0

    async def refresh(self, operations: FrontierOperations, segments: CurrentSegments) -> None:
        """Count the pages of earlier runs and of other workers. Raises `StateError`."""
        views = {view.name: view for view in await operations.segments()}
        reasons = [views[name].reasons for name in segments(views) if name in views]
        pages = sum(count for each in reasons for reason, count in each.items() if _is_page(reason))
        # The segments lack our uncommitted pages, so `_others` may be too low, but never too high.
        self._others = max(0, pages - self._ours)

    async def poll(self, operations: FrontierOperations, segments: CurrentSegments, wake: Callable[[], None]) -> None:
        """Call `refresh` every POLL_EVERY_S, and `wake` the engine when the quota is used up. Raises `StateError`."""
        while self._max_pages is not None:
            await asyncio.sleep(POLL_EVERY_S)
            await self.refresh(operations, segments)
            if self.remaining(0) <= 0:
                wake()

    def remaining(self, concurrency: int) -> int:
        """Return how many more pages may be fetched. Without a limit, return `concurrency`."""
        return concurrency if self._max_pages is None else self._max_pages - self._others - self._ours

    @property
    def _ours(self) -> int:
        return self._stats.pages + self._stats.unchanged


def _is_page(reason: str) -> bool:
    return reason == UNCHANGED or (len(reason) == 3 and reason.startswith("2"))
