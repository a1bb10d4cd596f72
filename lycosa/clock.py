"""The one place where time and chance enter. Everything in `core` gets them as arguments."""

from __future__ import annotations

import random
import time


class Clock:
    """Unix seconds that never jump: the wall clock read once, then carried on by the monotonic one."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Return unix seconds."""
        return self._offset + time.monotonic()


def chance() -> float:
    """Return a number from 0 to 1."""
    return random.random()
