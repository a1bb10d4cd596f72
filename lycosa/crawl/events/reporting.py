"""The reports of a worker to the other workers of a shared crawl: counters, state, memory and CPU time.

A report only reads the state of the crawl, so any thread can make one while a callback blocks the event loop.
"""

from __future__ import annotations

import logging
import os
import socket
import time

from lycosa import __version__
from lycosa.crawl.engine.close_conditions import resident_bytes
from lycosa.crawl.engine.engine import Engine
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core import telemetry

log = logging.getLogger(__name__)

WAITING_AFTER_S = 2.5
"""A worker without running visits is reported as waiting after this many seconds without a new lease."""


class WorkerReporter:
    """Makes the reports of one run. `concurrency` is its maximum number of leases."""

    def __init__(self, engine: Engine, stats: RunStats, counted: StatsCollector, concurrency: int) -> None:
        self._engine = engine
        self._stats = stats
        self._counted = counted
        self._concurrency = concurrency
        self._began = time.monotonic()
        self._cpu_before_s = time.process_time()
        self._leased, self._leased_at = 0, -WAITING_AFTER_S

    def report(self, *, ended: bool = False) -> telemetry.WorkerReport:
        state, why = self._state(ended=ended)
        return telemetry.WorkerReport(
            socket.gethostname(),
            os.getpid(),
            __version__,
            time.monotonic() - self._began,
            state,
            why[: telemetry.REASON_MAX],
            self._engine.active_count,
            self._concurrency,
            resident_bytes(),
            self._counts(),
        )

    def encode(self, *, ended: bool = False) -> bytes:
        """Return the encoded report. If that fails, return b"": a failure must not stop the worker or its exit."""
        try:
            return telemetry.encode(self.report(ended=ended))
        except Exception:
            log.exception("cannot make the report of this worker")
            return b""

    def _state(self, *, ended: bool) -> tuple[str, str]:
        engine = self._engine
        if ended:
            return telemetry.ENDED, str(self._counted.get_value("finish_reason", "nothing to do"))
        if engine.stopping:
            return telemetry.ENDING, engine.close_reason or "interrupted"
        if engine.idle_status.paused:
            return telemetry.PAUSED, engine.idle_status.paused
        return telemetry.CRAWLING if engine.active_count or self._was_busy() else telemetry.WAITING, ""

    def _was_busy(self) -> bool:
        """Whether there was a lease recently. With crawl delays, a worker has no running visit most of the time."""
        now = time.monotonic()
        if self._stats.leased != self._leased:
            self._leased, self._leased_at = self._stats.leased, now
        return now - self._leased_at < WAITING_AFTER_S

    def _counts(self) -> dict[str, int]:
        stats = self._stats
        # A copy: this may run in another thread while callbacks add names.
        return {
            "pages": stats.pages,
            "unchanged": stats.unchanged,
            "items": stats.items,
            "dropped": stats.dropped,
            "bytes": stats.bytes,
            "failures": stats.failures,
            "errors": self._counted.get_value("spider_exceptions/count", 0),
            "cpu_ms": round((time.process_time() - self._cpu_before_s) * 1000),
            **telemetry.summable_stats(self._counted.get_stats().copy()),
        }
