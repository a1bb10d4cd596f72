"""A sleep that ends when it is rung, or at a time: cheap to begin, since its timer stays for as long as it will do."""

from __future__ import annotations

import asyncio


class Wakeup:
    """For one sleeper on the running loop. What rings while nobody sleeps ends the next sleep at once."""

    def __init__(self) -> None:
        self._rung = False
        self._sleeper: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def set(self) -> None:
        """End the sleep, or the next one."""
        self._rung = True
        sleeper = self._sleeper
        if sleeper is not None and not sleeper.done():
            sleeper.set_result(None)

    def clear(self) -> None:
        """What rang until now was heard."""
        self._rung = False

    async def sleep(self, wait_s: float) -> None:
        """Sleep until it rings, at most so long, or somewhat less."""
        if self._rung:
            return
        loop = asyncio.get_running_loop()
        at = loop.time() + wait_s
        if self._timer is None or self._timer.when() > at:
            self.cancel()
            self._timer = loop.call_at(at, self._time_is_up)
        self._sleeper = loop.create_future()
        try:
            await self._sleeper
        finally:
            self._sleeper = None

    def cancel(self) -> None:
        """Forget the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_is_up(self) -> None:
        self._timer = None
        self.set()
