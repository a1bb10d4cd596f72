"""Proxies of a pool on loan to the transfers of this process: waited for, renewed while they last, given back.

Nobody fails for want of a proxy. Who gets none waits a little, holding its place; then it gives the place back and
comes again (`NoProxyYet`), sooner so where none was lent lately, and at once where enough wait, so that hosts whose
proxies are free go on. When none worked for too long, the crawl ends (`CloseSpider`), and can be resumed.

A lease ends with its transfer, also when that is cancelled. What a killed process held comes back when the time of the
lease is over (`lease_s` of the target's policy).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from lycosa.core.errors import CloseSpider, NoProxy, NoProxyYet, StateError
from lycosa.crawl.fetching.proxying.selector import ProxySelector
from lycosa.infra.clock import Clock
from lycosa.proxies.core.attempts import Attempts
from lycosa.proxies.core.outcomes.outcome import Outcome, OutcomeRule
from lycosa.proxies.core.pool.outage import NO_PROXY, QUEUE_S, Outage, WaitQueueStats
from lycosa.proxies.ports import ProxyLease, ProxyPool

log = logging.getLogger(__name__)
T = TypeVar("T")

CLOSE_MAX_S = 5.0
"""At the end proxies are given back for at most so long; the rest come back by themselves."""

RENEW_MIN_S = 0.05

RulesOf = Callable[[str], Sequence[OutcomeRule]]


class ProxyLeaser:
    """Lends to one process. `tries`: proxies that are tried for a request; `wait_max_s`: as `Outage`.

    `rules_of(target)` says what answers mean.
    """

    def __init__(
        self, pool: ProxyPool, rules_of: RulesOf, clock: Clock, *, tries: int, wait_max_s: float | None
    ) -> None:
        self.rules_of = rules_of
        self.attempts = Attempts(tries)
        self._pool = pool
        self._clock = clock
        self._outage = Outage(wait_max_s)
        self._wait_stats = WaitQueueStats()
        self._told_end = False
        self._renewals: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def lend(self, wanted: ProxySelector, avoid: frozenset[str] = frozenset()) -> ProxyLease:
        """Return a proxy, not one to `avoid` if there is another.

        Raises `NoProxyYet`, and `CloseSpider` when there was none for too long.
        """
        lease = await self._another(wanted, avoid) if avoid and not wanted.session else None
        if lease is None:
            lease = await self._waited_for(wanted)
        self._wait_stats.lease_granted(wanted.target, self._clock.now())
        self._renew_later(lease, lease.deadline)
        return lease

    def worked(self) -> None:
        """An answer came through a proxy."""
        if lasted_s := self._outage.end(self._clock.now()):
            log.warning("proxies work again, after %.0f s", lasted_s)

    async def give_back(self, lease: ProxyLease, outcomes: Sequence[Outcome]) -> bool:
        """End the lease, also when the caller is cancelled meanwhile. False when it was over before."""
        renewal = self._renewals.pop((lease.target, lease.token), None)
        if renewal is not None:
            renewal.cancel()
        try:
            return await self._pool.release(lease, outcomes)
        except asyncio.CancelledError:  # nobody knows how far it came; what is over already is not ended twice
            self._started(self._pool.release(lease, outcomes))
            raise

    async def close(self) -> None:
        """Wait until all is given back."""
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_MAX_S)
        await self._pool.close()

    async def _another(self, wanted: ProxySelector, avoid: frozenset[str]) -> ProxyLease | None:
        try:
            return (await self._pool.acquire(wanted.target, request=wanted.proxy_request(avoid)))[0]
        except NoProxy:
            return None

    async def _waited_for(self, wanted: ProxySelector) -> ProxyLease:
        began = self._clock.now()
        which = wanted.session, frozenset(wanted.tags.items())
        if not self._wait_stats.has_room(wanted.target, which, began):
            raise NoProxyYet(f"enough wait for a proxy for {wanted.target}", began + QUEUE_S / 2)
        wait_s = self._wait_stats.wait_s(wanted.target, began)
        if self._outage.most_s is not None:
            wait_s = min(wait_s, self._outage.most_s / 4)  # it is told before it ends the crawl
        try:
            with self._wait_stats.waiting(wanted.target, which, began):
                return (await self._pool.acquire(wanted.target, request=wanted.proxy_request(), wait_s=wait_s))[0]
        except NoProxy as none:
            raise self._none(wanted.target, began, none) from None

    def _none(self, target: str, began: float, none: NoProxy) -> NoProxyYet | CloseSpider:
        now, most_s = self._clock.now(), self._outage.most_s
        dry = self._outage.extend(began, now)
        if dry.left_s == 0:
            if not self._told_end:
                log.error("%s, and none that works for %.1f s (proxy_wait): the crawl ends here", none, dry.for_s)
            self._told_end = True
            return CloseSpider(NO_PROXY)
        if dry.new:
            log.warning(
                "%s; the crawl waits%s", none, "" if most_s is None else f", for up to {most_s:g} s (proxy_wait)"
            )
        again_s = self._wait_stats.retry_s(target, began, now)
        return NoProxyYet(str(none), now + (again_s if dry.left_s is None else min(again_s, dry.left_s)))

    def _renew_later(self, lease: ProxyLease, deadline: float) -> None:
        after_s = max((deadline - self._clock.now()) / 2, RENEW_MIN_S)
        self._renewals[lease.target, lease.token] = asyncio.get_running_loop().call_later(
            after_s, lambda: self._started(self._renewed(lease))
        )

    async def _renewed(self, lease: ProxyLease) -> None:
        """Go on having it; one that is lost, or whose pool is away, is heard of when it is given back."""
        try:
            deadline = await self._pool.renew(lease)
        except StateError:
            return
        if deadline is not None and (lease.target, lease.token) in self._renewals:
            self._renew_later(lease, deadline)

    def _started(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waits for it hears of it
