"""Who waits for a proxy of a target, in one process: first come, first served, and woken instead of asking again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lycosa.core.errors import LycosaError, UsageError
from lycosa.proxies.core.pool.target import Grant, ProxyRequest, Wait

CLOSED = "the pool is closed"
WAITING_MAX = 100_000
"""Who wait for one target at a time."""


@dataclass(slots=True, eq=False)
class Waiter:
    """One of them. `lease_s` as in `ProxyPool.acquire`."""

    count: int
    request: ProxyRequest
    lease_s: float | None
    granted: asyncio.Future[list[Grant]]

    @property
    def is_plain(self) -> bool:
        """Whether nobody else can have a proxy, either, when there is none for this one."""
        return self.count == 1 and not (self.request.tags or self.request.session or self.request.avoid)

    def got(self) -> list[Grant]:
        """Return what he was granted, if anything."""
        done = self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None
        return self.granted.result() if done else []


class WaitQueue:
    """The line of one target. `acquire` asks its pool now; `now` tells the time (unix seconds)."""

    def __init__(self, acquire: Callable[[Waiter], list[Grant] | Wait], now: Callable[[], float]) -> None:
        self._acquire = acquire
        self._now = now
        self._waiting: deque[Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiter: Waiter) -> None:
        """Stand at the end. Raises `UsageError` when far too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} wait for a proxy already: ask for fewer at a time")
        self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Go without one."""
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def serve(self) -> None:
        """Lend to those who wait what there is, in their order, and come again when there may be more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        left: deque[Waiter] = deque()
        at: float | None = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if waiter.granted.done():
                continue
            try:
                answer = self._acquire(waiter)
            except LycosaError as error:  # it cannot be kept, and is no affair of who gave one back
                waiter.granted.set_exception(error)
                continue
            if not isinstance(answer, Wait):
                waiter.granted.set_result(answer)
                continue
            left.append(waiter)
            at = answer.at if at is None else min(at, answer.at or at)
            if waiter.is_plain:
                break
        self._waiting.extendleft(reversed(left))
        if self._waiting and at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._now()), self.serve)

    def close(self, error: Exception) -> None:
        """Nobody gets one any more."""
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiting:
            if not waiter.granted.done():
                waiter.granted.set_exception(error)
        self._waiting.clear()
