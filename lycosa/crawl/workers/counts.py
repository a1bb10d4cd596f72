"""The counts of a worker process, in a form that the owner can add up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from lycosa.crawl.engine.close_conditions import resident_bytes
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.workers.messages import WorkerStats


class WorkerStatsCollector(StatsCollector):
    """Records the changes of each value, so that the owner can repeat them."""

    __slots__ = ("maxima", "minima", "sums", "values")

    def __init__(self) -> None:
        super().__init__()
        self.sums: dict[str, tuple[Any, Any]] = {}
        self.maxima: dict[str, Any] = {}
        self.minima: dict[str, Any] = {}
        self.values: dict[str, Any] = {}

    def set_value(self, key: str, value: Any, spider: Any = None) -> None:
        super().set_value(key, value)
        self.values[key] = value

    def inc_value(self, key: str, count: float = 1, start: float = 0, spider: Any = None) -> None:
        super().inc_value(key, count, start)
        if not self._set_again(key):
            earlier, start = self.sums.get(key, (0, start))
            self.sums[key] = (earlier + count, start)

    def max_value(self, key: str, value: Any, spider: Any = None) -> None:
        super().max_value(key, value)
        if not self._set_again(key):
            self.maxima[key] = max(self.maxima.get(key, value), value)

    def min_value(self, key: str, value: Any, spider: Any = None) -> None:
        super().min_value(key, value)
        if not self._set_again(key):
            self.minima[key] = min(self.minima.get(key, value), value)

    def _set_again(self, key: str) -> bool:
        """If the value was set since the last `take`, set it to the current one: the owner applies `values` last."""
        if key not in self.values:
            return False
        self.values[key] = self.get_value(key)
        return True


class WorkerCounts:
    """All counts of one process."""

    def __init__(
        self, collector: WorkerStatsCollector, stats: RunStats, memory: Callable[[], int] = resident_bytes
    ) -> None:
        self._collector = collector
        self._stats = stats
        self._memory = memory
        self._notes_sent = 0

    def take(self) -> WorkerStats:
        collector, stats = self._collector, self._stats
        new = WorkerStats(
            collector.sums,
            collector.maxima,
            collector.minima,
            collector.values,
            stats.skipped,
            stats.dropped,
            stats.known_links,
            stats.notes[self._notes_sent :],
            self._memory(),
            stats.bugs.take(),
        )
        collector.sums, collector.maxima, collector.minima, collector.values = {}, {}, {}, {}
        stats.skipped, stats.dropped, stats.known_links = {}, 0, 0
        self._notes_sent = len(stats.notes)
        return new


def add_stats(new: WorkerStats, collector: StatsCollector, stats: RunStats) -> None:
    """Add the counts of a worker to the stats of the crawl."""

    def increase(key: str, count_and_start: tuple[Any, Any]) -> None:
        collector.inc_value(key, *count_and_start)

    parts = (
        (new.sums, increase),
        (new.maxima, collector.max_value),
        (new.minima, collector.min_value),
        (new.values, collector.set_value),
    )
    for values, add in parts:
        for name, value in values.items():
            with suppress(TypeError):  # the user's code mixes numbers and strings under one name
                add(name, value)
    for reason, number in new.skipped.items():
        stats.skipped[reason] = stats.skipped.get(reason, 0) + number
    stats.dropped += new.dropped
    stats.known_links += new.known_links
    for line in new.notes:
        stats.note(line)
    for bug in new.bugs:
        stats.bugs.merge(bug)
