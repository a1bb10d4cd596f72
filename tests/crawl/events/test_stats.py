"""The snapshots of a run: the remaining time and what brakes it (C1)."""

from __future__ import annotations

import pytest

from lycosa.crawl.events.stats import RunStats
from lycosa.frontier.core.model import FrontierStats


def etas(queued: list[int], step_s: float = 1.0) -> list[float]:
    """Return the estimates for a queue that has these lengths, one each step."""
    stats = RunStats(1000.0)
    frontiers = (FrontierStats(queued=each) for each in queued)
    return [stats.snapshot(each, 1000.0 + place * step_s).eta_s for place, each in enumerate(frontiers)]


def test_a_shrinking_queue_has_an_estimate_after_a_while():
    assert etas([100, 90, 80, 70, 60, 50]) == [0.0, 0.0, 0.0, 7.0, 6.0, 5.0]


@pytest.mark.parametrize("queued", [[10, 20, 30, 40, 50], [10] * 9, [0] * 9])
def test_a_queue_that_does_not_shrink_has_none(queued):
    assert set(etas(queued)) == {0.0}


def test_only_the_last_seconds_count():
    assert etas([0, *range(1000, 0, -10)])[60] == pytest.approx((1000 - 59 * 10) / 10)


def test_what_brakes_counts_only_while_something_is_queued():
    stats = RunStats(1000.0)
    assert stats.snapshot(FrontierStats(queued=3, brake="delay", work_s=3.0), 1001.0).brake == "delay"
    assert stats.snapshot(FrontierStats(leased=3, brake="delay"), 1001.0).brake == ""
    assert stats.snapshot(FrontierStats(queued=3, blocked_s=2.0), 1001.0).blocked_s == 2.0
