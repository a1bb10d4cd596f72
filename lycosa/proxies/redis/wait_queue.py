"""Who of one process waits for a proxy of a target on a server: asked for together, served in their order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool.target import Grant, ProxyRequest, Wait
from lycosa.proxies.memory.wait_queue import WAITING_MAX

ASKED_MAX = 32
"""So many are asked for at once."""

AGAIN_MIN_S, AGAIN_MAX_S = 0.01, 0.25
"""Who waits asks again after so long: others, in other processes, may have given one back."""

LOOKS_PART = 20
"""To look who is over takes a twentieth of the time at most, however many wait."""

NEVER = float("inf")


@dataclass(slots=True, eq=False)
class Asker:
    """One of them. He waits until `ends` (time of the loop), but is asked for once at least, until `over` at most."""

    count: int
    request: ProxyRequest
    lease_s: float | None
    ends: float
    over: float
    granted: asyncio.Future[list[Grant]]

    @property
    def is_plain(self) -> bool:
        """Whether those behind him have nothing to hope for when there is nothing for him."""
        return self.count == 1 and not self.request.avoid

    def got(self) -> list[Grant]:
        """Return what he was granted, if anything."""
        done = self.granted.done() and not self.granted.cancelled() and self.granted.exception() is None
        return self.granted.result() if done else []

    def refuse(self, error: Exception) -> None:
        """He gets nothing, unless he has it already."""
        if not self.granted.done():
            self.granted.set_exception(error)


class Answers(NamedTuple):
    """What was answered to each. `is_filled`: the target has all that the global pool can give."""

    each: list[list[Grant] | Wait]
    is_filled: bool


class Line:
    """Those with the same target, tags and session.

    `ask` asks the server for some of them, `fill` lets the target have more proxies, `give_back` returns what was
    granted to somebody who is gone, `ended` hears when nobody waits any more; `now` is the time (unix seconds).
    """

    def __init__(
        self,
        ask: Callable[[Sequence[Asker]], Awaitable[Answers]],
        fill: Callable[[], Awaitable[None]],
        give_back: Callable[[list[Grant]], None],
        ended: Callable[[], None],
        now: Callable[[], float],
    ) -> None:
        self._ask, self._fill, self._give_back, self._ended, self._now = ask, fill, give_back, ended, now
        self._waiting: deque[Asker] = deque()
        self._asked: Sequence[Asker] = ()
        self._loop = asyncio.get_running_loop()
        self._watch: asyncio.TimerHandle | None = None
        self._blocked = False
        self._returned = 0
        self._woken = asyncio.Event()
        self.task = asyncio.create_task(self._serve())

    def join(self, asker: Asker) -> None:
        """Stand at the end. Raises `UsageError` when far too many wait."""
        if len(self._waiting) >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} wait for a proxy already: ask for fewer at a time")
        self._waiting.append(asker)
        if self._watch is None or asker.over < self._watch.when():
            self._watch_until(asker.over)
        if asker.ends < self._loop.time() + AGAIN_MAX_S:
            self._woken.set()

    def woken(self, returned: int) -> None:
        """So many may have come back."""
        self._returned += returned
        self._woken.set()

    def close(self, error: Exception) -> None:
        """Nobody gets one any more."""
        while self._waiting:
            self._waiting.popleft().refuse(error)
        self._woken.set()

    async def _serve(self) -> None:
        try:
            while some := self._next():
                await self._serve_some(some)
        finally:
            if self._watch is not None:
                self._watch.cancel()
            self._ended()

    def _watch_until(self, when: float) -> None:
        """Look then who is over: one timer for all costs less than one for each."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = self._loop.call_at(when, self._end_those_over)

    def _end_those_over(self) -> None:
        """Those who have waited for an answer of the server, too."""
        now = self._loop.time()
        self._watch, soonest = None, NEVER
        for asker in chain(self._asked, self._waiting):
            if asker.over <= now:
                asker.refuse(TimeoutError())
            elif not asker.granted.done():
                soonest = min(soonest, asker.over)
        if soonest is not NEVER:
            took_s = self._loop.time() - now
            self._watch_until(max(soonest, now + AGAIN_MIN_S, now + LOOKS_PART * took_s))

    async def _serve_some(self, some: list[Asker]) -> None:
        try:
            answers = await self._ask(some)
            self._tell(some, answers.each)
            waits = [each for each in answers.each if isinstance(each, Wait)]
            if waits and not answers.is_filled:
                await self._fill()
        except Exception as error:  # noqa: BLE001 - whoever waits has to hear of it, whatever it is
            for asker in some:
                asker.refuse(error)
            return
        self._blocked = bool(waits) and answers.is_filled
        if self._blocked:
            self._end_the_late()
            await self._pause(waits)

    def _next(self) -> list[Asker]:
        """Take those who are asked for next: all, or when there was nothing, as many as may have come back."""
        hope = min(max(1, self._returned), ASKED_MAX) if self._blocked else ASKED_MAX
        self._returned = 0
        self._woken.clear()
        some: list[Asker] = []
        self._asked = some
        while self._waiting and hope > 0 and len(some) < ASKED_MAX:
            asker = self._waiting.popleft()
            if not asker.granted.done():
                some.append(asker)
                hope -= asker.is_plain
        return some

    def _tell(self, some: Sequence[Asker], answers: Sequence[list[Grant] | Wait]) -> None:
        """Give everybody what he got; who got nothing stands where he stood."""
        left = []
        for asker, answer in zip(some, answers, strict=True):
            if isinstance(answer, Wait):
                left.append(asker)
            elif asker.granted.done():
                self._give_back(answer)
            else:
                asker.granted.set_result(answer)
        self._waiting.extendleft(reversed(left))

    def _end_the_late(self) -> None:
        """Nothing is there: those who do not want to wait longer go."""
        now = self._loop.time()
        for asker in self._waiting:
            if asker.ends <= now:
                asker.refuse(TimeoutError())

    async def _pause(self, waits: Sequence[Wait]) -> None:
        """Wait until there may be something, or somebody's time is over."""
        at = min((wait.at for wait in waits if wait.at is not None), default=None)
        soon_s = AGAIN_MAX_S if at is None else min(max(at - self._now(), AGAIN_MIN_S), AGAIN_MAX_S)
        ends = min((asker.ends for asker in self._waiting if not asker.granted.done()), default=self._loop.time())
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, min(soon_s, ends - self._loop.time()))):
                await self._woken.wait()
