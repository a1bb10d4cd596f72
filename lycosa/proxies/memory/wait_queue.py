"""Queues the callers of one process that wait for a proxy for one target: first come, first served, without polling."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lycosa.core.errors import LycosaError, UsageError
from lycosa.proxies.core.pool.target import Grant, ProxyRequest, Wait

CLOSED = "the pool is closed"
WAITING_MAX = 100_000
"""Maximum number of callers that wait for one target."""


@dataclass(slots=True, eq=False)
class Waiter:
    """A waiting caller. `lease_s` as in `ProxyPool.acquire`."""

    count: int
    request: ProxyRequest
    lease_s: float | None
    granted: asyncio.Future[list[Grant]]

    @property
    def is_plain(self) -> bool:
        """Whether this caller accepts any single proxy. If it gets none, later callers get none."""
        return self.count == 1 and not (self.request.tags or self.request.session or self.request.avoid)

    def grants(self) -> list[Grant]:
        """Return the grants of this caller; none while it waits or if it failed."""
        done = self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None
        return self.granted.result() if done else []


class WaitQueue:
    """The queue of one target. `acquire` tries to lease proxies; `now` returns unix seconds."""

    def __init__(self, acquire: Callable[[Waiter], list[Grant] | Wait], now: Callable[[], float]) -> None:
        self._acquire = acquire
        self._now = now
        self._waiting: deque[Waiter] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, waiter: Waiter) -> None:
        """Raises `UsageError` if the queue is full."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} callers are already waiting for a proxy: make fewer concurrent requests")
        self._waiting.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        if waiter in self._waiting:
            self._waiting.remove(waiter)

    def serve(self) -> None:
        """Lease free proxies to the callers in order. Set a timer for the time at which more may be free."""
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
            except LycosaError as error:  # the journal failed: raise this in the waiting caller
                waiter.granted.set_exception(error)
                continue
            if not isinstance(answer, Wait):
                waiter.granted.set_result(answer)
                continue
            left.append(waiter)
            at = answer.at if at is None else min(at, answer.at or at)
            if waiter.is_plain:  # no proxy is free for the callers behind this one
                break
        self._waiting.extendleft(reversed(left))
        if self._waiting and at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - self._now()), self.serve)

    def close(self, error: Exception) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for waiter in self._waiting:
            if not waiter.granted.done():
                waiter.granted.set_exception(error)
        self._waiting.clear()
