"""Grants slots to transfers that have no lease of their own: fetches inside a callback, files of a pipeline.

Claims on a host are served first come, first served. While a claim waits, its host gets no lease. If only the limits of
the address group delay the claim, the other hosts of the group get none either. After CLAIMS_IN_ROW_MAX claims in a
row, a lease goes next, if leases are requested and one starts within YIELD_S. So claims and leases cannot starve each
other.

A caller never waits for a slot while it holds one, so claims cannot deadlock, even across hosts. A claim takes its slot
only in `try_start`, so it obeys blocks, delays and addresses set while it waited. See docs/decisions/0011-claims.md.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.frontier.core.fair_queue import NO_WORK
from lycosa.frontier.core.scheduler import (
    AddressGroup,
    Claim,
    Host,
    HostScheduler,
    first_claim,
    wake_claims,
    yields_to_leases,
)

YIELD_S = 1.0
"""How long claims wait for a lease to start."""

WAITING_MAX = 100_000
"""Maximum number of waiting claims on all hosts together."""

WHEN_WOKEN = NO_WORK
"""`try_start` returns this if the caller must wait for `wake`."""


class ClaimQueue:
    """The claims on the hosts of one scheduler."""

    def __init__(self, scheduler: HostScheduler) -> None:
        self._scheduler = scheduler
        self._number = 0
        self._waiting = 0

    def claim(self, host: Host, wake: Callable[[], None]) -> Claim:
        """Raises `UsageError` if WAITING_MAX claims wait."""
        if self._waiting >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} transfers are already waiting: fetch fewer at a time")
        self._waiting += 1
        self._number += 1
        claim = Claim(host, wake, self._number)
        if host.claims is None:
            host.claims = OrderedDict()
            if host.group is not None:
                host.group.claiming_hosts[host] = None
        host.claims[claim] = None
        self._scheduler.reschedule(host)
        return claim

    def try_start(self, claim: Claim) -> float:
        """Grant the claim and return 0, or return when to call again (a time, or WHEN_WOKEN)."""
        host = claim.host
        if claim.granted:
            return 0.0
        if host.claims is None or next(iter(host.claims)) is not claim:
            return WHEN_WOKEN
        while (at := self._next_start(host)) <= self._scheduler.now:
            group = host.group
            first = first_claim(self._scheduler, group) if group is not None else None
            if first is None or first is claim:
                self._start(claim)
                return 0.0
            # An older claim on another host of the group goes first, which may use up the slot of this claim.
            self._start(first)
            first.wake()
        return at

    def release(self, claim: Claim) -> None:
        """End the transfer of the claim, or remove a waiting one. A second call does nothing."""
        host, group = claim.host, claim.group
        if claim.granted:
            claim.granted = False
            self._scheduler.finish(host, group)
        elif host.claims is not None and claim in host.claims:
            self._dequeue(claim)
            self._scheduler.reschedule(host)
            self._scheduler.track_idle(host)
            wake_claims(host, host.group)

    def _next_start(self, host: Host) -> float:
        """When the first claim of the host may start; a time in the past means at once."""
        scheduler, group = self._scheduler, host.group
        at = host.ready_at
        if host.in_flight >= scheduler.concurrency:
            return WHEN_WOKEN
        if group is not None:
            if 0 < scheduler.policy.concurrency_per_ip <= group.in_flight:
                return WHEN_WOKEN
            at = max(at, group.ready_at)
        if at <= scheduler.now:
            at = self._yield_until(host)
        if at <= scheduler.now and group is not None:
            at = self._yield_until(group)
        if at > scheduler.now:
            scheduler.reschedule(host)
        return at

    def _yield_until(self, entity: Host | AddressGroup) -> float:
        """The time until which claims wait for a lease to start; 0 if they do not wait."""
        if not yields_to_leases(self._scheduler, entity):
            return 0.0
        if not entity.yields_until:
            entity.yields_until = self._scheduler.now + YIELD_S
        elif entity.yields_until <= self._scheduler.now:
            entity.claims_in_row, entity.yields_until = 0, 0.0
        return entity.yields_until

    def _start(self, claim: Claim) -> None:
        host = claim.host
        scheduler, group, now = self._scheduler, host.group, self._scheduler.now
        self._dequeue(claim)
        claim.granted, claim.group, claim.address = True, group, host.address
        host.in_flight += 1
        host.started_at = now
        host.claims_in_row += 1
        host.yields_until = 0.0
        if host.delay_s:
            host.ready_at = now + host.delay_s
        if group is not None:
            group.in_flight += 1
            group.claims_in_row += 1
            group.yields_until = 0.0
            group.ready_at = max(group.ready_at, now + scheduler.policy.delay_per_ip_s)
        scheduler.reschedule(host)
        wake_claims(host, group)

    def _dequeue(self, claim: Claim) -> None:
        host = claim.host
        assert host.claims is not None
        self._waiting -= 1
        del host.claims[claim]
        if not host.claims:
            host.claims = None
            if host.group is not None:
                host.group.claiming_hosts.pop(host, None)
