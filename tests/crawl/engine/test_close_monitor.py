"""The conditions that close a crawl count the work of all workers of a shared crawl."""

from __future__ import annotations

import asyncio

from lycosa.crawl.engine.close_conditions import CloseConditions
from lycosa.crawl.engine.close_monitor import CloseMonitor
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.telemetry import RunProgress

NOW = 1000.0


def monitor_of(progress: RunProgress, **limits: float) -> tuple[CloseMonitor, RunStats]:
    """Return a monitor that has just read the progress of all workers, and the counts of this worker (`RunStats`)."""
    stats = RunStats(NOW - 1.0, pages=4, items=3)

    async def read() -> RunProgress:
        return progress

    async def scenario() -> CloseMonitor:
        monitor = CloseMonitor(CloseConditions(**limits), stats, StatsCollector())  # type: ignore[arg-type]
        monitor.read_progress = read
        polled = asyncio.Event()
        polling = asyncio.create_task(monitor.poll(lambda: NOW, polled.set))
        await polled.wait()
        polling.cancel()
        return monitor

    return asyncio.run(scenario()), stats


def test_items_of_other_workers_count():
    monitor, stats = monitor_of(RunProgress(50.0, 5.0, 90, {"pages": 100, "items": 9}), itemcount=10)
    assert monitor.check(NOW) == ""
    stats.items += 1
    assert monitor.check(NOW) == "closespider_itemcount", "the items of this worker count at once"


def test_errors_of_other_workers_count():
    monitor, _ = monitor_of(RunProgress(50.0, 5.0, 90, {"pages": 100, "items": 9, "errors": 2}), errorcount=2)
    assert monitor.check(NOW) == "closespider_errorcount"


def test_times_count_from_the_first_worker_and_from_the_last_item_of_any_worker():
    progress = RunProgress(50.0, 5.0, 90, {"pages": 100, "items": 9})
    assert monitor_of(progress, timeout=50.0)[0].check(NOW) == "closespider_timeout"
    assert monitor_of(progress, timeout=51.0)[0].check(NOW) == ""
    assert monitor_of(progress, timeout=51.0)[0].next_at() == NOW + 1.0
    assert monitor_of(progress, timeout_no_item=5.0)[0].check(NOW) == "closespider_timeout_no_item"
    assert monitor_of(progress, timeout_no_item=6.0)[0].check(NOW) == ""


def test_pages_without_an_item_count_over_all_workers():
    progress = RunProgress(50.0, 5.0, 90, {"pages": 100, "items": 9})
    assert monitor_of(progress, pagecount_no_item=10)[0].check(NOW) == "closespider_pagecount_no_item"
    assert monitor_of(progress, pagecount_no_item=11)[0].check(NOW) == ""
