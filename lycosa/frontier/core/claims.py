"""Turns for transfers that are no records: what a callback fetches inline, the files of a pipeline.

A claim waits in the line of its host, first come, first served, and before the leases: while one waits, its host (and
the group of its IP address, when only that holds it up) is kept from them. After CLAIMS_ROW claims in a row the next
turn is for a lease, if some are wanted; when none is lent within YIELD_S the claims go on. So neither starves, whoever
asks more.

Nobody waits for a place while he holds one: a lease whose callback claims has had its transfer, and gives up its place
first. So claims cannot block each other, not even across hosts. Nothing is polled: `try_start` says when to come again, or
that the claim will be woken; places and turns are taken only then, so that what happens meanwhile (a block, a longer
delay, another address) counts.
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
"""For so long the turn of a lease is kept for it; who wants leases takes them sooner."""

WAITING_MAX = 100_000
"""Claims that wait at a time, on all hosts together."""

WHEN_WOKEN = NO_WORK


class ClaimQueue:
    """The claims on the hosts of one workbench, whose `now` counts."""

    def __init__(self, bench: HostScheduler) -> None:
        self._bench = bench
        self._stamp = 0
        self._waiting = 0

    def claim(self, host: Host, wake: Callable[[], None]) -> Claim:
        """Join the line of the host. Raises `UsageError` when far too many wait."""
        if self._waiting >= WAITING_MAX:
            raise UsageError(f"{WAITING_MAX:,} transfers wait for their turn already: fetch fewer at a time")
        self._waiting += 1
        self._stamp += 1
        claim = Claim(host, wake, self._stamp)
        if host.claims is None:
            host.claims = OrderedDict()
            if host.group is not None:
                host.group.claiming[host] = None
        host.claims[claim] = None
        self._bench.offer(host)
        return claim

    def try_start(self, claim: Claim) -> float:
        """Return 0 when the transfer starts now, the time to ask again, or WHEN_WOKEN."""
        host = claim.host
        if claim.granted:
            return 0.0
        if host.claims is None or next(iter(host.claims)) is not claim:
            return WHEN_WOKEN
        while (at := self._turn_of(host)) <= self._bench.now:
            group = host.group
            first = first_claim(self._bench, group) if group is not None else None
            if first is None or first is claim:
                self._start(claim)
                return 0.0
            self._start(first)  # it came before, and is told
            first.wake()
        return at

    def release(self, claim: Claim) -> None:
        """Leave the line, or end the transfer. Nothing happens the second time."""
        host, group = claim.host, claim.group
        if claim.granted:
            claim.granted = False
            self._bench.ended(host, group)
        elif host.claims is not None and claim in host.claims:
            self._leave(claim)
            self._bench.offer(host)
            self._bench.rest(host)
            wake_claims(host, host.group)

    def _turn_of(self, host: Host) -> float:
        bench, group = self._bench, host.group
        at = host.ready_at
        if host.in_flight >= bench.places:
            return WHEN_WOKEN
        if group is not None:
            if 0 < bench.policy.concurrency_per_ip <= group.in_flight:
                return WHEN_WOKEN
            at = max(at, group.ready_at)
        if at <= bench.now:
            at = self._stands_back(host)
        if at <= bench.now and group is not None:
            at = self._stands_back(group)
        if at > bench.now:
            bench.offer(host)
        return at

    def _stands_back(self, unit: Host | AddressGroup) -> float:
        """Return until when the unit is left to the leases, 0 when it is not."""
        if not yields_to_leases(self._bench, unit):
            return 0.0
        if not unit.yields_until:
            unit.yields_until = self._bench.now + YIELD_S
        elif unit.yields_until <= self._bench.now:
            unit.row, unit.yields_until = 0, 0.0
        return unit.yields_until

    def _start(self, claim: Claim) -> None:
        host = claim.host
        bench, group, now = self._bench, host.group, self._bench.now
        self._leave(claim)
        claim.granted, claim.group, claim.address = True, group, host.address
        host.in_flight += 1
        host.started_at = now
        host.row += 1
        host.yields_until = 0.0
        if host.delay_s:
            host.ready_at = now + host.delay_s
        if group is not None:
            group.in_flight += 1
            group.row += 1
            group.yields_until = 0.0
            group.ready_at = max(group.ready_at, now + bench.policy.delay_per_ip_s)
        bench.offer(host)
        wake_claims(host, group)

    def _leave(self, claim: Claim) -> None:
        host = claim.host
        assert host.claims is not None
        self._waiting -= 1
        del host.claims[claim]
        if not host.claims:
            host.claims = None
            if host.group is not None:
                host.group.claiming.pop(host, None)
