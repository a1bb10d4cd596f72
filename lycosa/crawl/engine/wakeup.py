"""A sleep that another task can end."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes one sleeper on the running loop. After a `set` or a timeout, sleeps end at once until
    `clear`."""

    def __init__(self) -> None:
        self._is_set = False
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        self._is_set = True
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def clear(self) -> None:
        self._is_set = False

    async def sleep(self, wait_s: float) -> None:
        """Sleep until `set` is called, for at most `wait_s`. May wake up early."""
        if self._is_set:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + wait_s
        # A timer that fires earlier is kept: one early wake-up costs less than a new timer for each sleep.
        if self._timer is None or self._timer.when() > at:
            self.cancel()
            self._timer = loop.call_at(at, self._on_timer)
        self._sleeper = loop.create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.set()
