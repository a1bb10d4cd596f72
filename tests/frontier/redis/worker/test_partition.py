"""How a worker estimates the clock of a partition (F8)."""

from __future__ import annotations

from lycosa.frontier.redis.worker.partition import Partition


def bounds(partition: Partition, script_time: float, sent: float, now: float) -> tuple[float, float]:
    """Return the bounds of the offset after a call at which the script's clock showed `script_time`."""
    partition.time = script_time
    partition.compare_clocks(sent, now)
    return round(partition.clock_ahead_s, 3), round(partition.clock_ahead_max_s, 3)


def test_a_slow_call_does_not_widen_the_bounds_of_the_clock_offset() -> None:
    partition = Partition("x", 0)
    assert bounds(partition, 100.0, 99.9, 100.1) == (-0.1, 0.1)
    assert bounds(partition, 120.0, 100.0, 121.0) == (-0.1, 0.1)


def test_a_clock_that_was_set_replaces_the_bounds() -> None:
    partition = Partition("x", 0)
    bounds(partition, 100.0, 99.9, 100.1)
    assert bounds(partition, 200.0, 109.9, 110.1) == (89.9, 90.1)
