"""Who holds what: turns a store of queued records into leases that are polite, fenced and bounded in time.

Every in-process frontier (memory, embedded) lends through this one mechanism and adds only where the records are kept.
It asks the store for the next record of a host and hands out a `Lease`; a lease comes back once, with its own token,
or is found `overdue`. Leases live in memory: the store belongs to one process, and when that dies all of them are void.

Pure: `now` (unix seconds) is an argument, the store is a function.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from lycosa.core.frontier import Policy
from lycosa.core.model import RECORD_VERSION, HostFacts, Kind, Lease, UrlRecord
from lycosa.core.workbench import Host, Workbench

Place = TypeVar("Place")
Place_co = TypeVar("Place_co", covariant=True)


class Held(NamedTuple, Generic[Place]):
    """A lease, and where the store keeps its record; None for a robots.txt, which is kept nowhere.

    `turn` is when the host's turn was, `next_turn` when its next one was to be.
    """

    lease: Lease
    place: Place | None
    turn: float
    next_turn: float


class Store(Protocol[Place_co]):
    """What leases are made of."""

    def take(self, host: str) -> tuple[Place_co, UrlRecord] | None:
        """Remove and return the next queued record of the host."""
        ...

    def has_more(self, host: str) -> bool:
        """Whether `take` has something to return."""
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
        leases: list[Lease] = []
        while len(leases) < limit:
            host = self.workbench.pick(now)
            if host is None:
                break
            lease = self._lend_robots(host, now) if self._needs_robots(host, now) else self._lend_next(host, now)
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
        host = self.workbench.host(held.lease.record.host)
        if held.lease.record.kind == Kind.ROBOTS:
            host.robots_lent = False
        if not contacted and host.ready_at == held.next_turn:
            host.ready_at = held.turn
        self.workbench.ended(host)
        return held

    def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend the lease by its full time; None when it is no longer held."""
        held = self._held.pop(lease.token, None)
        if held is None:
            return None
        renewed = held.lease._replace(expires_at=now + self._policy.lease_s)
        self._held[lease.token] = held._replace(lease=renewed)
        return renewed

    def overdue(self, now: float) -> list[Lease]:
        """Return the leases whose time is up, oldest first; they are still held."""
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
        self.workbench.offer(host)

    def learned(self, host_key: str, facts: HostFacts, now: float) -> None:
        """What a host's robots.txt asks for holds from now on."""
        host = self.workbench.host(host_key)
        host.robots_at = facts.robots_at
        host.robots_attempts = 0
        self.workbench.set_delay(host, facts.crawl_delay_s, now)

    def _needs_robots(self, host: Host, now: float) -> bool:
        return self.workbench.needs_robots(host, now) and not host.robots_lent

    def _lend_next(self, host: Host, now: float) -> Lease | None:
        found = self._store.take(host.key)
        host.has_work = found is not None and self._store.has_more(host.key)
        if found is None:
            return None
        place, record = found
        return self._hold(host, record, place, now)

    def _lend_robots(self, host: Host, now: float) -> Lease:
        host.robots_lent = True
        record = UrlRecord(
            RECORD_VERSION, 0, host.key + "/robots.txt", host.key, kind=Kind.ROBOTS, attempts=host.robots_attempts
        )
        return self._hold(host, record, None, now)

    def _hold(self, host: Host, record: UrlRecord, place: Place | None, now: float) -> Lease:
        self._token += 1
        lease = Lease(self._token, record, now + self._policy.lease_s)
        turn = host.ready_at
        self.workbench.started(host, now)
        self._held[self._token] = Held(lease, place, turn, host.ready_at)
        return lease
