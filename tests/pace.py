"""How close together requests may be heard of that are to keep a pace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

LATE_S = 0.05
"""How much later than its turn a server usually hears of a request at most, unknown to the crawl."""

LATE_MAX_S = 2.0
"""The same on a machine with too much to do, of a few."""


def gaps_of(times: Iterable[float]) -> list[float]:
    """Return the seconds between each of these and the next."""
    return [later - sooner for sooner, later in pairwise(sorted(times))]


def assert_paced(gaps: Sequence[float], delay_s: float) -> None:
    """Assert that requests that came so long after one another kept the delay.

    On a machine with too much to do a server hears of some requests late, and of the next one too soon, as it seems. So
    each is taken to have been sent as much before it was heard of as those behind it need for their delays, and that is
    little: nothing at all for nearly all, and never much. A crawl that is too fast is later with each request.
    """
    late = [0.0]
    for gap in reversed(gaps):
        late.append(max(0.0, late[-1] + delay_s - gap))
    early = [each for each in late if each > LATE_S]
    assert len(early) <= 2 + len(gaps) // 50, (early, gaps)
    assert max(late) <= LATE_MAX_S, (max(late), gaps)
