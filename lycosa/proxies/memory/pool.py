"""A pool in the memory of one process: `GlobalPool` with a clock, randomness and a wait queue for callers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from lycosa.core.errors import NoProxy
from lycosa.infra import clock
from lycosa.proxies.core.explain import explain_pool
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import NO_PROXY_KEY, REACHED
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, Wait
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.late_releases import LateReleases
from lycosa.proxies.memory.wait_queue import CLOSED, Waiter, WaitQueue
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView
from lycosa.proxies.views import HEALTH_FIELDS, refuse_bad_count, view_everywhere, view_on_target, why_none

EVERYWHERE = frozenset({Blame.PROXY, Blame.UNFIT})
"""After these outcomes no target can use the proxy, so every target may get another proxy as a member."""


class LocalPool:
    """A `ProxyPool` in memory. Its state is lost with the process, unless the caller stores `pool`."""

    def __init__(
        self,
        policy_of: Callable[[str], TargetPolicy] = lambda _: TargetPolicy(),
        now: Callable[[], float] | None = None,
        draw: Callable[[], float] = clock.chance,
        pool: GlobalPool | None = None,
    ) -> None:
        self._pool = pool or GlobalPool(policy_of)
        self._now = now or clock.Clock().now
        self._draw = draw
        self._queues: dict[str, WaitQueue] = {}
        self._late = LateReleases()
        self._closed = False

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        added = self._pool.add(proxies, self._now(), unchecked=unchecked)
        self._serve_all()
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        removed = len(self._pool.remove_all(keys, self._now()))
        self._serve_all()
        return removed

    async def count(self) -> int:
        return len(self._pool.proxies)

    async def forget_dead(self, kept_s: float) -> list[str]:
        return self._pool.forget_dead(kept_s, self._now())

    async def acquire(
        self,
        target: str,
        count: int = 1,
        request: ProxyRequest = ANY,
        *,
        lease_s: float | None = None,
        wait_s: float = 0.0,
    ) -> list[ProxyLease]:
        refuse_bad_count(count, request)
        # A new caller must not overtake waiting ones.
        grants = Wait(None) if target in self._queues else self._acquire(target, count, request, lease_s)
        if isinstance(grants, Wait):
            waiter = Waiter(count, request, lease_s, asyncio.get_running_loop().create_future())
            grants = await self._wait(target, waiter, wait_s)
        return [
            ProxyLease(
                target, grant.token, self._pool.proxies[grant.key], grant.deadline, grant.rebound, grant.drawn_from
            )
            for grant in grants
        ]

    async def renew(self, lease: ProxyLease, lease_s: float | None = None) -> float | None:
        return self._pool.renew(lease.target, lease.token, self._now(), lease_s)

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        in_time = self._release(lease.target, lease.token, outcomes)
        if not in_time:
            self._late.add(lease)
        return in_time

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        done = self._pool.ban(target, key, self._now(), until, reason)
        self._serve(target)
        return done

    async def unban(self, target: str, key: str) -> bool:
        done = self._pool.unban(target, key, self._now())
        self._serve(target)
        return done

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        if key not in self._pool.proxies:
            return False
        self._pool.record(NO_PROXY_KEY, REACHED, self._now(), 0.0)
        self._pool.record(key, [outcome], self._now(), self._draw())
        if outcome.blame is Blame.NONE:
            self._pool.revive(key, self._now(), exit_ip)
        self._serve_all()
        return True

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        now = self._now()
        if target is None:
            return self._everywhere(now)
        pool = self._pool.targets.get(target)
        if pool is None:
            return []
        pool.expire(now)
        return [view_on_target(self._pool.proxies[member.key], member, now) for member in pool.members.values()]

    async def targets(self) -> list[TargetView]:
        now = self._now()
        return [
            TargetView(name, pool.counts(now), pool.leases, pool.granted, pool.leaked, pool.stale, pool.interval_s(now))
            for name, pool in self._pool.targets.items()
        ]

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        verdicts = explain_pool(self._pool, target, request, self._now())
        return [ProxyExplanation(self._pool.proxies[verdict.key], verdict) for verdict in verdicts]

    async def close(self) -> None:
        self._closed = True
        for queue in self._queues.values():
            queue.close(NoProxy(CLOSED))
        self._queues.clear()

    def _acquire(self, target: str, count: int, request: ProxyRequest, lease_s: float | None) -> list[Grant] | Wait:
        if self._closed:
            raise NoProxy(CLOSED)
        draws = [self._draw() for _ in range(count)]
        return self._pool.acquire(target, self._now(), draws, request, lease_s)

    def _acquire_for(self, target: str, waiter: Waiter) -> list[Grant] | Wait:
        return self._acquire(target, waiter.count, waiter.request, waiter.lease_s)

    async def _wait(self, target: str, waiter: Waiter, wait_s: float) -> list[Grant]:
        queue = self._queues.setdefault(target, WaitQueue(partial(self._acquire_for, target), self._now))
        queue.join(waiter)
        queue.serve()
        try:
            async with asyncio.timeout(wait_s):
                return await waiter.granted
        except TimeoutError:
            if grants := waiter.grants():  # granted in the same iteration of the loop
                return grants
            raise NoProxy(self._why_none(target, waiter.count, waiter.request, wait_s)) from None
        except asyncio.CancelledError:
            for grant in waiter.grants():  # the cancelled caller will not use its grants
                self._release(target, grant.token, ())
            raise
        finally:
            queue.leave(waiter)
            if not queue and self._queues.get(target) is queue:
                del self._queues[target]

    def _release(self, target: str, token: int, outcomes: Sequence[Outcome]) -> bool:
        key = self._pool.release(target, token, outcomes, self._now(), self._draw())
        if self._queues and any(outcome.blame in EVERYWHERE for outcome in outcomes):
            self._serve_all()
        else:
            self._serve(target)
        return key is not None

    def _serve(self, target: str) -> None:
        queue = self._queues.get(target)
        if queue is not None:
            queue.serve()

    def _serve_all(self) -> None:
        for target in list(self._queues):
            self._serve(target)

    def _why_none(self, target: str, count: int, request: ProxyRequest, wait_s: float) -> str:
        now = self._now()
        is_empty = not self._pool.proxies
        counts = {} if is_empty else self._pool.target(target, now).counts(now, request)
        return why_none(target, count, self._pool.policy_of(target).members, wait_s, counts, is_empty=is_empty)

    def _everywhere(self, now: float) -> list[ProxyView]:
        proxies, health = self._pool.proxies, self._pool.health
        counts: dict[str, tuple[int, int, int]] = {}
        for target in self._pool.targets.values():
            for key, member in target.members.items():
                uses, good, bad = counts.get(key, (0, 0, 0))
                counts[key] = (uses + member.uses, good + member.good, bad + member.bad)
        shown = ((key, {name: getattr(health[key], name) for name in HEALTH_FIELDS}) for key in self._pool.nearest())
        return [view_everywhere(proxies[key], fields, counts.get(key, (0, 0, 0)), now) for key, fields in shown]
