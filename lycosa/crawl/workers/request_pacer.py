"""Keeps the delay between the starts of requests to a host when several processes send them.

The frontier counts the delay from the time of a lease. A busy process sends its request later, so the next request of
another process could be too early. Therefore a lease waits here until the process with the previous lease has reported
the start of its request. Keys are hosts, and also IP addresses if there is a delay per address.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

REPORT_TIMEOUT_S = 30.0
"""A request whose start is not reported blocks the next request for at most this many seconds."""

KEYS_MAX = 10_000
"""Maximum remembered keys. If there are more, the least recently used key without a pending start is forgotten."""


class StartInterval(NamedTuple):
    """The minimum time between two starts with the same key."""

    key: str
    delay_s: float


class _Key:
    __slots__ = ("last_start", "lock")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.last_start = 0.0


class PendingStart:
    """A request that may start now. The next requests with its keys wait for `report` or `release`."""

    def __init__(self) -> None:
        self.keys: list[_Key] = []
        self._is_released = False
        self._timer: asyncio.TimerHandle | None = None

    def expire_after(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self.release)

    def report(self, at: float) -> None:
        """Record that the request started at this time (unix seconds), and let the next one start."""
        for key in self.keys:
            key.last_start = max(key.last_start, at)
        self.release()

    def release(self) -> None:
        """Let the next request start. A second call does nothing."""
        if not self._is_released:
            self._is_released = True
            if self._timer is not None:
                self._timer.cancel()
            for key in self.keys:
                key.lock.release()


class RequestPacer:
    """Delays the requests of one crawl. `now` returns unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._keys: OrderedDict[str, _Key] = OrderedDict()

    async def acquire(self, intervals: Sequence[StartInterval]) -> PendingStart:
        start = PendingStart()
        try:
            for interval in intervals:  # lock order: a host before its address, so that requests cannot deadlock
                key = self._key(interval.key)
                await key.lock.acquire()
                start.keys.append(key)
                while (wait_s := key.last_start + interval.delay_s - self._now()) > 0:  # noqa: ASYNC110
                    await asyncio.sleep(min(wait_s, interval.delay_s))  # limits the wait if the clock was set back
        except BaseException:
            start.release()
            raise
        start.expire_after(REPORT_TIMEOUT_S)
        return start

    def correct(self, intervals: Sequence[StartInterval], at: float) -> None:
        """Correct a reported start: the request with these intervals started later, at this time (unix seconds)."""
        for interval in intervals:
            key = self._key(interval.key)
            key.last_start = max(key.last_start, at)

    def _key(self, name: str) -> _Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key()
            if len(self._keys) > KEYS_MAX:
                self._forget()
        else:
            self._keys.move_to_end(name)
        return key

    def _forget(self) -> None:
        name = next((name for name, key in self._keys.items() if not key.lock.locked()), None)
        if name is not None:
            del self._keys[name]
