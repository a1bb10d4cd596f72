"""What a process counts, so that its owner can add it up: `taken` returns what is new since the last time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lycosa.crawl.engine.close_conditions import resident_bytes
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.workers.messages import Counted


class SharedStats(StatsCollector):
    """The stats of one process, which remember how each value came about."""

    __slots__ = ("last", "least", "most", "sums")

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, Any] = {}
        self.most: dict[str, Any] = {}
        self.least: dict[str, Any] = {}
        self.last: dict[str, Any] = {}

    def set_value(self, key: str, value: Any, spider: Any = None) -> None:
        """Set the value."""
        super().set_value(key, value)
        self.last[key] = value

    def inc_value(self, key: str, count: float = 1, start: float = 0, spider: Any = None) -> None:
        """Add to the value."""
        super().inc_value(key, count, start)
        self.sums[key] = self.sums.get(key, 0) + count

    def max_value(self, key: str, value: Any, spider: Any = None) -> None:
        """Set the value if it is larger."""
        before = self.last.pop(key, None)
        super().max_value(key, value)
        self.most[key] = self.last.pop(key)
        if before is not None:
            self.last[key] = before

    def min_value(self, key: str, value: Any, spider: Any = None) -> None:
        """Set the value if it is smaller."""
        before = self.last.pop(key, None)
        super().min_value(key, value)
        self.least[key] = self.last.pop(key)
        if before is not None:
            self.last[key] = before


class Counts:
    """All that is counted in one process."""

    def __init__(self, collector: SharedStats, stats: RunStats, memory: Callable[[], int] = resident_bytes) -> None:
        self._collector = collector
        self._stats = stats
        self._memory = memory
        self._noted = 0

    def taken(self) -> Counted:
        """Return what is new."""
        of, stats = self._collector, self._stats
        new = Counted(
            of.sums,
            of.most,
            of.least,
            of.last,
            stats.skipped,
            stats.dropped,
            stats.known_links,
            stats.notes[self._noted :],
            stats.bugs.take(),
            self._memory(),
        )
        of.sums, of.most, of.least, of.last = {}, {}, {}, {}
        stats.skipped, stats.dropped, stats.known_links = {}, 0, 0
        self._noted = len(stats.notes)
        return new
