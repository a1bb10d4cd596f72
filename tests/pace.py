"""Checks that requests recorded by a server kept a delay."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

LATE_S = 0.05
"""The usual maximum time between the start of a request and its arrival at the server."""

FEW_LATE_S = 0.2
"""The same in a crawl with few requests, of which a busy machine may delay a third by this time."""

LATE_MAX_S = 5.0
"""The same for a few requests on a busy machine."""


def gaps_of(times: Iterable[float]) -> list[float]:
    """Return the seconds between consecutive times."""
    return [later - earlier for earlier, later in pairwise(sorted(times))]


def assert_paced(gaps: Sequence[float], delay_s: float) -> None:
    """Assert that requests that arrived with these gaps were started with at least this delay.

    On a busy machine some requests arrive late, so that the next request seems too soon. Each request is assumed to
    have started so long before its arrival that the requests after it kept their delays. This lateness must be at most
    the delay or FEW_LATE_S for nearly all requests, and at most LATE_MAX_S for the others. In a crawl that is too fast,
    the lateness grows with each request.

    A server that pauses receives the requests of this time together, after it has received nothing at all. Such
    requests count as one.
    """
    assert_hosts_paced([[*accumulate(gaps, initial=0.0)]], delay_s, max(LATE_S, min(delay_s, FEW_LATE_S)))


def assert_hosts_paced(hosts: Iterable[Iterable[float]], delay_s: float, usual_s: float = LATE_S) -> None:
    """Assert the same for several hosts of one server, each with its own delay, by the arrivals at each of them."""
    times = [sorted(each) for each in hosts]
    late = [(at, late_s) for each in times for at, late_s in zip(each, lateness(each, delay_s), strict=True)]
    late = sorted((at, late_s) for at, late_s in late if late_s > usual_s)
    arrivals = sorted(at for each in times for at in each)
    after_pauses = [at for at, late_s in late if _was_silent(arrivals, at, late_s)]
    pauses = sum(at - before > LATE_S for before, at in pairwise([float("-inf"), *after_pauses]))
    early = len(late) - len(after_pauses) + pauses
    assert early <= 2 + (len(arrivals) - len(times)) // 50, (early, late, times[:3])
    assert max((late_s for _, late_s in late), default=0.0) <= LATE_MAX_S, (late, times[:3])


def lateness(times: Sequence[float], delay_s: float) -> list[float]:
    """Return how long before its arrival each request must have started for the delay to be kept."""
    late = [0.0]
    for gap in reversed(gaps_of(times)):
        late.append(max(0.0, late[-1] + delay_s - gap))
    return late[::-1] if times else []


def _was_silent(arrivals: Sequence[float], at: float, late_s: float) -> bool:
    """Whether nothing arrived from the start of a late request until just before its arrival."""
    before = bisect_left(arrivals, at - LATE_S)
    return before > 0 and at - arrivals[before - 1] >= late_s - LATE_S
