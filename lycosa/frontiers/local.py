"""A frontier that one process owns: the port, minus the question where records are kept.

Which host comes next and who holds what is decided in `core` (`Workbench`, `Lending`), what may happen to a record in
`core.frontier`. This file joins the two to a `Shelf`, which only stores. `memory.py` and `embedded.py` are shelves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, Protocol, TypeVar

from lycosa.core.frontier import Event, Policy, State, expire, fail
from lycosa.core.lending import Lending, Store
from lycosa.core.model import FrontierStats, HostFacts, Kind, Lease, UrlRecord, Validators
from lycosa.core.segments import starts_at
from lycosa.core.workbench import Host

Place = TypeVar("Place")
EXPIRED = "lease expired"
BLOCK_MAX_S = 3600.0
"""A host that was blocked when the state was closed rests no longer than this (the largest Retry-After we keep)."""


class HostMemory(NamedTuple):
    """What outlives an idle host: when it was last contacted, until when it is blocked, and its facts."""

    started_at: float = 0.0
    blocked_until: float = 0.0
    facts: HostFacts | None = None


class Shelf(Store[Place], Protocol[Place]):
    """Keeps records in their states. A place is where a queued record lies, and where it goes back to."""

    def add(self, record: UrlRecord) -> State | None:
        """Store a new record, QUEUED or DELAYED; None when it is a duplicate."""
        ...

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those of which memory alone can tell that they were added before."""
        ...

    def put_back(self, place: Place, record: UrlRecord) -> None:
        """LEASED -> QUEUED."""
        ...

    def finish(self, place: Place, record: UrlRecord, reason: str) -> None:
        """LEASED -> DONE."""
        ...

    def retry(self, place: Place, record: UrlRecord) -> None:
        """LEASED -> RETRY, until its `not_before`."""
        ...

    def bury(self, place: Place, record: UrlRecord, reason: str) -> None:
        """LEASED -> DEAD."""
        ...

    def wake(self, now: float) -> Sequence[str]:
        """DELAYED and RETRY -> QUEUED for what is due. Return the hosts that got work; a bounded number a call."""
        ...

    def next_due(self) -> float | None:
        """When `wake` has something to do."""
        ...

    def hosts_with_work(self) -> Sequence[str]:
        """Return the hosts that had queued records when the shelf was opened."""
        ...

    def recall_host(self, host: str) -> HostMemory:
        """Return what was remembered of the host."""
        ...

    def remember_host(self, host: str, memory: HostMemory) -> None:
        """Remember it."""
        ...

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make everything durable in one step."""
        ...

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit."""
        ...

    def stats(self) -> FrontierStats:
        """Count; `leased` and `hosts` are left at 0, and what is lent counts as neither queued nor anything else."""
        ...

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return dead records with their reasons."""
        ...

    def close(self) -> None:
        """Drop what is not committed."""
        ...


class LocalFrontier(Generic[Place]):
    """See `ports.Frontier`; every method here is documented there. Raises `StateError` when the shelf fails."""

    def __init__(self, policy: Policy, shelf: Shelf[Place], first_token: int = 0, now: float = math.inf) -> None:
        self._shelf = shelf
        self._lending: Lending[Place] = Lending(policy, shelf, first_token)
        self._bench = self._lending.workbench
        self._paused: set[str] = set()
        self._now = 0.0
        self._opened_at = now
        self.known = shelf.known
        for host in shelf.hosts_with_work():
            self._bench.found_work(self._host(host))

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        return sum(map(self._push, records))

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now."""
        self._now = now
        self._wake(now)
        leases = self._lending.lend(limit, now)
        for lease in leases:
            host = lease.record.host
            if self._bench.hosts[host].delay_s > 0:
                self._paused.add(host)
        return leases

    async def ack(
        self,
        lease: Lease,
        reason: str,
        children: Sequence[UrlRecord],
        now: float,
        *,
        contacted: bool = True,
        validators: Validators | None = None,
    ) -> bool:
        """Done."""
        held = self._lending.give_back(lease, contacted=contacted)
        if held is None:
            return False
        for child in children:  # first, so that one that cannot be stored leaves its parent to be fetched again
            self._push(child)
        if held.place is not None:
            self._shelf.finish(held.place, held.lease.record, reason)
        return True

    async def nack(
        self, lease: Lease, reason: str, retry_at: float | None, now: float, *, contacted: bool = True
    ) -> bool:
        """Again later, or never."""
        held = self._lending.give_back(lease, contacted=contacted)
        if held is None:
            return False
        record = held.lease.record
        if held.place is None:
            failed = self._lending.address_failed if record.kind == Kind.RESOLVE else self._lending.robots_failed
            failed(record.host, now if retry_at is None else retry_at)
        elif retry_at is None:
            self._shelf.bury(held.place, record, reason)
        else:
            self._shelf.retry(held.place, fail(record, retry_at))
        return True

    async def release(self, lease: Lease, now: float) -> bool:
        """Give back untouched."""
        held = self._lending.give_back(lease, contacted=True)
        if held is None:
            return False
        if held.place is not None:
            self._put_back(held.place, held.lease.record)
        return True

    async def renew(self, lease: Lease, now: float) -> Lease | None:
        """Extend."""
        return self._lending.renew(lease, now)

    async def expire(self, now: float) -> int:
        """Take back what is overdue."""
        late = self._lending.overdue(now)
        for lease in late:
            held = self._lending.give_back(lease, contacted=True)
            if held is None:
                continue
            if held.place is not None:
                self._expired(held.place, held.lease.record)
            elif held.lease.record.kind == Kind.RESOLVE:
                self._lending.address_failed(held.lease.record.host, now)
            else:
                self._robots_expired(held.lease.record, now)
        return len(late)

    async def block_host(self, host: str, until: float) -> None:
        """Pause the host."""
        self._bench.block(self._host(host), until)
        self._paused.add(host)

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        return self._shelf.recall_host(host).facts

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self._host(host)
        self._lending.learned(host, facts, now)
        active = self._bench.hosts[host]
        self._shelf.remember_host(host, HostMemory(active.started_at, active.blocked_until, facts))

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self._host(host)
        self._lending.learned_address(host, address, until, now)

    def next_ready(self, now: float) -> float | None:
        """The next host whose turn comes, or the next sleeper that wakes."""
        times = (self._bench.next_ready(), self._shelf.next_due())
        return min((at for at in times if at is not None), default=None)

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        for key in self._paused:
            host = self._bench.hosts.get(key)
            if host is not None:
                facts = self._shelf.recall_host(key).facts
                self._shelf.remember_host(key, HostMemory(host.started_at, host.blocked_until, facts))
        self._paused.clear()
        self._shelf.commit(positions)
        self._bench.forget_idle(self._now)

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        return self._shelf.positions()

    async def stats(self) -> FrontierStats:
        """Count."""
        return self._shelf.stats()._replace(leased=len(self._lending), hosts=len(self._bench.hosts))

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        return self._shelf.dead(limit)

    async def close(self) -> None:
        """Release the shelf."""
        self._shelf.close()

    def _push(self, record: UrlRecord) -> bool:
        state = self._shelf.add(record)
        if state is State.QUEUED:
            self._bench.found_work(self._host(record.host), starts_at(record.segment))
        return state is not None

    def _host(self, key: str) -> Host:
        host = self._bench.hosts.get(key)
        if host is not None:
            return host
        host = self._bench.host(key)
        memory = self._shelf.recall_host(key)
        if memory.facts is not None:
            self._lending.learned(key, memory.facts, 0.0)
        # A clock that was set back since must not make the host wait for the difference.
        started_at = min(memory.started_at, self._opened_at)
        self._bench.remind(host, started_at, min(memory.blocked_until, self._opened_at + BLOCK_MAX_S))
        return host

    def _put_back(self, place: Place, record: UrlRecord) -> None:
        self._shelf.put_back(place, record)
        self._bench.found_work(self._host(record.host), starts_at(record.segment))

    def _wake(self, now: float) -> None:
        for host in self._shelf.wake(now):
            self._bench.found_work(self._host(host))

    def _robots_expired(self, record: UrlRecord, now: float) -> None:
        overdue, event = expire(record)
        if event is Event.EXPIRE:
            self._lending.robots_failed(record.host, now + 2.0**overdue.attempts)
            return
        facts = HostFacts(EXPIRED.encode(), 0, now)
        self._lending.learned(record.host, facts, now)
        self._shelf.remember_host(record.host, self._shelf.recall_host(record.host)._replace(facts=facts))

    def _expired(self, place: Place, record: UrlRecord) -> None:
        overdue, event = expire(record)
        if event is Event.EXPIRE:
            self._put_back(place, overdue)
        else:
            self._shelf.bury(place, overdue, EXPIRED)
