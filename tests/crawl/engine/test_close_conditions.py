"""The conditions that close a crawl (C7): the limit and reason of each, the time of the next check, memory."""

from __future__ import annotations

import mmap
import re

import pytest

from lycosa.core.errors import BadSetting
from lycosa.crawl.engine.close_conditions import (
    MIB,
    CloseConditions,
    CloseTracker,
    MemoryMonitor,
    RunCounts,
    resident_bytes,
)
from lycosa.crawl.events.stats_collector import StatsCollector
from tests.crawl.events.finish_reasons import FINISH_REASONS

NOTHING = RunCounts(items=0, pages=0, errors=0, started_at=100.0, item_at=100.0, pages_at_item=0)


@pytest.mark.parametrize(
    ("name", "limit", "just_below", "met"),
    [
        ("itemcount", 5, {"items": 4}, {"items": 5}),
        ("errorcount", 2, {"errors": 1}, {"errors": 2}),
        ("timeout", 10, {"started_at": 90.1}, {"started_at": 90.0}),
        ("timeout_no_item", 10, {"item_at": 90.1, "started_at": 0.0}, {"item_at": 90.0}),
        ("pagecount_no_item", 3, {"pages": 7, "pages_at_item": 5}, {"pages": 8, "pages_at_item": 5}),
    ],
)
def test_each_condition_is_met_at_its_limit(name: str, limit: int, just_below: dict, met: dict) -> None:
    conditions = CloseConditions(**{name: limit})
    assert conditions
    assert conditions.reason(NOTHING._replace(**just_below), 100.0) == ""
    assert conditions.reason(NOTHING._replace(**met), 100.0) == f"closespider_{name}"
    assert CloseConditions().reason(NOTHING._replace(**met), 1e9) == ""
    assert f"closespider_{name}" in FINISH_REASONS


def test_conditions_without_limits_are_false() -> None:
    assert not CloseConditions()
    assert not CloseTracker(CloseConditions(), 0.0)
    assert CloseTracker(CloseConditions(errorcount=1), 0.0)


def test_a_negative_limit_is_refused_by_its_setting() -> None:
    with pytest.raises(BadSetting, match="CLOSESPIDER_PAGECOUNT_NO_ITEM is -1: write a positive number"):
        CloseConditions(pagecount_no_item=-1)


def test_the_next_check_is_at_the_earliest_time_limit() -> None:
    assert CloseConditions(itemcount=3).next_at(NOTHING) is None
    assert CloseConditions(timeout=30).next_at(NOTHING) == 130.0
    assert CloseConditions(timeout=30, timeout_no_item=5).next_at(NOTHING._replace(item_at=110.0)) == 115.0
    assert CloseConditions(timeout=30, timeout_no_item=50).next_at(NOTHING._replace(item_at=110.0)) == 130.0


def test_a_run_without_new_items_closes_at_the_time_of_the_next_check() -> None:
    tracker = CloseTracker(CloseConditions(timeout_no_item=10), 0.0)
    assert tracker.next_at() == 10.0
    assert tracker.check(items=1, pages=1, errors=0, now=9.0) == ""
    assert tracker.next_at() == 19.0
    assert tracker.check(items=1, pages=50, errors=0, now=18.9) == ""
    assert tracker.check(items=1, pages=50, errors=0, now=19.0) == "closespider_timeout_no_item"


def test_pages_count_from_the_last_item() -> None:
    tracker = CloseTracker(CloseConditions(pagecount_no_item=3), 0.0)
    assert tracker.check(0, 2, 0, 1.0) == ""
    assert tracker.check(1, 3, 0, 1.0) == ""
    assert tracker.check(1, 5, 0, 1.0) == ""
    assert tracker.check(1, 6, 0, 1.0) == "closespider_pagecount_no_item"


def test_memory_warns_once_and_then_closes() -> None:
    used = iter([100 * MIB, 150 * MIB, 260 * MIB, 200 * MIB, 301 * MIB])
    stats, warned = StatsCollector(), []
    memory = MemoryMonitor(stats, lambda: warned.append(1), limit_mb=300, warning_mb=200, read=lambda: next(used))
    assert [memory.check(), memory.check(), memory.check(), memory.check()] == ["", "", "", "memusage_exceeded"]
    assert warned == [1]
    assert stats.get_stats() == {
        "memusage/startup": 100 * MIB,
        "memusage/max": 301 * MIB,
        "memusage/warning_reached": 1,
        "memusage/limit_reached": 1,
    }


def test_memory_without_limits_is_only_measured() -> None:
    stats = StatsCollector()
    memory = MemoryMonitor(stats, lambda: pytest.fail("warned"))
    assert memory.check() == ""
    assert stats.get_value("memusage/max") >= MIB
    with pytest.raises(BadSetting, match="MEMUSAGE_LIMIT_MB"):
        MemoryMonitor(stats, lambda: None, limit_mb=-1)


def test_resident_memory_follows_allocations() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB) as block:  # not malloc, which may still hold this much memory of other tests
        block.write(bytes(64 * MIB))
        assert resident_bytes() - before > 48 * MIB


def test_resident_memory_is_measured_without_proc_too(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr("lycosa.crawl.engine.close_conditions.STATM", tmp_path / "none")
    assert resident_bytes() > 10 * MIB


def test_finish_reasons_are_lower_case_words_with_a_meaning() -> None:
    assert all(re.fullmatch(r"[a-z_]+", word) and meaning for word, meaning in FINISH_REASONS.items())
