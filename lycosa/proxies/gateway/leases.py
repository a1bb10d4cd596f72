"""The leases of a gateway: one for each request or tunnel, or one for all concurrent uses by a session.

A lease is renewed while it is in use, and released with an outcome for each use. Client reports are outcomes, too.
A bad report ends the lease and its tunnels at once, so the next request of the session gets another proxy. A bad report
after the end of the lease bans the proxy for the target, unless the lease had a bad outcome already.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from lycosa.core.errors import Forbidden, LycosaError, StateError
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.gateway.username import GatewayUser, StickySessions
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.outcomes.reports import ClientReport
from lycosa.proxies.core.pool.choices import Choices, LeaseChoice
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.gateway.counts import GatewayCounts
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyLease, ProxyPool

ENDED_MAX = 10_000
REPORT_WINDOW_S = 300.0
"""How long clients may report on an ended lease. At most ENDED_MAX ended leases are remembered."""

LATE_BAN_S = 300.0
"""Duration of the ban after a late report without `retry_after`."""

OUTCOMES_MAX = 10_000
"""When a lease has this many outcomes, only bad ones are added. This limits the memory of a lease that never ends
because its session never pauses.
"""

RENEWALS = 3
"""A lease is renewed after 1 / RENEWALS of its duration."""

BAD = frozenset({Blame.SITE, Blame.PROXY})
log = logging.getLogger(__name__)
SessionKey = tuple[str, str]
"""The target, and the name of the session in the pool."""

ClientSession = tuple[str, str, str]
"""The account, the session that the client gave in its user name, and the target."""


@dataclass(slots=True, eq=False)
class GatewayLease:
    """A lease. `id`: the value of X-Proxy-Lease. `use_count`: requests and tunnels that use it now.

    `on_end`: called if the lease ends while it is in use.
    """

    id: str
    client_session: ClientSession
    proxy_lease: ProxyLease
    key: SessionKey | None
    choice: LeaseChoice
    use_count: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    ended: bool = False
    on_end: set[Callable[[], None]] = field(default_factory=set)

    def add_outcome(self, outcome: Outcome) -> None:
        if len(self.outcomes) < OUTCOMES_MAX or outcome.blame in BAD:
            self.outcomes.append(outcome)

    def notify_end(self) -> None:
        for callback in list(self.on_end):
            callback()
        self.on_end.clear()


class GatewayLeases:
    """The leases of a gateway. `now` returns unix seconds, from the pool's clock."""

    def __init__(self, pool: ProxyPool, limits: Limits, counts: GatewayCounts, now: Callable[[], float]) -> None:
        self._pool = pool
        self._limits = limits
        self._counts = counts
        self._now = now
        self._sticky_sessions = StickySessions()
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._active: dict[str, GatewayLease] = {}
        self._sessions: dict[SessionKey, GatewayLease] = {}
        self._pending: dict[SessionKey, asyncio.Task[GatewayLease]] = {}
        self._by_client_session: dict[ClientSession, GatewayLease] = {}
        self._ended: OrderedDict[str, tuple[GatewayLease, float]] = OrderedDict()
        self.choices = Choices(now)

    def __len__(self) -> int:
        return len(self._active)

    async def acquire(self, user: GatewayUser, target: str, avoid: frozenset[str] = frozenset()) -> GatewayLease:
        """Return a lease. Call `release` after its use. Raises `NoProxy`, `StateError`."""
        session = self._sticky_sessions.session(user, self._now())
        request = ProxyRequest(user.tags, session, avoid) if user.tags or session or avoid else ANY
        client_session = (user.account, user.session, target)
        if session:
            lease = await self._acquire_shared(client_session, request, (target, session))
        else:
            lease = await self._acquire(client_session, request, None)
        lease.use_count += 1
        return lease

    async def release(self, lease: GatewayLease, outcome: Outcome | None = None) -> None:
        """End one use with this outcome (None: unknown). The last use, or a bad outcome, ends the lease."""
        lease.use_count -= 1
        if outcome is not None:
            self._counts.outcomes[outcome.blame] += 1
            lease.add_outcome(outcome)
        is_bad = outcome is not None and outcome.blame in BAD
        if not lease.ended and (is_bad or not lease.use_count):
            await self._end(lease)

    async def report(self, user: GatewayUser, report: ClientReport) -> str:
        """Record a client's report. Return the answer. Raises `Forbidden` (404) if the client has no such lease."""
        lease = self._find(user, report)
        outcome = report.to_outcome()
        self._counts.reports += 1
        if lease.ended:
            return await self._report_late(lease, outcome)
        lease.add_outcome(outcome)
        if outcome.blame in BAD:
            await self._end(lease)
        return "accepted"

    async def renew(self) -> None:
        """Renew the leases that expire soon. End those that the pool has taken back, and their tunnels."""
        soon = self._now() + self._limits.lease_s * (RENEWALS - 1) / RENEWALS
        for lease in [each for each in self._active.values() if each.proxy_lease.deadline <= soon]:
            if not lease.use_count:  # its client disconnected during the acquire
                await self._end(lease)
                continue
            deadline = await self._pool.renew(lease.proxy_lease, self._limits.lease_s)
            if deadline is not None:
                lease.proxy_lease = lease.proxy_lease._replace(deadline=deadline)
            elif not lease.ended:
                self._counts.leases_lost += 1
                self._mark_ended(lease)
                lease.notify_end()
        before = self._now() - REPORT_WINDOW_S
        while self._ended and next(iter(self._ended.values()))[1] < before:
            self._forget_oldest()

    async def end_all(self) -> None:
        for task in list(self._pending.values()):
            task.cancel()
            with suppress(asyncio.CancelledError, LycosaError):
                await task
        for lease in list(self._active.values()):
            await self._end(lease)

    async def _acquire_shared(
        self, client_session: ClientSession, request: ProxyRequest, key: SessionKey
    ) -> GatewayLease:
        """Return the lease of a session, a new one if needed. Concurrent calls share one acquire."""
        lease = self._sessions.get(key)
        while lease is None or lease.ended:
            pending = self._pending.get(key)
            if pending is None:
                pending = self._pending[key] = asyncio.create_task(self._acquire(client_session, request, key))
                pending.add_done_callback(lambda task: self._on_acquired(key, task))
            lease = await asyncio.shield(pending)  # other clients may wait for the same lease
        return lease

    def _on_acquired(self, key: SessionKey, task: asyncio.Task[GatewayLease]) -> None:
        self._pending.pop(key, None)
        if not task.cancelled():
            task.exception()  # marks the exception as retrieved: all waiting clients may have disconnected

    async def _acquire(
        self, client_session: ClientSession, request: ProxyRequest, key: SessionKey | None
    ) -> GatewayLease:
        start, (account, _, target) = self._now(), client_session
        lease_s, wait_s = self._limits.lease_s, self._limits.wait_s
        try:
            call = self._pool.acquire(target, 1, request, lease_s=lease_s, wait_s=wait_s)
            (proxy_lease,) = await with_store_timeout(call, wait_s)
        except LycosaError as error:
            self.choices.add(target, request, start, account, refusal=str(error))
            raise
        facts = {
            "proxy": proxy_lease.proxy.name,
            "drawn_from": proxy_lease.drawn_from,
            "rebound": proxy_lease.rebound,
        }
        choice = self.choices.add(target, request, start, account, **facts)
        self._count += 1
        lease = GatewayLease(f"{self._prefix}-{self._count:x}", client_session, proxy_lease, key, choice)
        self._active[lease.id] = lease
        if key is not None:
            self._sessions[key] = self._by_client_session[client_session] = lease
        return lease

    async def _end(self, lease: GatewayLease) -> None:
        if lease.ended:  # since the caller chose it
            return
        self._mark_ended(lease)
        try:
            if not await self._pool.release(lease.proxy_lease, lease.outcomes):
                self._counts.leases_lost += 1
        except StateError as error:
            log.warning("a lease could not be released, and will expire: %s", error)
        lease.notify_end()

    def _mark_ended(self, lease: GatewayLease) -> None:
        lease.ended = True
        lease.choice.end(lease.outcomes)
        self._active.pop(lease.id, None)
        if lease.key is not None and self._sessions.get(lease.key) is lease:
            del self._sessions[lease.key]
        self._ended[lease.id] = (lease, self._now())
        if len(self._ended) > ENDED_MAX:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        lease, _ = self._ended.popitem(last=False)[1]
        if self._by_client_session.get(lease.client_session) is lease:
            del self._by_client_session[lease.client_session]

    def _find(self, user: GatewayUser, report: ClientReport) -> GatewayLease:
        if report.lease:
            lease = self._active.get(report.lease) or self._ended.get(report.lease, (None, 0.0))[0]
        else:
            lease = self._by_client_session.get((user.account, report.session, report.site.lower()))
        if lease is None or user.account not in ("", lease.client_session[0]):  # "": the gateway has no accounts
            raise Forbidden("you have no such lease, or it ended long ago", 404)
        return lease

    async def _report_late(self, lease: GatewayLease, outcome: Outcome) -> str:
        """Apply a report on an ended lease. A bad one bans the proxy, unless the lease had a bad outcome already."""
        lease.choice.end([*lease.outcomes, outcome])
        if any(each.blame in BAD for each in lease.outcomes):
            return "late, already known"
        if outcome.blame not in BAD:
            return "late"
        # For this target only: a late report is too unreliable for a ban everywhere.
        ban_s = outcome.rest_s if outcome.rest_s is not None else LATE_BAN_S
        proxy_lease = lease.proxy_lease
        await self._pool.ban(proxy_lease.target, proxy_lease.proxy.key, self._now() + ban_s, outcome.reason)
        return "late, accepted"
