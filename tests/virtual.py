"""An asyncio loop in virtual time: whoever sleeps makes the clock go on, and nothing else does."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualClock(selectors.SelectSelector):
    """Waits by setting the clock forward. Raises `AssertionError` when all wait for each other."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Look; nobody comes from outside."""
        assert timeout is not None, "everybody waits, for ever"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose time is that of its clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return how late it is."""
        return self.clock.now
