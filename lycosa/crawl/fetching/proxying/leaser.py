"""Leases proxies of a pool for the transfers of this process: waits for a proxy, and renews and releases its lease.

If no proxy is free, a request waits for a while and keeps its slot of the host. Then it frees the slot and is retried
later (`NoProxyYet`), sooner if the target had leases recently. If enough requests already wait for a proxy for the
target, a further request does not wait: it frees its slot at once, so that requests to other targets can run. If no
proxy has worked for too long, the crawl ends (`CloseSpider`) and can be resumed.

A lease ends with its transfer, even if the transfer is cancelled. The leases of a killed process expire.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from lycosa.core.errors import CloseSpider, NoProxy, NoProxyYet, StateError
from lycosa.crawl.fetching.proxying.selector import ProxySelector
from lycosa.infra.clock import Clock
from lycosa.proxies.core.attempts import Attempts
from lycosa.proxies.core.outcomes.outcome import Outcome, OutcomeRule
from lycosa.proxies.core.pool.outage import NO_PROXY, QUEUE_S, Outage, WaitQueueStats
from lycosa.proxies.ports import ProxyLease, ProxyPool

log = logging.getLogger(__name__)

CLOSE_MAX_S = 5.0
"""Maximum seconds to release all leases at the end of a crawl. The remaining leases expire."""

RENEW_MIN_S = 0.05

RulesOf = Callable[[str], Sequence[OutcomeRule]]


class ProxyLeaser:
    """The leases of one process. `tries`: maximum number of proxies per request.

    `wait_max_s`: seconds without a working proxy after which the crawl ends; None for no limit. `rules_of(target)`
    returns the rules that judge responses.
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
        self._end_logged = False
        self._renewals: dict[tuple[str, int], asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    async def acquire(self, selector: ProxySelector, avoid: frozenset[str] = frozenset()) -> ProxyLease:
        """Lease a proxy, if possible none of `avoid`.

        Raises `NoProxyYet`, or `CloseSpider` if no proxy has worked for too long.
        """
        lease = await self._acquire_other(selector, avoid) if avoid and not selector.session else None
        if lease is None:
            lease = await self._wait_for(selector)
        self._wait_stats.lease_granted(selector.target, self._clock.now())
        self._schedule_renewal(lease, lease.deadline)
        return lease

    def proxy_worked(self) -> None:
        """Record a response through a proxy, which ends an outage."""
        if lasted_s := self._outage.end(self._clock.now()):
            log.warning("proxies work again, after %.0f s", lasted_s)

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome]) -> bool:
        """Release a lease, even if the caller is cancelled. Return False if the lease had ended before."""
        renewal = self._renewals.pop((lease.target, lease.token), None)
        if renewal is not None:
            renewal.cancel()
        try:
            return await self._pool.release(lease, outcomes)
        except asyncio.CancelledError:  # the pool may not have received the call; a second release has no effect
            self._start(self._pool.release(lease, outcomes))
            raise

    async def close(self) -> None:
        for renewal in self._renewals.values():
            renewal.cancel()
        self._renewals.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_MAX_S)
        await self._pool.close()

    async def _acquire_other(self, selector: ProxySelector, avoid: frozenset[str]) -> ProxyLease | None:
        try:
            return (await self._pool.acquire(selector.target, request=selector.proxy_request(avoid)))[0]
        except NoProxy:
            return None

    async def _wait_for(self, selector: ProxySelector) -> ProxyLease:
        began = self._clock.now()
        which = selector.session, frozenset(selector.tags.items())
        if not self._wait_stats.has_room(selector.target, which, began):
            raise NoProxyYet(f"enough requests already wait for a proxy for {selector.target}", began + QUEUE_S / 2)
        wait_s = self._wait_stats.wait_s(selector.target, began)
        if self._outage.max_s is not None:
            wait_s = min(wait_s, self._outage.max_s / 4)  # so that an outage is logged before it ends the crawl
        try:
            with self._wait_stats.waiting(selector.target, which, began):
                request = selector.proxy_request()
                return (await self._pool.acquire(selector.target, request=request, wait_s=wait_s))[0]
        except NoProxy as error:
            raise self._no_proxy(selector.target, began, error) from None

    def _no_proxy(self, target: str, began: float, error: NoProxy) -> NoProxyYet | CloseSpider:
        now, max_s = self._clock.now(), self._outage.max_s
        status = self._outage.extend(began, now)
        # Unless max_s is 0, an outage is logged before it ends the crawl, even if a suspended process notices it late.
        if status.left_s == 0 and not (status.new and max_s):
            if not self._end_logged:
                log.error("%s, and none has worked for %.1f s (proxy_wait): the crawl ends", error, status.for_s)
            self._end_logged = True
            return CloseSpider(NO_PROXY)
        if status.new:
            limit = "" if max_s is None else f", for up to {max_s:g} s (proxy_wait)"
            log.warning("%s; the crawl waits%s", error, limit)
        retry_s = self._wait_stats.retry_s(target, began, now)
        return NoProxyYet(str(error), now + (retry_s if status.left_s is None else min(retry_s, status.left_s)))

    def _schedule_renewal(self, lease: ProxyLease, deadline: float) -> None:
        after_s = max((deadline - self._clock.now()) / 2, RENEW_MIN_S)
        self._renewals[lease.target, lease.token] = asyncio.get_running_loop().call_later(
            after_s, lambda: self._start(self._renew(lease))
        )

    async def _renew(self, lease: ProxyLease) -> None:
        # A lost lease or an unreachable pool is noticed at the release.
        try:
            deadline = await self._pool.renew(lease)
        except StateError:
            return
        if deadline is not None and (lease.target, lease.token) in self._renewals:
            self._schedule_renewal(lease, deadline)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # otherwise asyncio would log that nobody retrieved it
