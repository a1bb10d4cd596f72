"""Decides when a run closes early. It is checked after every page, and whenever a time limit may be reached."""

from __future__ import annotations

from dataclasses import InitVar, dataclass

from lycosa.crawl.engine.close_conditions import MEMORY_CHECK_S, CloseConditions, CloseTracker, MemoryMonitor
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector


@dataclass(eq=False, repr=False)
class CloseMonitor:
    """Checks the conditions of one run and the memory of its process. Times are unix seconds."""

    conditions: InitVar[CloseConditions]
    stats: RunStats
    collector: StatsCollector
    memory: MemoryMonitor | None = None

    def __post_init__(self, conditions: CloseConditions) -> None:
        self._tracker = CloseTracker(conditions, self.stats.started_at)
        self._memory_at = self.stats.started_at

    def check(self, now: float) -> str:
        """Return the reason to close the crawl, or ""."""
        reason = ""
        if self._tracker:
            errors = self.collector.get_value("spider_exceptions/count", 0)
            reason = self._tracker.check(self.stats.items, self.stats.pages, errors, now)
        if self.memory is not None and now >= self._memory_at:
            self._memory_at = now + MEMORY_CHECK_S
            reason = reason or self.memory.check()
        return reason

    def measure_memory(self) -> None:
        """Record the memory once more, for the final stats."""
        if self.memory is not None:
            self.memory.measure()

    def next_at(self) -> float | None:
        """Return the unix time at which to check again even if nothing happens, or None."""
        at = self._tracker.next_at()
        if self.memory is None:
            return at
        return self._memory_at if at is None else min(at, self._memory_at)
