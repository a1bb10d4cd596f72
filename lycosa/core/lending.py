"""Who holds what: turns a store of queued records into leases that are polite, fenced and bounded in time.

Every in-process frontier (memory, embedded) lends through this one mechanism and adds only where the records are kept.
It asks the store for the next record of a host and hands out a `Lease`; a lease comes back once, with its own token,
or is found `overdue`. A host whose address must be known lends a look-up first (`Kind.RESOLVE`), one whose robots.txt
must be known that (`Kind.ROBOTS`), and nothing else until it is settled. Leases live in memory: the store belongs to
one process, and when that dies all of them are void.

Pure: `now` (unix seconds) is an argument, the store is a function.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from lycosa.core.frontier import Policy
from lycosa.core.model import RECORD_VERSION, HostFacts, Kind, Lease, UrlRecord
from lycosa.core.workbench import Group, Host, Workbench

Place = TypeVar("Place")
Place_co = TypeVar("Place_co", covariant=True)


@dataclass(slots=True, eq=False)
class Held(Generic[Place]):
    """A lease, and where the store keeps its record; None for a robots.txt or an address, which are kept nowhere.

    `turn` is when the turn of the host was and when its next one was to be, `group_turn` likewise for the `group` it
    was started in.
    """

    lease: Lease
    place: Place | None
    host: Host
    group: Group | None = None
    turn: tuple[float, float] | None = None
    group_turn: tuple[float, float] | None = None


class Store(Protocol[Place_co]):
    """What leases are made of."""

    def take(self, host: str) -> tuple[Place_co, UrlRecord, float | None] | None:
        """Remove and return the next queued record of the host, and the rank of what comes after it.

        A rank is the start of a segment (`segments.starts_at`); None says that the host has no more.
        """
        ...


class Lending(Generic[Place]):
    """The leases of one process over one store."""

    def __init__(self, policy: Policy, store: Store[Place], first_token: int) -> None:
        self.workbench = Workbench(policy)
        self._policy = policy
        self._store = store
        self._token = first_token
        # Ordered by expiry: every lease lasts equally long, and a renewed one goes to the end.
        self._held: dict[int, Held[Place]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def lend(self, limit: int, now: float) -> list[Lease]:
        """Lend at most `limit` records, one host after the other in the order of their turns."""
        self._see(now)
        leases: list[Lease] = []
        while len(leases) < limit:
            host = self.workbench.pick(now)
            if host is None:
                break
            lease = self._lend(host, now)
            if lease is not None:
                leases.append(lease)
        return leases

    def give_back(self, lease: Lease, *, contacted: bool) -> Held[Place] | None:
        """End the lease and free its place on the host; None when the token is not held (any more).

        A host that was not contacted has not used its turn.
        """
        held = self._held.pop(lease.token, None)
        if held is None:
            return None
        host = held.host
        if held.place is None:
            host.asking = False
        if not contacted:
            self._return_turn(held)
        self.workbench.ended(host, held.group)
        return held

    def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend the lease by its full time; None when it is no longer held."""
        self._see(now)
        held = self._held.pop(lease.token, None)
        if held is None:
            return None
        held.lease = held.lease._replace(expires_at=now + self._policy.lease_s)
        self._held[lease.token] = held
        return held.lease

    def overdue(self, now: float) -> list[Lease]:
        """Return the leases whose time is up, oldest first; they are still held."""
        self._see(now)
        late: list[Lease] = []
        for held in self._held.values():
            if held.lease.expires_at > now:
                break
            late.append(held.lease)
        return late

    def robots_failed(self, host_key: str, retry_at: float) -> None:
        """The robots.txt could not be had: ask the host again, not before `retry_at`."""
        host = self.workbench.host(host_key)
        host.robots_attempts += 1
        self.workbench.block(host, retry_at)

    def learned(self, host_key: str, facts: HostFacts, now: float) -> None:
        """What a host's robots.txt asks for holds from now on."""
        host = self.workbench.host(host_key)
        host.robots_at = facts.robots_at
        host.robots_attempts = 0
        self.workbench.set_delay(host, facts.crawl_delay_s, now)

    def learned_address(self, host_key: str, address: str, until: float, now: float) -> None:
        """The host has this IP address until then, "" when it has none."""
        host = self.workbench.host(host_key)
        host.address_attempts = 0
        self.workbench.set_address(host, address, until, now)

    def address_failed(self, host_key: str, retry_at: float) -> None:
        """The address could not be had: look it up again, not before `retry_at`."""
        host = self.workbench.host(host_key)
        host.address_attempts += 1
        self.workbench.block(host, retry_at)

    def _lend(self, host: Host, now: float) -> Lease | None:
        if self.workbench.needs_address(host, now):
            return self._lend_look_up(host, now)
        if self.workbench.needs_robots(host, now):
            return self._lend_robots(host, now)
        found = self._store.take(host.key)
        if found is None:
            self.workbench.took(host, None)
            self.workbench.offer(host)
            return None
        self.workbench.took(host, found[2])
        return self._hold(host, found[1], found[0], now)

    def _lend_look_up(self, host: Host, now: float) -> Lease:
        url = host.key + "/"
        record = UrlRecord(RECORD_VERSION, 0, url, host.key, kind=Kind.RESOLVE, attempts=host.address_attempts)
        self._token += 1
        lease = Lease(self._token, record, now + self._policy.lease_s)
        self._held[self._token] = Held(lease, None, host)
        self.workbench.asks(host)
        return lease

    def _lend_robots(self, host: Host, now: float) -> Lease:
        host.asking = True
        url = host.key + "/robots.txt"
        record = UrlRecord(RECORD_VERSION, 0, url, host.key, kind=Kind.ROBOTS, attempts=host.robots_attempts)
        return self._hold(host, record, None, now)

    def _hold(self, host: Host, record: UrlRecord, place: Place | None, now: float) -> Lease:
        self._token += 1
        lease = Lease(self._token, record, now + self._policy.lease_s, host.address)
        held = self._held[self._token] = Held(lease, place, host, host.group)
        turn = host.ready_at
        group_turn = host.group.ready_at if host.group is not None else 0.0
        self.workbench.started(host)
        held.turn = (turn, host.ready_at)
        if host.group is not None:
            held.group_turn = (group_turn, host.group.ready_at)
        return lease

    def _return_turn(self, held: Held[Place]) -> None:
        host, group = held.host, held.group
        if held.turn is not None and host.ready_at == held.turn[1]:
            host.ready_at = held.turn[0]
        if group is not None and held.group_turn is not None and group.ready_at == held.group_turn[1]:
            group.ready_at = held.group_turn[0]

    def _see(self, now: float) -> None:
        """When the clock was set back, no lease ends later than one that is made now, and no turn is returned."""
        before = self.workbench.now
        self.workbench.see(now)
        if self.workbench.now >= before:
            return
        latest = now + self._policy.lease_s
        for held in self._held.values():
            held.turn = held.group_turn = None
            if held.lease.expires_at > latest:
                held.lease = held.lease._replace(expires_at=latest)
