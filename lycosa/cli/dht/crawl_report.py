"""What `lycosa dht crawl` shows: a line while it runs, and a summary."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, NamedTuple

from lycosa.cli.crawl import progress
from lycosa.core.units import format_duration
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel

RATE_EVERY_S = 10.0
"""Of the lines where there is no terminal."""
RATE_OVER_S = 60.0


class CrawlRate(NamedTuple):
    """Per minute."""

    discovered: float
    tried: float
    stored: float


class CrawlRates:
    """CrawlRate over the last minute."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._points: deque[tuple[float, int, int, int]] = deque([(self._started, 0, 0, 0)])

    def elapsed_s(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._started

    def update(self, funnel: Funnel) -> tuple[CrawlRate, float]:
        """Return the rates, and the time since the start."""
        now = time.monotonic()
        counts = funnel.counts
        self._points.append((now, funnel.discovered, counts[CrawlOutcome.TRIED], counts[CrawlOutcome.STORED]))
        while len(self._points) > 2 and self._points[1][0] < now - RATE_OVER_S:
            self._points.popleft()
        first, last = self._points[0], self._points[-1]
        minutes = max(last[0] - first[0], 0.001) / 60
        per_minute = [(new - old) / minutes for new, old in zip(last[1:], first[1:], strict=True)]
        return CrawlRate(*per_minute), self.elapsed_s()


def progress_line(status: Any, rates: CrawlRate, elapsed_s: float) -> str:
    """Return the state of a crawl in one line, with the most important numbers first."""
    counts: Counter[CrawlOutcome] = status.funnel.counts
    queue = status.frontier
    parts = [
        (
            f"{format_duration(elapsed_s)}: {progress.count(counts[CrawlOutcome.STORED], 'torrent')} stored "
            f"({rates.stored:,.0f}/min)"
        ),
        f"{status.funnel.discovered:,} discovered ({rates.discovered:,.0f}/min)",
        f"{counts[CrawlOutcome.KNOWN]:,} known",
        f"{counts[CrawlOutcome.TRIED]:,} tried ({rates.tried:,.0f}/min)",
        f"{status.in_work:,} in work, {queue.queued:,} queued, {queue.delayed:,} to try later",
        f"sweep {status.sweeps + 1} at {status.coverage:.0%}",
    ]
    return ", ".join(parts)


def summary_lines(status: Any, elapsed_s: float) -> list[str]:
    """Return what became of the infohashes, stage by stage."""
    funnel: Funnel = status.funnel
    count = funnel.counts
    failed = funnel.total(CrawlOutcome.NO_PEERS, CrawlOutcome.NO_METADATA, CrawlOutcome.BAD_INFO)
    queue = status.frontier
    return [
        f"{progress.count(count[CrawlOutcome.STORED], 'torrent')} stored in {format_duration(elapsed_s)}",
        (
            f"discovered: {count[CrawlOutcome.SAMPLED]:,} in samples, {count[CrawlOutcome.ANNOUNCED]:,} by announces; "
            f"{count[CrawlOutcome.NEW]:,} new, {count[CrawlOutcome.KNOWN]:,} known"
        ),
        (
            f"tried: {count[CrawlOutcome.TRIED]:,}; fetched: {count[CrawlOutcome.FETCHED_FROM_SAMPLER]:,} at once, "
            f"{count[CrawlOutcome.FETCHED_AFTER_LOOKUP]:,} after a lookup; failed: {failed:,} "
            f"({count[CrawlOutcome.NO_PEERS]:,} without peers, {count[CrawlOutcome.NO_METADATA]:,} whose peers failed, "
            f"{count[CrawlOutcome.BAD_INFO]:,} without a torrent in it)"
        ),
        (
            f"already stored: {funnel.total(CrawlOutcome.ALREADY_STORED, CrawlOutcome.STORED_BEFORE):,}; "
            f"refused: {funnel.total(CrawlOutcome.FORBIDDEN, CrawlOutcome.REFUSED):,}"
        ),
        (
            f"queue: {queue.done:,} done, {queue.queued + queue.leased:,} queued, {queue.delayed:,} to try later; "
            f"sweep {status.sweeps + 1} at {status.coverage:.0%}"
        ),
    ]
