"""What `lycosa dht crawl` shows: a line while it runs, and a summary."""

from __future__ import annotations

import time
from collections import Counter, deque
from typing import Any, NamedTuple

from lycosa.cli.crawl import progress
from lycosa.core.units import format_duration
from lycosa.dht.crawler.core.funnel import Funnel, Outcome

RATE_EVERY_S = 10.0
"""Of the lines where there is no terminal."""
RATE_OVER_S = 60.0


class Rates(NamedTuple):
    """Per minute."""

    discovered: float
    tried: float
    stored: float


class CrawlRates:
    """Rates over the last minute."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._points: deque[tuple[float, int, int, int]] = deque([(self._started, 0, 0, 0)])

    def elapsed_s(self) -> float:
        """Return the time since the start."""
        return time.monotonic() - self._started

    def update(self, funnel: Funnel) -> tuple[Rates, float]:
        """Return the rates, and the time since the start."""
        now = time.monotonic()
        counts = funnel.counts
        self._points.append((now, funnel.discovered, counts[Outcome.TRIED], counts[Outcome.STORED]))
        while len(self._points) > 2 and self._points[1][0] < now - RATE_OVER_S:
            self._points.popleft()
        first, last = self._points[0], self._points[-1]
        minutes = max(last[0] - first[0], 0.001) / 60
        per_minute = [(new - old) / minutes for new, old in zip(last[1:], first[1:], strict=True)]
        return Rates(*per_minute), self.elapsed_s()


def progress_line(status: Any, rates: Rates, elapsed_s: float) -> str:
    """Return the state of a crawl in one line, with the most important numbers first."""
    counts: Counter[Outcome] = status.funnel.counts
    queue = status.frontier
    parts = [
        (
            f"{format_duration(elapsed_s)}: {progress.count(counts[Outcome.STORED], 'torrent')} stored "
            f"({rates.stored:,.0f}/min)"
        ),
        f"{status.funnel.discovered:,} discovered ({rates.discovered:,.0f}/min)",
        f"{counts[Outcome.KNOWN]:,} known",
        f"{counts[Outcome.TRIED]:,} tried ({rates.tried:,.0f}/min)",
        f"{status.in_work:,} in work, {queue.queued:,} queued, {queue.delayed:,} to try later",
        f"sweep {status.sweeps + 1} at {status.coverage:.0%}",
    ]
    return ", ".join(parts)


def summary_lines(status: Any, elapsed_s: float) -> list[str]:
    """Return what became of the infohashes, stage by stage."""
    funnel: Funnel = status.funnel
    count = funnel.counts
    failed = funnel.total(Outcome.NO_PEERS, Outcome.NO_METADATA, Outcome.BAD_INFO)
    queue = status.frontier
    return [
        f"{progress.count(count[Outcome.STORED], 'torrent')} stored in {format_duration(elapsed_s)}",
        (
            f"discovered: {count[Outcome.SAMPLED]:,} in samples, {count[Outcome.ANNOUNCED]:,} by announces; "
            f"{count[Outcome.NEW]:,} new, {count[Outcome.KNOWN]:,} known"
        ),
        (
            f"tried: {count[Outcome.TRIED]:,}; fetched: {count[Outcome.FETCHED_FROM_SAMPLER]:,} at once, "
            f"{count[Outcome.FETCHED_AFTER_LOOKUP]:,} after a lookup; failed: {failed:,} "
            f"({count[Outcome.NO_PEERS]:,} without peers, {count[Outcome.NO_METADATA]:,} whose peers did not deliver, "
            f"{count[Outcome.BAD_INFO]:,} without a torrent in it)"
        ),
        (
            f"already stored: {funnel.total(Outcome.ALREADY_STORED, Outcome.STORED_BEFORE):,}; "
            f"refused: {funnel.total(Outcome.FORBIDDEN, Outcome.REFUSED):,}"
        ),
        (
            f"queue: {queue.done:,} done, {queue.queued + queue.leased:,} queued, {queue.delayed:,} to try later; "
            f"sweep {status.sweeps + 1} at {status.coverage:.0%}"
        ),
    ]
