"""Keeps the proxies of a pool checked: all in their usual time, those that fail after growing pauses.

Without a judge that answers nobody is blamed, and everything waits for one. What cannot be told to the pool is found
again later. Both are logged once when they begin, and once when they are over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lycosa.core.errors import LycosaError, NoJudge, StateError
from lycosa.infra import clock
from lycosa.proxies.checking.checker import Checker, tell
from lycosa.proxies.core.checks.checks import Finding
from lycosa.proxies.core.checks.schedule import Schedule
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

RETRY_S, RETRY_MAX_S = 60.0, 6 * 3600.0
"""The pause after a first failed check, and the longest."""

SEE_S = 10.0
"""How often is looked which proxies the pool has."""

SEE_FACTOR = 20
"""So many times as long as that took is waited besides: of a large pool it takes long."""

IDLE_MIN_S = 0.01
JUDGE_S = 10.0
"""Pause when no judge answers, or the pool cannot be reached."""


class Upkeep:
    """Checks a pool until it is cancelled. `heard` is told each finding; `now` in unix seconds, `draw` from 0 to 1."""

    def __init__(
        self,
        pool: ProxyPool,
        checker: Checker,
        *,
        heard: Callable[[Finding], None] = lambda _: None,
        now: Callable[[], float] | None = None,
        draw: Callable[[], float] = clock.chance,
        retry_s: float = RETRY_S,
        see_s: float = SEE_S,
        judge_s: float = JUDGE_S,
    ) -> None:
        self._pool = pool
        self._checker = checker
        self._heard = heard
        self._now = now or clock.Clock().now
        self._draw = draw
        self._see_s, self._judge_s = see_s, judge_s
        self._schedule = Schedule(retry_s, RETRY_MAX_S)
        self._proxies: dict[str, Proxy] = {}
        self._trouble = ""
        self._see_at = 0.0
        self._woken = asyncio.Event()

    async def run(self) -> None:
        """Go on until cancelled; what is under way ends then, too."""
        loop = asyncio.get_running_loop()
        woken = asyncio.create_task(self._woken.wait())
        under_way: set[asyncio.Task[None]] = set()
        try:
            while True:
                if loop.time() >= self._see_at:
                    begun_at = loop.time()
                    self._see_at = begun_at + self._see_s
                    await self._see()
                    self._see_at += SEE_FACTOR * (loop.time() - begun_at)
                under_way |= await self._begin(len(under_way))
                wait_s = self._idle_s(len(under_way), self._see_at - loop.time())
                done, _ = await asyncio.wait({*under_way, woken}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for each in done & under_way:
                    each.result()
                under_way -= done
                if woken.done():
                    self._woken.clear()
                    woken = asyncio.create_task(self._woken.wait())
        finally:
            for each in (woken, *under_way):
                each.cancel()
            await asyncio.gather(woken, *under_way, return_exceptions=True)

    def look(self) -> None:
        """Look soon which proxies the pool has: there are others."""
        self._see_at = 0.0
        self._woken.set()

    async def _see(self) -> None:
        """Learn which proxies there are."""
        try:
            views = await self._pool.proxies()
        except StateError as error:
            self._troubled(error)
            return
        self._proxies = {view.proxy.key: view.proxy for view in views}
        for key in self._schedule.names():
            if key not in self._proxies:
                self._schedule.remove(key)
        for key in self._proxies:
            self._schedule.add(key, self._now())

    async def _begin(self, busy: int) -> set[asyncio.Task[None]]:
        """Start what is due, if there is a judge."""
        keys = self._schedule.start_due(self._now(), self._checker.checks.concurrency - busy)
        if not keys:
            return set()
        try:
            await self._checker.ready()
        except NoJudge as error:
            self._troubled(error)
            for key in keys:
                self._schedule.reschedule(key, self._now() + self._judge_s)
            return set()
        return {asyncio.create_task(self._check(key)) for key in keys}

    async def _check(self, key: str) -> None:
        """Check one, and set its next turn."""
        try:
            finding = await self._checker.check(self._proxies[key])
            await tell(self._pool, finding, self._checker.checks, self._now())
        except (NoJudge, StateError) as error:
            self._troubled(error)
            self._schedule.reschedule(key, self._now() + self._judge_s)
            return
        if self._trouble:
            log.warning("proxies are checked again")
            self._trouble = ""
        checks = self._checker.checks
        well = finding.alive and not finding.unfit(checks)
        self._schedule.finish(key, self._now(), self._draw(), checks.every_s, success=well)
        self._heard(finding)

    def _troubled(self, error: LycosaError) -> None:
        if not self._trouble:
            log.warning("proxies are not checked: %s", error)
        self._trouble = str(error)

    def _idle_s(self, busy: int, until_seen_s: float) -> float:
        """Return how long there is nothing to begin, as far as is known."""
        at = self._schedule.next_at() if busy < self._checker.checks.concurrency else None
        until_due_s = until_seen_s if at is None else at - self._now()
        return max(IDLE_MIN_S, min(until_seen_s, until_due_s))
