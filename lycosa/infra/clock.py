"""Time and randomness, which the code in `core` gets as arguments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

CHECK_S = 10.0
"""Monotonic seconds between two readings of the wall clock."""

SLOWEST = 0.5
"""Minimum speed of our clock while a wall clock that was set back catches up."""


class Clock:
    """Unix seconds that never go backwards.

    If the wall clock was set forward, or the machine slept, our time jumps. If the wall clock was set back, our time
    runs more slowly until the wall clock has caught up: past timestamps stay in the past, and pauses get longer.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._at = wall()
        self._since = monotonic()
        self._rate = 1.0

    def now(self) -> float:
        passed = self._monotonic() - self._since
        if passed >= CHECK_S:
            self._check(passed)
            return self._at
        return self._at + passed * self._rate

    def _check(self, passed: float) -> None:
        ours, wall = self._at + passed * self._rate, self._wall()
        self._at, self._since = max(ours, wall), self._since + passed
        ahead = self._at - wall
        # At this rate our time agrees with the wall clock at the next check; at SLOWEST it takes several checks.
        self._rate = max(SLOWEST, 1.0 - ahead / CHECK_S)


def chance() -> float:
    """Return a random number from 0 to 1."""
    return random.random()
