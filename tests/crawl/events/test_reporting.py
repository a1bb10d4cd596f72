"""What a worker tells of itself (F8): its counters, what it is at, and that it can be asked from any thread."""

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
    looked_at = SimpleNamespace(
        **{"active_count": 0, "stopping": False, "close_reason": "", "idle_status": ACTIVE, **engine}
    )
    return WorkerReporter(looked_at, stats or RunStats(0.0), counted or StatsCollector(), 64)


@pytest.mark.parametrize(
    ("engine", "state", "why"),
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
def test_the_state_of_a_worker(engine, state, why):
    told = reporter(**engine).report()
    assert (told.state, told.why, told.under_way) == (state, why, engine.get("active_count", 0))


def test_between_two_crawl_delays_it_is_crawling():
    stats = RunStats(0.0)
    asked = reporter(stats)
    assert asked.report().state == "waiting"
    stats.leased += 1
    assert [asked.report().state for _ in range(3)] == ["crawling"] * 3
    asked._leased_at -= WAITING_AFTER_S
    assert asked.report().state == "waiting"


def test_the_last_report_has_the_finish_reason():
    counted = StatsCollector()
    assert reporter(counted=counted).report(ended=True).why == "nothing to do"
    counted.end(9.0, "shutdown")
    told = reporter(counted=counted, active_count=2).report(ended=True)
    assert (told.state, told.why) == ("ended", "shutdown")


def test_a_report_that_fails_is_empty(caplog):
    """Nothing that is told is worth a life: the heart beats on, and whoever ends leaves."""
    broken = reporter()
    del broken._engine.active_count
    with pytest.raises(AttributeError):
        broken.report()
    assert broken.encoded() == b""
    assert "cannot make the report of this worker" in caplog.text


def test_the_numbers_of_a_report():
    stats = RunStats(0.0, pages=5, unchanged=1, items=4, dropped=2, bytes=10**10, failures=3)
    counted = StatsCollector()
    counted.inc_value("retry/count", 7)
    counted.begin(0.0)
    counted.set_value("of the user", 1.5)
    told = decode(reporter(stats, counted).encoded())
    cpu_ms = told.counts.pop("cpu_ms")
    assert 0 <= cpu_ms < 60_000
    assert told.counts == {
        "pages": 5, "unchanged": 1, "items": 4, "dropped": 2, "bytes": 10**10, "failures": 3, "stats/retry/count": 7,
    }  # fmt: skip
    assert {*told.counts, "cpu_ms"} >= {*COUNTS}
    assert (told.pid, told.concurrency) == (os.getpid(), 64)
    assert told.memory_bytes > 1_000_000


def test_a_report_can_be_made_while_other_threads_count():
    counted = StatsCollector()
    asked = reporter(counted=counted)
    stop = threading.Event()

    def count() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            counted.inc_value(f"of the user/{number % 5000}")

    counting = threading.Thread(target=count)
    counting.start()
    try:
        assert all(asked.encoded() for _ in range(300))
    finally:
        stop.set()
        counting.join()
