"""Decides when a run closes early."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import InitVar, dataclass
from typing import NamedTuple

from lycosa.crawl.engine.close_conditions import MEMORY_CHECK_S, CloseConditions, CloseTracker, MemoryMonitor, RunCounts
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.telemetry import RunProgress

POLL_EVERY_S = 1.0
"""Seconds between two reads of the counters of a shared crawl."""

ERRORS = "spider_exceptions/count"


class OtherCounts(NamedTuple):
    """The counters of the other workers of a shared crawl."""

    items: int = 0
    pages: int = 0
    errors: int = 0


@dataclass(eq=False, repr=False)
class CloseMonitor:
    """Checks the conditions of one run and the memory of its process. Times are unix seconds.

    `read_progress` returns the current counters of all workers of a shared crawl, including this one.
    """

    conditions: InitVar[CloseConditions]
    stats: RunStats
    collector: StatsCollector
    memory: MemoryMonitor | None = None
    read_progress: Callable[[], Awaitable[RunProgress]] | None = None

    def __post_init__(self, conditions: CloseConditions) -> None:
        self._tracker = CloseTracker(conditions, self.stats.started_at)
        self._memory_at = self.stats.started_at
        self._others = OtherCounts()

    async def poll(self, now: Callable[[], float], wake: Callable[[], None]) -> None:
        """Read the counters of all workers every POLL_EVERY_S, then call `wake`. Raises `StateError`."""
        while self.read_progress is not None and self._tracker:
            items, pages, errors = self._own_counts()
            all_ = await self.read_progress()
            counts, at = all_.counts, now()
            self._others = OtherCounts(
                counts.get("items", 0) - items, counts.get("pages", 0) - pages, counts.get("errors", 0) - errors
            )
            total = (counts.get("items", 0), counts.get("pages", 0), counts.get("errors", 0))
            self._tracker.set(RunCounts(*total, at - all_.age_s, at - all_.item_age_s, all_.pages_at_item))
            wake()
            await asyncio.sleep(POLL_EVERY_S)

    def _own_counts(self) -> tuple[int, int, int]:
        return self.stats.items, self.stats.pages, self.collector.get_value(ERRORS, 0)

    def check(self, now: float) -> str:
        """Return the reason to close the crawl, or "". Call it after every page and at `next_at`."""
        reason = ""
        if self._tracker:
            items, pages, errors = (own + others for own, others in zip(self._own_counts(), self._others, strict=True))
            reason = self._tracker.check(items, pages, errors, now)
        if self.memory is not None and now >= self._memory_at:
            self._memory_at = now + MEMORY_CHECK_S
            reason = reason or self.memory.check()
        return reason

    def measure_memory(self) -> None:
        if self.memory is not None:
            self.memory.measure()

    def next_at(self) -> float | None:
        at = self._tracker.next_at()
        if self.memory is None:
            return at
        return self._memory_at if at is None else min(at, self._memory_at)
