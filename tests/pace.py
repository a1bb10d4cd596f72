"""Checks that requests recorded by a server kept a delay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

LATE_S = 0.05
"""The usual maximum time between the start of a request and its arrival at the server."""

LATE_MAX_S = 2.0
"""The same for a few requests on a busy machine."""


def gaps_of(times: Iterable[float]) -> list[float]:
    """Return the seconds between consecutive times."""
    return [later - earlier for earlier, later in pairwise(sorted(times))]


def assert_paced(gaps: Sequence[float], delay_s: float) -> None:
    """Assert that requests that arrived with these gaps were started with at least this delay.

    On a busy machine some requests arrive late, so that the next request seems too soon. Each request is assumed to
    have started so long before its arrival that the requests after it kept their delays. This lateness must be at most
    LATE_S for nearly all requests, and at most LATE_MAX_S for the others. In a crawl that is too fast, the lateness
    grows with each request.
    """
    late = [0.0]
    for gap in reversed(gaps):
        late.append(max(0.0, late[-1] + delay_s - gap))
    early = [each for each in late if each > LATE_S]
    assert len(early) <= 2 + len(gaps) // 50, (early, gaps)
    assert max(late) <= LATE_MAX_S, (max(late), gaps)
