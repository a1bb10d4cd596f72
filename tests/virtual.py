"""An asyncio loop in virtual time, in which only sleeping advances the clock."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualClock(selectors.SelectSelector):
    """Waits by advancing the clock. Raises `AssertionError` in a deadlock."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        """Advance the clock. There are no I/O events."""
        assert timeout is not None, "all tasks wait for ever"
        self.now += max(0.0, timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop with a virtual clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        super().__init__(self.clock)

    def time(self) -> float:
        """Return the virtual time."""
        return self.clock.now
