"""A frontier that one process owns: the port, minus the question where records are kept.

Which host comes next and who holds what is decided in `core` (`Workbench`, `Lending`), what may happen to a record in
`frontier.core.states`. This file joins the two to a `Shelf`, which only stores. The shelves are in `memory.py` and
`lsm/frontier.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from lycosa.frontier.core.leases import Lending, Store
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    Kind,
    Lease,
    Moved,
    Row,
    Rows,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.scheduler import CLOCK_SLACK_S, Claim, Host, Workbench
from lycosa.frontier.core.states import Event, Policy, expire, fail, give_up
from lycosa.http.core.model import Validators

Place = TypeVar("Place")
EXPIRED = "lease expired"
NOT_YET = math.inf
"""The rank of what cannot be lent yet."""

BLOCK_MAX_S = 3600.0
"""A host that was blocked when the state was closed rests no longer than this (the largest Retry-After we keep)."""

HOSTS_KEPT_MAX = 20_000
"""With no more hosts than these, those that have nothing to do stay in memory too: most get work again soon."""

DELAY_MAX_S = 3600.0
"""A host is throttled to no more than this between two starts."""

ADDRESS_MAX_S = 3600.0
"""An address that was known when the state was closed is trusted no longer than this."""


class HostMemory(NamedTuple):
    """What outlives an idle host: when it was last contacted, until when it is blocked, its facts, its address."""

    started_at: float = 0.0
    blocked_until: float = 0.0
    facts: HostFacts | None = None
    address: str = ""
    address_until: float = 0.0


class HostWork(NamedTuple):
    """A host got so many records of this rank: the start of their segment (`frontier.core.segments.starts_at`)."""

    host: str
    rank: float
    records: int


class Shelf(Store[Place], Protocol[Place]):
    """Keeps records in their states. A place is where a queued record lies, and where it goes back to."""

    def add(self, record: UrlRecord) -> float | None:
        """Store a new record. Return its rank, `NOT_YET` when it cannot be lent yet; None when it is refused."""
        ...

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those of which memory alone can tell that they were added before."""
        ...

    def put_back(self, place: Place, record: UrlRecord) -> float:
        """LEASED -> QUEUED. Return its rank, `NOT_YET` when its segment was dropped."""
        ...

    def finish(self, place: Place, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        """LEASED -> DONE."""
        ...

    def retry(self, place: Place, record: UrlRecord) -> None:
        """LEASED -> RETRY, until its `not_before`."""
        ...

    def bury(self, place: Place, record: UrlRecord, reason: str, now: float) -> None:
        """LEASED -> DEAD."""
        ...

    def wake(self, now: float) -> Sequence[HostWork]:
        """DELAYED and RETRY -> QUEUED for what is due, a bounded number a call; start the segments whose time it is."""
        ...

    def next_due(self) -> float | None:
        """When `wake` has something to do."""
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

    def segments(self) -> list[SegmentView]:
        """Return the segments in the order in which they are served, then the dropped ones; what is lent is queued."""
        ...

    def hosts(self, after: str, limit: int) -> list[HostView]:
        """Return what is remembered of hosts behind a key."""
        ...

    def rows(self, selection: Selection, after: str, limit: int) -> Rows:
        """Return rows; what is lent is queued."""
        ...

    def find(self, fingerprint: int, host: str = "") -> list[Row]:
        """Return the rows of a fingerprint; it is found faster when its host is told."""
        ...

    def requeue(
        self, selection: Selection, into: str | None, after: str, limit: int
    ) -> tuple[Moved, Sequence[HostWork]]:
        """DEAD and DONE -> QUEUED, or a copy into another segment."""
        ...

    def archive(self, segment: str) -> bool:
        """Make a finished segment read only."""
        ...

    def drop(self, segment: str) -> int:
        """Forget a segment."""
        ...

    def verify(self, say: Callable[[str], None]) -> list[str]:
        """Return what does not fit together."""
        ...

    def compact(self) -> tuple[int, int]:
        """Give unused room back. Return the bytes before and after."""
        ...


class LocalFrontier(Generic[Place]):
    """See `frontier.ports.Frontier`; every method here is documented there. Raises `StateError` when the shelf
    fails."""

    def __init__(self, policy: Policy, shelf: Shelf[Place], first_token: int = 0, now: float = math.inf) -> None:
        self.shelf = shelf
        self._lending: Lending[Place] = Lending(policy, shelf, first_token)
        self._bench = self._lending.workbench
        self._paused = self._lending.paced
        self._opened_at = now
        self._offered = self._added = 0
        self.known = shelf.known
        opened_at = 0.0 if math.isinf(now) else now
        self._bench.see(opened_at)
        self.found_work(shelf.wake(opened_at))

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        add, hosts, found_work = self.shelf.add, self._bench.hosts, self._bench.found_work
        pushed = 0
        for record in records:
            rank = add(record)
            if rank is None:
                continue
            pushed += 1
            if rank != NOT_YET:
                found_work(hosts.get(record.host) or self._host(record.host), rank)
        self._offered += len(records)
        self._added += pushed
        return pushed

    async def lease(self, limit: int, now: float) -> list[Lease]:
        """Lend what may be fetched now."""
        self._see(now)
        self._wake(now)
        return self._lending.lend(limit, now)

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
        if children:  # first, so that one that cannot be stored leaves its parent to be fetched again
            await self.push(children)
        if held.place is not None:
            self.shelf.finish(held.place, held.lease.record, reason, now, validators)
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
            self.shelf.bury(held.place, give_up(record), reason, now)
        else:
            self.shelf.retry(held.place, fail(record, retry_at))
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
        self._see(now)
        return self._lending.renew(lease, now)

    async def expire(self, now: float) -> int:
        """Take back what is overdue."""
        self._see(now)
        late = self._lending.overdue(now)
        for lease in late:
            held = self._lending.give_back(lease, contacted=True)
            if held is None:
                continue
            if held.place is not None:
                self._expired(held.place, held.lease.record, now)
            elif held.lease.record.kind == Kind.RESOLVE:
                self._lending.address_failed(held.lease.record.host, now)
            else:
                self._robots_expired(held.lease.record, now)
        return len(late)

    async def block_host(self, host: str, until: float) -> None:
        """Pause the host."""
        self._bench.block(self._host(host), until)
        self._paused.add(host)

    async def claim(self, host: str, wake: Callable[[], None], now: float, holder: Lease | None = None) -> Claim:
        """Join the line."""
        self._see(now)
        self._host(host)
        return self._lending.claim(host, wake, holder, now)

    async def turn(self, claim: Claim, now: float) -> float:
        """Ask for the turn."""
        self._see(now)
        return self._lending.turn(claim, now)

    async def unclaim(self, claim: Claim, now: float) -> None:
        """End it."""
        self._see(now)
        self._lending.unclaim(claim, now)

    def wants_address(self, host: str, now: float) -> bool:
        """Ask."""
        return self._lending.needs_address(self._host(host), now)

    async def set_delay(self, host: str, delay_s: float, now: float) -> None:
        """Throttle."""
        self._see(now)
        self._bench.see(now)
        self._bench.throttle(self._host(host), min(max(0.0, delay_s), DELAY_MAX_S))

    async def host_facts(self, host: str) -> HostFacts | None:
        """Recall."""
        return self.shelf.recall_host(host).facts

    async def set_host_facts(self, host: str, facts: HostFacts, now: float) -> None:
        """Remember."""
        self._host(host)
        self._lending.learned(host, facts, now)
        self._remember(self._bench.hosts[host], facts)

    async def set_address(self, host: str, address: str, until: float, now: float) -> None:
        """Remember."""
        self._host(host)
        self._lending.learned_address(host, address, until, now)
        self._paused.add(host)

    def next_ready(self, now: float) -> float | None:
        """The next host whose turn comes, or the next sleeper that wakes."""
        times = (self._bench.next_ready(), self.shelf.next_due())
        return min((at for at in times if at is not None), default=None)

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make it durable."""
        for key in self._paused:
            host = self._bench.hosts.get(key)
            if host is not None:
                self._remember(host, None)
        self._paused.clear()
        self.shelf.commit(positions)
        if len(self._bench.hosts) > HOSTS_KEPT_MAX:
            self._bench.forget_idle(self._bench.now)

    async def positions(self) -> dict[str, int]:
        """Return the sinks' positions."""
        return self.shelf.positions()

    async def stats(self) -> FrontierStats:
        """Count."""
        return self.shelf.stats()._replace(
            leased=len(self._lending), hosts=len(self._bench.hosts), offered=self._offered, added=self._added
        )

    async def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the dead."""
        return self.shelf.dead(limit)

    async def close(self) -> None:
        """Release the shelf."""
        self.shelf.close()

    @property
    def workbench(self) -> Workbench:
        """The active hosts."""
        return self._bench

    def delays(self, host_key: str) -> list[tuple[str, float]]:
        """Return what has a delay when this host is asked, the host or its IP address, with the seconds."""
        host = self._bench.hosts.get(host_key)
        if host is None:
            return []
        own, by_ip = host.delay_s, self._bench.policy.delay_per_ip_s
        delays = [(host_key, own)] if own else []
        return [*delays, (host.group.address, by_ip)] if host.group is not None and by_ip else delays

    def leases(self) -> list[Lease]:
        """Return what is lent."""
        return self._lending.leases()

    def found_work(self, work: Iterable[HostWork]) -> None:
        """These hosts have something to lend."""
        for host, rank, count in work:
            self._bench.found_work(self._host(host), rank, count)

    def drop(self, segment: str) -> int:
        """Forget a segment; what of it is lent is held no more."""
        dropped = self.shelf.drop(segment)
        for lease in self._lending.leases():
            if lease.record.segment == segment and lease.record.kind == Kind.PAGE:
                held = self._lending.give_back(lease, contacted=True)
                if held is not None and held.place is not None:
                    self.shelf.put_back(held.place, held.lease.record)
        return dropped

    def _host(self, key: str) -> Host:
        host = self._bench.hosts.get(key)
        if host is not None:
            return host
        host = self._bench.host(key)
        memory = self.shelf.recall_host(key)
        if memory.facts is not None:
            at = min(memory.facts.robots_at, self._opened_at)
            self._lending.learned(key, replace(memory.facts, robots_at=at), 0.0)
        if memory.address:
            until = min(memory.address_until, self._opened_at + ADDRESS_MAX_S)
            self._lending.learned_address(key, memory.address, until, 0.0)
        # A clock that was set back since must not make the host wait for the difference.
        started_at = min(memory.started_at, self._opened_at)
        self._bench.remind(host, started_at, min(memory.blocked_until, self._opened_at + BLOCK_MAX_S))
        return host

    def _remember(self, host: Host, facts: HostFacts | None) -> None:
        """Keep what must outlive the process; facts None keeps those that are there."""
        memory = HostMemory(host.started_at, host.blocked_until, facts, host.address, host.address_until)
        self.shelf.remember_host(host.key, memory)

    def _put_back(self, place: Place, record: UrlRecord) -> None:
        rank = self.shelf.put_back(place, record)
        if rank != NOT_YET:
            self._bench.found_work(self._host(record.host), rank)

    def _see(self, now: float) -> None:
        """When the clock was set back, what is remembered of hosts is as far ahead as it was."""
        if now < self._opened_at - CLOCK_SLACK_S:
            self._opened_at = now

    def _wake(self, now: float) -> None:
        due = self.shelf.next_due()
        if due is not None and due <= now:
            self.found_work(self.shelf.wake(now))

    def _robots_expired(self, record: UrlRecord, now: float) -> None:
        overdue, event = expire(record)
        if event is Event.EXPIRE:
            self._lending.robots_failed(record.host, now + 2.0**overdue.attempts)
            return
        facts = HostFacts(EXPIRED.encode(), 0, now)
        self._lending.learned(record.host, facts, now)
        self._remember(self._host(record.host), facts)

    def _expired(self, place: Place, record: UrlRecord, now: float) -> None:
        overdue, event = expire(record)
        if event is Event.EXPIRE:
            self._put_back(place, overdue)
        else:
            self.shelf.bury(place, overdue, EXPIRED, now)
