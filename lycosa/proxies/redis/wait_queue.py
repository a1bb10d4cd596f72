"""Queues the callers in this process that wait for a proxy from a pool on Redis.

One call to the server serves many, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target import Grant, Wait
from lycosa.proxies.memory.wait_queue import WAITING_MAX, Waiter

REQUESTS_MAX = 32

RETRY_MIN_S, RETRY_MAX_S = 0.01, 0.25
"""Bounds, in seconds, of the delay until the next call after the server had no free proxy. Other processes may release
proxies meanwhile."""

CHECK_SHARE = 20
"""The search for timed-out callers takes at most about 1/CHECK_SHARE of the time, however many callers wait."""

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class RedisWaiter(Waiter):
    """A waiting caller. Times are loop times.

    It waits for a proxy until `wait_until`; the server is asked at least once. At `give_up_at` it gives up even if the
    server has not answered.
    """

    wait_until: float
    give_up_at: float

    @property
    def is_plain(self) -> bool:
        """Whether this caller accepts any single proxy with the queue's tags. If it gets none, later callers get
        none."""
        return self.count == 1 and not self.request.avoid

    def fail(self, error: Exception) -> None:
        """Raise `error` in the caller, unless it already has its grants."""
        if not self.granted.done():
            self.granted.set_exception(error)


class AcquireAnswers(NamedTuple):
    """One answer per caller. `is_filled`: whether a refill would bring no more proxies."""

    each: list[list[Grant] | Wait]
    is_filled: bool


@dataclass(eq=False, repr=False)
class RedisWaitQueue:
    """The callers with the same target, tags and session. `now` returns unix seconds.

    `acquire` asks the server for proxies for some callers. `refill` adds proxies to the target. `give_back` releases
    grants whose caller has given up. `on_empty` is called once no caller waits.
    """

    acquire: Callable[[Sequence[RedisWaiter]], Awaitable[AcquireAnswers]]
    refill: Callable[[], Awaitable[None]]
    give_back: Callable[[list[Grant]], None]
    on_empty: Callable[[], None]
    now: Callable[[], float]

    def __post_init__(self) -> None:
        self._waiting: deque[RedisWaiter] = deque()
        self._requested: Sequence[RedisWaiter] = ()
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._none_free = False
        self._released = 0
        self._wakeup = asyncio.Event()
        self.task = asyncio.create_task(self._serve())

    def join(self, waiter: RedisWaiter) -> None:
        """Raises `UsageError` if the queue is full."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} callers are already waiting for a proxy: make fewer concurrent requests")
        self._waiting.append(waiter)
        if self._timer is None or waiter.give_up_at < self._timer.when():
            self._set_timer(waiter.give_up_at)
        if waiter.wait_until < self._loop.time() + RETRY_MAX_S:
            self._wakeup.set()

    def wake(self, released: int) -> None:
        """Ask the server again: about `released` proxies may have become free."""
        self._released += released
        self._wakeup.set()

    def close(self, error: Exception) -> None:
        while self._waiting:
            self._waiting.popleft().fail(error)
        self._wakeup.set()

    async def _serve(self) -> None:
        try:
            while some := self._next():
                await self._serve_some(some)
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self.on_empty()

    def _set_timer(self, when: float) -> None:
        """Set the timer of the whole queue, which costs less than a timer for each caller."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._fail_given_up)

    def _fail_given_up(self) -> None:
        """Raise `TimeoutError` in the callers that give up, including those in the call in progress."""
        now = self._loop.time()
        self._timer, soonest = None, NEVER
        for waiter in chain(self._requested, self._waiting):
            if waiter.give_up_at <= now:
                waiter.fail(TimeoutError())
            elif not waiter.granted.done():
                soonest = min(soonest, waiter.give_up_at)
        if soonest is not NEVER:
            took_s = self._loop.time() - now
            self._set_timer(max(soonest, now + RETRY_MIN_S, now + CHECK_SHARE * took_s))

    async def _serve_some(self, some: list[RedisWaiter]) -> None:
        try:
            answers = await self.acquire(some)
            self._hand_out(some, answers.each)
            waits = [each for each in answers.each if isinstance(each, Wait)]
            if waits and not answers.is_filled:
                await self.refill()
        except Exception as error:  # noqa: BLE001 - it is raised in the callers
            for waiter in some:
                waiter.fail(error)
            return
        self._none_free = bool(waits) and answers.is_filled
        if self._none_free:
            self._fail_late()
            await self._pause(waits)

    def _next(self) -> list[RedisWaiter]:
        """Take the callers for the next call.

        After a call that found no free proxy, take about one caller for each proxy released since then.
        """
        free = min(max(1, self._released), REQUESTS_MAX) if self._none_free else REQUESTS_MAX
        self._released = 0
        self._wakeup.clear()
        some: list[RedisWaiter] = []
        self._requested = some
        while self._waiting and free > 0 and len(some) < REQUESTS_MAX:
            waiter = self._waiting.popleft()
            if not waiter.granted.done():
                some.append(waiter)
                free -= waiter.is_plain
        return some

    def _hand_out(self, some: Sequence[RedisWaiter], answers: Sequence[list[Grant] | Wait]) -> None:
        """Pass on the answers. Callers without a grant return to the front of the queue."""
        left = []
        for waiter, answer in zip(some, answers, strict=True):
            if isinstance(answer, Wait):
                left.append(waiter)
            elif waiter.granted.done():
                self.give_back(answer)
            else:
                waiter.granted.set_result(answer)
        self._waiting.extendleft(reversed(left))

    def _fail_late(self) -> None:
        now = self._loop.time()
        for waiter in self._waiting:
            if waiter.wait_until <= now:
                waiter.fail(TimeoutError())

    async def _pause(self, waits: Sequence[Wait]) -> None:
        at = min((wait.at for wait in waits if wait.at is not None), default=None)
        retry_s = RETRY_MAX_S if at is None else min(max(at - self.now(), RETRY_MIN_S), RETRY_MAX_S)
        ends = (waiter.wait_until for waiter in self._waiting if not waiter.granted.done())
        left_s = min(ends, default=0.0) - self._loop.time()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(retry_s, left_s))):
                await self._wakeup.wait()
