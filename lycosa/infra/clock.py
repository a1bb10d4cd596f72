"""The one place where time and chance enter. Everything in `core` gets them as arguments."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

CHECK_S = 10.0
"""The wall clock is looked at again after so many monotonic seconds; in between the monotonic clock carries it on."""

SLOWEST = 0.5
"""When the wall clock was set back, our time runs at this rate at least until that has caught up."""


class Clock:
    """Unix seconds that never go backwards, and soon agree with the wall clock again when that was set.

    It was set forward, or the machine slept: our time leaps. It was set back: our time goes slower for a while, so that
    what was stamped already stays in the past and pauses only get longer.
    """

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._at = wall()
        self._since = monotonic()
        self._rate = 1.0

    def now(self) -> float:
        """Return unix seconds."""
        passed = self._monotonic() - self._since
        if passed >= CHECK_S:
            self._check(passed)
            return self._at
        return self._at + passed * self._rate

    def _check(self, passed: float) -> None:
        ours, wall = self._at + passed * self._rate, self._wall()
        self._at, self._since = max(ours, wall), self._since + passed
        ahead = self._at - wall
        self._rate = max(SLOWEST, 1.0 - ahead / CHECK_S)


def chance() -> float:
    """Return a number from 0 to 1."""
    return random.random()
