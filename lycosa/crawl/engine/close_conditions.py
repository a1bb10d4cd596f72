"""The conditions that close a crawl early, and their finish reasons.

The counters start at 0 in each run. In a shared crawl they count the work of all workers since the first one joined.
When a condition is met, nothing more is leased, and running visits have 5 s to finish, so the limit may be exceeded a
little. The next run resumes the crawl.

The finish reason is `finish_reason` in the stats, and the `reason` argument of `closed` and `spider_closed`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

from lycosa.core.errors import BadSetting
from lycosa.crawl.events.stats_collector import StatsCollector

log = logging.getLogger(__name__)

MEMORY_CHECK_S = 60.0
"""Seconds between memory measurements."""

STATM = Path("/proc/self/statm")
MIB = 1024 * 1024

MEMUSAGE_EXCEEDED = "memusage_exceeded"


class RunCounts(NamedTuple):
    """The counters of a run. `errors` counts exceptions in callbacks and pipelines; times are unix seconds.

    `item_at` and `pages_at_item` are the time and the page count at the last item, or else at the start of the run.
    """

    items: int
    pages: int
    errors: int
    started_at: float
    item_at: float
    pages_at_item: int


@dataclass(frozen=True, slots=True)
class CloseConditions:
    """Limits that close a crawl, named like Scrapy's CLOSESPIDER_ settings. 0: no limit. Raises `BadSetting`."""

    itemcount: int = 0
    errorcount: int = 0
    timeout: float = 0.0
    timeout_no_item: float = 0.0
    pagecount_no_item: int = 0

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if value < 0:
                raise BadSetting(
                    f"CLOSESPIDER_{each.name.upper()} is {value}: write a positive number or 0 for no limit"
                )

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    def reason(self, counts: RunCounts, now: float) -> str:
        itemless_pages = counts.pages - counts.pages_at_item
        met = {
            "closespider_itemcount": 0 < self.itemcount <= counts.items,
            "closespider_errorcount": 0 < self.errorcount <= counts.errors,
            "closespider_timeout": 0 < self.timeout <= now - counts.started_at,
            "closespider_timeout_no_item": 0 < self.timeout_no_item <= now - counts.item_at,
            "closespider_pagecount_no_item": 0 < self.pagecount_no_item <= itemless_pages,
        }
        return next((reason for reason, is_met in met.items() if is_met), "")

    def next_at(self, counts: RunCounts) -> float | None:
        limits = ((self.timeout, counts.started_at), (self.timeout_no_item, counts.item_at))
        return min((since + limit for limit, since in limits if limit), default=None)


class CloseTracker:
    """Applies the conditions to one run, which starts at `now` (unix seconds)."""

    def __init__(self, conditions: CloseConditions, now: float) -> None:
        self._conditions = conditions
        self._counts = RunCounts(0, 0, 0, now, now, 0)

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def check(self, items: int, pages: int, errors: int, now: float) -> str:
        """Update the counters. Return the reason to close, or "". Call it after each page and at `next_at`."""
        before = self._counts
        item_at, pages_at_item = (now, pages) if items > before.items else (before.item_at, before.pages_at_item)
        self._counts = RunCounts(items, pages, errors, before.started_at, item_at, pages_at_item)
        return self._conditions.reason(self._counts, now)

    def set(self, counts: RunCounts) -> None:
        self._counts = counts

    def next_at(self) -> float | None:
        """Return when to call `check` again even if nothing happens (unix seconds), or None."""
        return self._conditions.next_at(self._counts)


class MemoryMonitor:
    """Compares the memory of the process with limits in MiB (0: no limit). Raises `BadSetting` for a negative limit.

    `warn` is called once, when the memory exceeds `warning_mb`. `read` returns the memory in bytes.
    """

    def __init__(
        self,
        stats: StatsCollector,
        warn: Callable[[], None],
        *,
        limit_mb: int = 0,
        warning_mb: int = 0,
        read: Callable[[], int] | None = None,
    ) -> None:
        if min(limit_mb, warning_mb) < 0:
            raise BadSetting("MEMUSAGE_LIMIT_MB and MEMUSAGE_WARNING_MB: write MiB, or 0 for no limit")
        self._stats = stats
        self._warn = warn
        self._limit = limit_mb * MIB
        self._warning = warning_mb * MIB
        self._read = read or resident_bytes
        stats.set_value("memusage/startup", self._read())

    def check(self) -> str:
        used = self.measure()
        if 0 < self._warning < used and not self._stats.get_value("memusage/warning_reached"):
            self._stats.set_value("memusage/warning_reached", 1)
            log.warning("the process uses %d MiB of memory (MEMUSAGE_WARNING_MB)", used // MIB)
            self._warn()
        if not 0 < self._limit < used:
            return ""
        self._stats.set_value("memusage/limit_reached", 1)
        log.error("the process uses %d MiB of memory (MEMUSAGE_LIMIT_MB): closing the crawl", used // MIB)
        return MEMUSAGE_EXCEEDED

    def measure(self) -> int:
        """Return the memory in bytes, and record its maximum in the stats."""
        used = self._read()
        self._stats.max_value("memusage/max", used)
        return used


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; without /proc, its peak."""
    try:
        return int(STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if os.uname().sysname == "Darwin" else peak * 1024  # macOS: bytes, others: KiB
