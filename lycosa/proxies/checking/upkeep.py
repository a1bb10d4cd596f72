"""Checks the proxies of a pool continuously: each proxy at an interval, or after growing pauses if it fails.

While no judge answers, no proxy is blamed, and all checks wait. If a finding cannot be recorded, the check is repeated
later. The beginning and the end of such a failure are logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lycosa.core.errors import LycosaError, NoJudge, StateError
from lycosa.infra import clock
from lycosa.proxies.checking.checker import Checker, record_finding
from lycosa.proxies.core.checks.checks import Finding
from lycosa.proxies.core.checks.schedule import Schedule
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

RETRY_S, RETRY_MAX_S = 60.0, 6 * 3600.0
"""Maximum pause after a first failed check, and after any number of failures in a row, in seconds."""

REFRESH_S = 10.0
"""Seconds between two reads of the pool's proxies."""

REFRESH_FACTOR = 20
"""The next read also waits for this many times the duration of the last one: reading a large pool is slow."""

IDLE_MIN_S = 0.01
JUDGE_S = 10.0
"""Seconds until a check is tried again if no judge answers or its finding cannot be recorded."""


class Upkeep:
    """Checks a pool. `retry_s`: the maximum pause after a first failed check. `judge_s`: as JUDGE_S."""

    def __init__(
        self,
        pool: ProxyPool,
        checker: Checker,
        *,
        on_finding: Callable[[Finding], None] = lambda _: None,
        retry_s: float = RETRY_S,
        judge_s: float = JUDGE_S,
    ) -> None:
        self._pool = pool
        self._checker = checker
        self._on_finding = on_finding
        self._now = clock.Clock().now
        self._judge_s = judge_s
        self._schedule = Schedule(retry_s, RETRY_MAX_S)
        self._proxies: dict[str, Proxy] = {}
        self._is_failing = False
        self._refresh_at = 0.0
        self._wakeup = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled, which also cancels the running checks."""
        loop = asyncio.get_running_loop()
        wakeup = asyncio.create_task(self._wakeup.wait())
        running: set[asyncio.Task[None]] = set()
        try:
            while True:
                if (start := loop.time()) >= self._refresh_at:
                    self._refresh_at = start + REFRESH_S  # `refresh_soon` may be called during the await
                    await self._refresh()
                    self._refresh_at += REFRESH_FACTOR * (loop.time() - start)
                running |= await self._start_due(len(running))
                wait_s = self._idle_s(len(running), self._refresh_at - loop.time())
                done, _ = await asyncio.wait({*running, wakeup}, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done & running:
                    task.result()
                running -= done
                if wakeup.done():
                    self._wakeup.clear()
                    wakeup = asyncio.create_task(self._wakeup.wait())
        finally:
            for task in (wakeup, *running):
                task.cancel()
            await asyncio.gather(wakeup, *running, return_exceptions=True)

    def refresh_soon(self) -> None:
        """Make `run` read the proxies of the pool at once. Call this after adding proxies."""
        self._refresh_at = 0.0
        self._wakeup.set()

    async def _refresh(self) -> None:
        try:
            views = await self._pool.proxies()
        except StateError as error:
            self._log_failure(error)
            return
        self._proxies = {view.proxy.key: view.proxy for view in views}
        for key in self._schedule.names():
            if key not in self._proxies:
                self._schedule.remove(key)
        for key in self._proxies:
            self._schedule.add(key, self._now())

    async def _start_due(self, running: int) -> set[asyncio.Task[None]]:
        keys = self._schedule.start_due(self._now(), self._checker.checks.concurrency - running)
        if not keys:
            return set()
        try:
            await self._checker.ready()
        except NoJudge as error:
            for key in keys:
                self._postpone(key, error)
            return set()
        return {asyncio.create_task(self._check(key)) for key in keys}

    async def _check(self, key: str) -> None:
        checks = self._checker.checks
        try:
            finding = await self._checker.check(self._proxies[key])
            await record_finding(self._pool, finding, checks, self._now())
        except (NoJudge, StateError) as error:
            self._postpone(key, error)
            return
        if self._is_failing:
            log.warning("the checks of proxies have resumed")
            self._is_failing = False
        is_good = finding.alive and not finding.unfit(checks)
        self._schedule.finish(key, self._now(), clock.chance(), checks.every_s, success=is_good)
        self._on_finding(finding)

    def _postpone(self, key: str, error: LycosaError) -> None:
        self._log_failure(error)
        self._schedule.reschedule(key, self._now() + self._judge_s)

    def _log_failure(self, error: LycosaError) -> None:
        if not self._is_failing:
            log.warning("proxies are not checked: %s", error)
        self._is_failing = True

    def _idle_s(self, running: int, until_refresh_s: float) -> float:
        at = self._schedule.next_at() if running < self._checker.checks.concurrency else None
        until_due_s = until_refresh_s if at is None else at - self._now()
        return max(IDLE_MIN_S, min(until_refresh_s, until_due_s))
