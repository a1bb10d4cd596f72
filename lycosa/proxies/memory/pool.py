"""A pool of one process: the machine of `proxies.core`, with a clock, chance, and people who wait."""

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
from lycosa.proxies.memory.late_returns import LateReturns
from lycosa.proxies.memory.wait_queue import CLOSED, Waiter, WaitQueue
from lycosa.proxies.ports import ProxyExplanation, ProxyLease, ProxyView, TargetView
from lycosa.proxies.views import HEALTH_FIELDS, refuse_bad_count, view_everywhere, view_on_target, why_none

IN_LINE = Wait(None)
"""The answer to who comes when others wait already."""

EVERYWHERE = frozenset({Blame.PROXY, Blame.UNFIT})
"""After these a proxy is lost to all targets, which may be filled up with another one."""


class LocalPool:
    """See `proxies.ports.ProxyPool`. It forgets everything when its process ends, unless its `pool` is kept."""

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
        self._lines: dict[str, WaitQueue] = {}
        self._late = LateReturns()
        self._closed = False

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        """See `ProxyPool`."""
        added = self._pool.add(proxies, self._now(), unchecked=unchecked)
        self._serve_all()
        return added

    async def remove(self, keys: Iterable[str]) -> int:
        """See `ProxyPool`."""
        removed = len(self._pool.remove_all(keys, self._now()))
        self._serve_all()
        return removed

    async def count(self) -> int:
        """See `ProxyPool`."""
        return len(self._pool.proxies)

    async def forget_dead(self, kept_s: float) -> list[str]:
        """See `ProxyPool`."""
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
        """See `ProxyPool`."""
        refuse_bad_count(count, request)
        grants = self._ask(target, count, request, lease_s) if target not in self._lines else IN_LINE
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
        """See `ProxyPool`."""
        return self._pool.renew(lease.target, lease.token, self._now(), lease_s)

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        """See `ProxyPool`."""
        done = self._release(lease.target, lease.token, outcomes)
        if not done:
            self._late.note(lease)
        return done

    async def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        """See `ProxyPool`."""
        done = self._pool.ban(target, key, self._now(), until, reason)
        self._serve(target)
        return done

    async def unban(self, target: str, key: str) -> bool:
        """See `ProxyPool`."""
        done = self._pool.unban(target, key, self._now())
        self._serve(target)
        return done

    async def report_check(self, key: str, outcome: Outcome, exit_ip: str = "") -> bool:
        """See `ProxyPool`."""
        if key not in self._pool.proxies:
            return False
        self._pool.record(NO_PROXY_KEY, REACHED, self._now(), 0.0)
        self._pool.record(key, [outcome], self._now(), self._draw())
        if outcome.blame is Blame.NONE:
            self._pool.revive(key, self._now(), exit_ip)
        self._serve_all()
        return True

    async def proxies(self, target: str | None = None) -> list[ProxyView]:
        """See `ProxyPool`."""
        now = self._now()
        if target is None:
            return self._everywhere(now)
        pool = self._pool.targets.get(target)
        if pool is None:
            return []
        pool.expire(now)
        return [view_on_target(self._pool.proxies[member.key], member, now) for member in pool.members.values()]

    async def targets(self) -> list[TargetView]:
        """See `ProxyPool`."""
        now = self._now()
        return [
            TargetView(name, pool.counts(now), pool.leases, pool.granted, pool.leaked, pool.stale, pool.interval_s(now))
            for name, pool in self._pool.targets.items()
        ]

    async def explain(self, target: str, request: ProxyRequest = ANY) -> list[ProxyExplanation]:
        """See `ProxyPool`."""
        verdicts = explain_pool(self._pool, target, request, self._now())
        return [ProxyExplanation(self._pool.proxies[verdict.key], verdict) for verdict in verdicts]

    async def close(self) -> None:
        """See `ProxyPool`."""
        self._closed = True
        for line in self._lines.values():
            line.close(NoProxy(CLOSED))
        self._lines.clear()

    def _ask(self, target: str, count: int, request: ProxyRequest, lease_s: float | None) -> list[Grant] | Wait:
        if self._closed:
            raise NoProxy(CLOSED)
        draws = [self._draw() for _ in range(count)]
        return self._pool.acquire(target, self._now(), draws, request, lease_s)

    def _ask_for(self, target: str, waiter: Waiter) -> list[Grant] | Wait:
        return self._ask(target, waiter.count, waiter.request, waiter.lease_s)

    async def _wait(self, target: str, waiter: Waiter, wait_s: float) -> list[Grant]:
        """Wait in line. Who is cancelled at the moment he gets one gives it back."""
        line = self._lines.setdefault(target, WaitQueue(partial(self._ask_for, target), self._now))
        line.join(waiter)
        line.serve()
        try:
            async with asyncio.timeout(wait_s):
                return await waiter.granted
        except TimeoutError:
            if grants := waiter.got():  # in the last moment
                return grants
            raise NoProxy(self._why(target, waiter.count, waiter.request, wait_s)) from None
        except asyncio.CancelledError:
            for grant in waiter.got():
                self._release(target, grant.token, ())
            raise
        finally:
            line.leave(waiter)
            if not line and self._lines.get(target) is line:
                del self._lines[target]

    def _release(self, target: str, token: int, outcomes: Sequence[Outcome]) -> bool:
        key = self._pool.release(target, token, outcomes, self._now(), self._draw())
        if self._lines and any(outcome.blame in EVERYWHERE for outcome in outcomes):
            self._serve_all()
        else:
            self._serve(target)
        return key is not None

    def _serve(self, target: str) -> None:
        line = self._lines.get(target)
        if line is not None:
            line.serve()

    def _serve_all(self) -> None:
        for target in list(self._lines):
            self._serve(target)

    def _why(self, target: str, count: int, request: ProxyRequest, wait_s: float) -> str:
        now = self._now()
        is_empty = not self._pool.proxies
        counts = {} if is_empty else self._pool.target(target, now).counts(now, request)
        return why_none(target, count, self._pool.policy_of(target).members, wait_s, counts, is_empty=is_empty)

    def _everywhere(self, now: float) -> list[ProxyView]:
        known, health = self._pool.proxies, self._pool.health
        sums: dict[str, tuple[int, int, int]] = {}
        for target in self._pool.targets.values():
            for key, member in target.members.items():
                uses, good, bad = sums.get(key, (0, 0, 0))
                sums[key] = (uses + member.uses, good + member.good, bad + member.bad)
        told = ((key, {name: getattr(health[key], name) for name in HEALTH_FIELDS}) for key in self._pool.nearest())
        return [view_everywhere(known[key], seen, sums.get(key, (0, 0, 0)), now) for key, seen in told]
