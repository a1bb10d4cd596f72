"""The snapshots of a run: the remaining time, and the brake: why no queued URL can be fetched now (C1)."""

from __future__ import annotations

import pytest

from lycosa.crawl.events.stats import RunStats
from lycosa.frontier.core.model import FrontierStats


def etas(queued: list[int], step_s: float = 1.0) -> list[float]:
    """Return the estimates for a queue of these lengths, one length at each step."""
    stats = RunStats(1000.0)
    frontiers = (FrontierStats(queued=each) for each in queued)
    return [stats.snapshot(each, 1000.0 + place * step_s).eta_s for place, each in enumerate(frontiers)]


def test_a_shrinking_queue_has_an_estimate_after_a_while():
    assert etas([100, 90, 80, 70, 60, 50]) == [0.0, 0.0, 0.0, 7.0, 6.0, 5.0]


@pytest.mark.parametrize("queued", [[10, 20, 30, 40, 50], [10] * 9, [0] * 9])
def test_a_queue_that_does_not_shrink_has_no_estimate(queued):
    assert set(etas(queued)) == {0.0}


def test_only_the_last_seconds_count_for_the_estimate():
    assert etas([0, *range(1000, 0, -10)])[60] == pytest.approx((1000 - 59 * 10) / 10)


def test_a_snapshot_has_a_brake_only_while_something_is_queued():
    stats = RunStats(1000.0)
    assert stats.snapshot(FrontierStats(queued=3, brake="delay", work_s=3.0), 1001.0).brake == "delay"
    assert stats.snapshot(FrontierStats(leased=3, brake="delay"), 1001.0).brake == ""


def test_the_seconds_of_a_block_count_down_and_the_rate_before_the_block_is_kept():
    stats = RunStats(1000.0, pages=30)
    assert stats.snapshot(FrontierStats(queued=3), 1001.0).free_rate == 30.0
    blocked = [stats.snapshot(FrontierStats(queued=3, blocked_until=1005.0), at) for at in (1002.0, 1004.0, 1006.0)]
    assert [each.blocked_s for each in blocked] == [3.0, 1.0, 0.0]
    assert [each.free_rate for each in blocked] == [30.0, 30.0, blocked[-1].rate]
    assert blocked[0].rate < 30.0
