"""The leases of a gateway: one for each request or tunnel, one for all that a session does at a time.

A lease is renewed while somebody uses it, and returned with an outcome for each use. What a client reports of it counts
as well: a bad report ends it at once, with its tunnels, so that the next request of the session gets another proxy. One
that comes when the lease is over makes the proxy rest as well.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress

from lycosa.core.errors import Forbidden, LycosaError, StateError
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.gateway.username import GatewayUser, StickySessions
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.outcomes.reports import ClientReport
from lycosa.proxies.core.pool.choices import Choices, LeaseChoice
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.gateway.counts import Counts
from lycosa.proxies.gateway.store_timeout import with_store_timeout
from lycosa.proxies.ports import ProxyLease, ProxyPool

OVER_MAX = 10_000
"""Leases that have ended, and may be reported on."""

OVER_S = 300.0
LATE_REST_S = 300.0
"""A proxy that is reported when its lease is over rests so long, unless the report says how long."""

OUTCOMES_MAX = 10_000
"""Uses of one lease that are counted: those of a session that does not pause for a moment."""

RENEWALS = 3
"""A lease is renewed so many times before it would end."""

BAD = frozenset({Blame.SITE, Blame.PROXY})
log = logging.getLogger(__name__)
SessionKey = tuple[str, str]
"""A target, and a session as the pool knows it."""

Name = tuple[str, str, str]
"""A session as its client knows it: account, word, target."""


class GatewayLease:
    """A lease and who uses it. `id` is what clients know it by; `users` call `leave` when they are done.

    `on_end` are told when it ends before they are done.
    """

    __slots__ = ("choice", "id", "key", "lease", "name", "on_end", "outcomes", "over", "users")

    def __init__(self, id_: str, name: Name, lease: ProxyLease, key: SessionKey | None, choice: LeaseChoice) -> None:
        self.id = id_
        self.name = name
        self.lease = lease
        self.key = key
        self.choice = choice
        self.users = 0
        self.outcomes: list[Outcome] = []
        self.over = False
        self.on_end: set[Callable[[], None]] = set()


class GatewayLeases:
    """See the module. `now` in unix seconds, the pool's own."""

    def __init__(self, pool: ProxyPool, limits: Limits, counts: Counts, now: Callable[[], float]) -> None:
        self._pool = pool
        self._limits = limits
        self._counts = counts
        self._now = now
        self._stickies = StickySessions()
        self._prefix = secrets.token_hex(4)
        self._count = 0
        self._held: dict[str, GatewayLease] = {}
        self._sessions: dict[SessionKey, GatewayLease] = {}
        self._coming: dict[SessionKey, asyncio.Task[GatewayLease]] = {}
        self._named: dict[Name, GatewayLease] = {}
        self._over: OrderedDict[str, tuple[GatewayLease, float]] = OrderedDict()
        self.choices = Choices(now)

    def __len__(self) -> int:
        return len(self._held)

    async def take(self, asked: GatewayUser, target: str, avoid: frozenset[str] = frozenset()) -> GatewayLease:
        """Return a lease for a use, which ends with `leave`. Raises `NoProxy`, `StateError`."""
        session = self._stickies.session(asked, self._now())
        proxy_request = ProxyRequest(asked.tags, session, avoid) if asked.tags or session or avoid else ANY
        name = (asked.account, asked.session, target)
        if not session:
            hold = await self._acquired(name, proxy_request, None)
        else:
            hold = await self._shared(name, proxy_request, (target, session))
        hold.users += 1
        return hold

    async def leave(self, hold: GatewayLease, outcome: Outcome | None = None) -> None:
        """A use is over, with this outcome; None when nobody knows."""
        hold.users -= 1
        if outcome is not None:
            self._counts.outcomes[outcome.blame] += 1
            _note(hold, outcome)
        if hold.over:
            return
        if outcome is not None and outcome.blame in BAD:
            await self._end(hold)
        elif not hold.users:
            await self._return(hold)

    async def report(self, asked: GatewayUser, report: ClientReport) -> str:
        """Take what a client says. Return what came of it. Raises `Forbidden` (404) for no lease of this client."""
        hold = self._found(asked, report)
        outcome = report.to_outcome()
        self._counts.reports += 1
        if hold.over:
            return await self._late(hold, outcome)
        _note(hold, outcome)
        if outcome.blame in BAD:
            await self._end(hold)
        return "taken"

    async def renew(self) -> None:
        """Renew what would end soon. A lease that the pool took back ends, with its tunnels."""
        soon = self._now() + self._limits.lease_s * (RENEWALS - 1) / RENEWALS
        for hold in [each for each in self._held.values() if each.lease.deadline <= soon]:
            if not hold.users:  # who asked for it went before it came
                await self._return(hold)
                continue
            deadline = await self._pool.renew(hold.lease, self._limits.lease_s)
            if deadline is not None:
                hold.lease = hold.lease._replace(deadline=deadline)
            elif not hold.over:
                self._counts.leases_lost += 1
                self._forget(hold)
                _tell(hold)
        self._forget_old()

    async def end_all(self) -> None:
        """Return all leases."""
        for task in list(self._coming.values()):
            task.cancel()
            with suppress(asyncio.CancelledError, LycosaError):
                await task
        for hold in list(self._held.values()):
            await self._end(hold)

    async def _shared(self, name: Name, proxy_request: ProxyRequest, key: SessionKey) -> GatewayLease:
        """Return the lease that a session has, or the one that is asked for just now."""
        hold = self._sessions.get(key)
        while hold is None or hold.over:
            coming = self._coming.get(key)
            if coming is None:
                coming = asyncio.create_task(self._acquired(name, proxy_request, key))
                self._coming[key] = coming
                coming.add_done_callback(lambda done: self._came(key, done))
            hold = await asyncio.shield(coming)
        return hold

    def _came(self, key: SessionKey, done: asyncio.Task[GatewayLease]) -> None:
        self._coming.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever asked for it may have gone

    async def _acquired(self, name: Name, proxy_request: ProxyRequest, key: SessionKey | None) -> GatewayLease:
        began, (account, _, target) = self._now(), name
        try:
            lease = await self._lent(target, proxy_request)
        except LycosaError as error:
            self.choices.add(target, proxy_request, began, account, refusal=str(error))
            raise
        told = {"proxy": lease.proxy.name, "drawn_from": lease.drawn_from, "rebound": lease.rebound}
        choice = self.choices.add(target, proxy_request, began, account, **told)
        self._count += 1
        hold = GatewayLease(f"{self._prefix}-{self._count:x}", name, lease, key, choice)
        self._held[hold.id] = hold
        if key is not None:
            self._sessions[key] = self._named[name] = hold
        return hold

    async def _lent(self, target: str, proxy_request: ProxyRequest) -> ProxyLease:
        limits = self._limits
        asking = self._pool.acquire(target, 1, proxy_request, lease_s=limits.lease_s, wait_s=limits.wait_s)
        return (await with_store_timeout(asking, limits.wait_s))[0]

    async def _end(self, hold: GatewayLease) -> None:
        """End a lease that others may still use."""
        await self._return(hold)
        _tell(hold)

    async def _return(self, hold: GatewayLease) -> None:
        self._forget(hold)
        try:
            if not await self._pool.release(hold.lease, hold.outcomes):
                self._counts.leases_lost += 1
        except StateError as error:
            log.warning("a lease could not be returned, and ends by itself: %s", error)

    def _forget(self, hold: GatewayLease) -> None:
        hold.over = True
        hold.choice.end(hold.outcomes)
        self._held.pop(hold.id, None)
        if hold.key is not None and self._sessions.get(hold.key) is hold:
            del self._sessions[hold.key]
        self._over[hold.id] = (hold, self._now())
        if len(self._over) > OVER_MAX:
            self._forget_oldest()

    def _forget_old(self) -> None:
        before = self._now() - OVER_S
        while self._over and next(iter(self._over.values()))[1] < before:
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        hold, _ = self._over.popitem(last=False)[1]
        if self._named.get(hold.name) is hold:
            del self._named[hold.name]

    def _found(self, asked: GatewayUser, report: ClientReport) -> GatewayLease:
        if report.lease:
            hold = self._held.get(report.lease) or self._over.get(report.lease, (None, 0.0))[0]
        else:
            hold = self._named.get((asked.account, report.session, report.site.lower()))
        if hold is None or asked.account not in ("", hold.name[0]):  # "": there are no accounts, or no report is taken
            raise Forbidden("no such lease of yours, or it ended long ago", 404)
        return hold

    async def _late(self, hold: GatewayLease, outcome: Outcome) -> str:
        """A report on a lease that is over: a ban is a ban, the rest has been counted."""
        key, target = hold.lease.proxy.key, hold.lease.target
        hold.choice.end([*hold.outcomes, outcome])
        if any(each.blame in BAD for each in hold.outcomes):
            return "late, and known"
        if outcome.blame in (Blame.SITE, Blame.PROXY):  # who comes late says nothing of the proxy everywhere
            rest_s = outcome.rest_s if outcome.rest_s is not None else LATE_REST_S
            await self._pool.ban(target, key, self._now() + rest_s, outcome.reason)
            return "late, and taken"
        return "late"


def _note(hold: GatewayLease, outcome: Outcome) -> None:
    """Keep an outcome; a bad one in any case."""
    if len(hold.outcomes) < OUTCOMES_MAX or outcome.blame in BAD:
        hold.outcomes.append(outcome)


def _tell(hold: GatewayLease) -> None:
    for each in list(hold.on_end):
        each()
    hold.on_end.clear()
