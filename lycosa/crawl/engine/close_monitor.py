"""What ends a crawl before it is finished, looked at after every page and when time alone may decide."""

from __future__ import annotations

from lycosa.crawl.engine.close_conditions import MEMORY_CHECK_S, CloseConditions, CloseTracker, MemoryMonitor
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector


class CloseMonitor:
    """The conditions of one run, and the memory of its process. Times are unix seconds."""

    def __init__(
        self,
        conditions: CloseConditions,
        stats: RunStats,
        collector: StatsCollector,
        memory: MemoryMonitor | None = None,
    ) -> None:
        self._closing = CloseTracker(conditions, stats.started_at)
        self._stats = stats
        self._collector = collector
        self._memory = memory
        self._memory_at = stats.started_at

    def look(self, now: float) -> str:
        """Return why the crawl is to end, "" when it is not."""
        reason = ""
        if self._closing:
            errors = self._collector.get_value("spider_exceptions/count", 0)
            reason = self._closing.look(self._stats.items, self._stats.pages, errors, now)
        if self._memory is not None and now >= self._memory_at:
            self._memory_at = now + MEMORY_CHECK_S
            reason = reason or self._memory.look()
        return reason

    def measure_memory(self) -> None:
        """Note the memory once more."""
        if self._memory is not None:
            self._memory.measure()

    def next_at(self) -> float | None:
        """Return when to look again even if nothing happens."""
        at = self._closing.next_at()
        if self._memory is None:
            return at
        return self._memory_at if at is None else min(at, self._memory_at)
