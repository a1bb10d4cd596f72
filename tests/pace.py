"""How close together requests may be heard of that are to keep a pace."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

LATE_S = 0.05
"""How much later than its turn a server usually hears of a request at most, unknown to the crawl."""


def gaps_of(times: Iterable[float]) -> list[float]:
    """Return the seconds between each of these and the next."""
    return [later - sooner for sooner, later in pairwise(sorted(times))]


def assert_paced(gaps: Collection[float], delay_s: float) -> None:
    """Assert that requests that came so long after one another kept the delay.

    On a machine with too much to do a server hears of some requests even later than LATE_S, and then of the next one
    too soon: of one in a hundred, and of none at the same time.
    """
    early = sorted(gap for gap in gaps if gap < delay_s - LATE_S)
    assert len(early) <= 1 + len(gaps) // 100, early
    assert min(gaps) >= delay_s / 5, early
