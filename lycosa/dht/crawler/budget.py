"""A rate limit per minute that several tasks share."""

from __future__ import annotations

import asyncio
import math

from lycosa.dht.core.limits import TokenBucket
from lycosa.dht.crawler.core.profiles import BURST_SHARE

TIMER_ERROR_S = 0.001
"""A loop may wake a task up half a millisecond early."""


class Budget:
    """Allows `per_minute` operations, spread over the minute. Waiting tasks are served first come, first served."""

    def __init__(self, per_minute: float) -> None:
        self._interval_s = 60 / per_minute
        self._bucket = TokenBucket(per_minute / 60, max(1.0, BURST_SHARE * per_minute))
        self._turn = asyncio.Lock()
        self._waiting = 0

    @property
    def is_used_up(self) -> bool:
        return self._waiting > 1

    def take_now(self) -> bool:
        """Take an operation if one is available and no task waits."""
        return not self._waiting and self._bucket.take(1, asyncio.get_running_loop().time())

    async def take(self, max_wait_s: float = math.inf) -> bool:
        """Wait for an operation, and take it. Return False at once if the wait would exceed `max_wait_s`."""
        if self._waiting * self._interval_s > max_wait_s:
            return False
        self._waiting += 1
        try:
            async with self._turn:
                now = asyncio.get_running_loop().time()
                if (wait_s := self._bucket.ready_at(1, now) - now) > 0:
                    await asyncio.sleep(wait_s + TIMER_ERROR_S)
                self._bucket.take(1, asyncio.get_running_loop().time())
        finally:
            self._waiting -= 1
        return True

    def put_back(self) -> None:
        self._bucket.put_back(1)
