"""The reports of a worker (F8): their counters and state; any thread can make one."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest

from lycosa.crawl.engine.engine import ACTIVE, IdleStatus
from lycosa.crawl.events.reporting import WAITING_AFTER_S, WorkerReporter
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.telemetry import COUNTS, REASON_MAX, decode


def reporter(stats: RunStats | None = None, counted: StatsCollector | None = None, **engine: object) -> WorkerReporter:
    engine_like = SimpleNamespace(
        **{"active_count": 0, "stopping": False, "close_reason": "", "idle_status": ACTIVE, **engine}
    )
    return WorkerReporter(engine_like, stats or RunStats(0.0), counted or StatsCollector(), 64)


@pytest.mark.parametrize(
    ("engine", "state", "reason"),
    [
        ({"active_count": 3}, "crawling", ""),
        ({}, "waiting", ""),
        ({"idle_status": IdleStatus(until=9e9)}, "waiting", ""),
        ({"idle_status": IdleStatus(paused="disk full")}, "paused", "disk full"),
        ({"idle_status": IdleStatus(paused="x" * 1000)}, "paused", "x" * REASON_MAX),
        ({"active_count": 1, "stopping": True}, "ending", "interrupted"),
        ({"stopping": True, "close_reason": "closespider_timeout"}, "ending", "closespider_timeout"),
    ],
)
def test_the_state_of_a_worker_follows_from_its_engine(engine, state, reason):
    report = reporter(**engine).report()
    assert (report.state, report.why, report.under_way) == (state, reason, engine.get("active_count", 0))


def test_a_worker_that_leased_recently_is_crawling():
    stats = RunStats(0.0)
    worker_reporter = reporter(stats)
    assert worker_reporter.report().state == "waiting"
    stats.leased += 1
    assert [worker_reporter.report().state for _ in range(3)] == ["crawling"] * 3
    worker_reporter._leased_at -= WAITING_AFTER_S
    assert worker_reporter.report().state == "waiting"


def test_the_last_report_has_the_finish_reason():
    counted = StatsCollector()
    assert reporter(counted=counted).report(ended=True).why == "nothing to do"
    counted.end(9.0, "shutdown")
    report = reporter(counted=counted, active_count=2).report(ended=True)
    assert (report.state, report.why) == ("ended", "shutdown")


def test_a_report_that_fails_is_empty(caplog):
    """A failing report must not keep the heartbeat from being sent, or a worker from leaving."""
    broken = reporter()
    del broken._engine.active_count
    with pytest.raises(AttributeError):
        broken.report()
    assert broken.encode() == b""
    assert "cannot make the report of this worker" in caplog.text


def test_a_report_has_the_counts_of_the_run_and_the_integer_stats():
    stats = RunStats(0.0, pages=5, unchanged=1, items=4, dropped=2, bytes=10**10, failures=3)
    counted = StatsCollector()
    counted.inc_value("retry/count", 7)
    counted.begin(0.0)
    counted.set_value("of the user", 1.5)
    report = decode(reporter(stats, counted).encode())
    cpu_ms = report.counts.pop("cpu_ms")
    assert 0 <= cpu_ms < 60_000
    assert report.counts == {
        "pages": 5, "unchanged": 1, "items": 4, "dropped": 2, "bytes": 10**10, "failures": 3, "errors": 0,
        "stats/retry/count": 7,
    }  # fmt: skip
    assert {*report.counts, "cpu_ms"} >= {*COUNTS}
    assert (report.pid, report.concurrency) == (os.getpid(), 64)
    assert report.memory_bytes > 1_000_000


def test_a_report_can_be_made_while_other_threads_count():
    counted = StatsCollector()
    worker_reporter = reporter(counted=counted)
    stop = threading.Event()

    def count() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            counted.inc_value(f"of the user/{number % 5000}")

    counting = threading.Thread(target=count)
    counting.start()
    try:
        assert all(worker_reporter.encode() for _ in range(300))
    finally:
        stop.set()
        counting.join()
