"""One random history, played on the manager and on a model of it that scans all hosts every time (F8).

Work of several segments, leases and their ends, blocks, crawl delays, addresses that come, change and run out, clocks
that jump. The model keeps a list of pauses and of transfers, and says from the definitions alone who may be contacted;
it shares no code with the manager. Times are whole quarters of a second, so that sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from lycosa.frontier.core.leases import LeaseManager
from lycosa.frontier.core.model import HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.states import Policy
from tests.conftest import PROVE

HOSTS = [f"http://h{n}.example:80" for n in range(4)]
ADDRESSES = ["", "10.0.0.1", "10.0.0.2"]
LEASE_S = 64.0
ROBOTS_TTL_S = 500.0
START = 1_000_000.0
SLACK_S, BLIND_BLOCK_MAX_S = 1.0, 3600.0
quarters = st.integers(0, 160).map(lambda number: number / 4)


@dataclass
class Flight:
    """A transfer: the pauses it asked for hold unless the host was not contacted."""

    lease: Lease
    host: str
    address: str
    kind: int
    returnable: bool = True
    starts: int = 0
    group_starts: int = 0


@dataclass
class Pauses:
    """Nothing may start before any of these; the last start alone may be taken back."""

    others: float = 0.0
    before: float = 0.0
    last: float = 0.0
    starts: int = 0

    def until(self) -> float:
        return max(self.others, self.before, self.last)

    def start(self, until: float) -> None:
        self.before, self.last, self.starts = max(self.before, self.last), until, self.starts + 1

    def take_back(self, number: int) -> None:
        if number == self.starts:
            self.last = 0.0

    def shift(self, seconds: float) -> None:
        self.others, self.before, self.last = self.others - seconds, self.before - seconds, self.last - seconds


@dataclass
class HostModel:
    """All that is known of a host."""

    pauses: Pauses = field(default_factory=Pauses)
    delay: float = 0.0
    started: float = 0.0
    address: str = ""
    address_until: float = 0.0
    robots_at: float = 0.0
    fresh: float | None = None


class Store:
    """Queued records: a rank and a number each."""

    def __init__(self) -> None:
        self.queues: dict[str, list[tuple[float, int]]] = {host: [] for host in HOSTS}

    def take(self, host: str) -> tuple[tuple[float, int], UrlRecord, float | None] | None:
        queue = self.queues[host]
        if not queue:
            return None
        place = min(queue)
        queue.remove(place)
        return place, UrlRecord(1, place[1], f"{host}/{place[1]}", host), min(queue)[0] if queue else None

    def peek(self, host: str) -> UrlRecord | None:
        place = min(self.queues[host], default=None)
        return None if place is None else UrlRecord(1, place[1], f"{host}/{place[1]}", host)


class PickingHistory(RuleBasedStateMachine):
    """See the module."""

    @initialize(
        delay=st.sampled_from([0.0, 2.0]),
        places=st.integers(1, 3),
        delay_per_ip=st.sampled_from([0.0, 1.5, 12.0]),
        places_per_ip=st.sampled_from([0, 1, 2, 3]),
        robots=st.sampled_from([False, False, True]),
        addresses=st.lists(st.sampled_from([*ADDRESSES, ADDRESSES[1], None]), min_size=len(HOSTS), max_size=len(HOSTS)),
    )
    def start(
        self,
        delay: float,
        places: int,
        delay_per_ip: float,
        places_per_ip: int,
        robots: bool,
        addresses: list[str | None],
    ) -> None:
        self.policy = Policy(
            delay_s=delay,
            concurrency_per_host=places,
            lease_s=LEASE_S,
            robots=robots,
            robots_ttl_s=ROBOTS_TTL_S,
            delay_per_ip_s=delay_per_ip,
            concurrency_per_ip=places_per_ip,
        )
        self.resolves = delay_per_ip > 0 or places_per_ip > 0
        self.store = Store()
        self.manager: LeaseManager[Any] = LeaseManager(self.policy, self.store, 0)
        self.now = self.latest = START
        self.hosts: dict[str, HostModel] = {}
        self.groups: dict[str, Pauses] = {address: Pauses() for address in ADDRESSES[1:]}
        self.flights: dict[int, Flight] = {}
        self.number = 0
        self.manager.lease(0, self.now)
        for key, address in zip(HOSTS, addresses, strict=True):
            if address is not None:
                self.has_address(key, address, 10_000.0)

    # What the model says.

    def host(self, key: str) -> HostModel:
        return self.hosts.setdefault(key, HostModel(delay=self.policy.delay_s))

    def see(self) -> bool:
        """The clock is looked at; whether it was set back."""
        if self.now >= self.latest - SLACK_S:
            self.latest = max(self.latest, self.now)
            for host in self.hosts.values():
                host.fresh = None
            return False
        seconds, self.latest = self.latest - self.now, self.now
        for group in self.groups.values():
            group.shift(seconds)
        for host in self.hosts.values():
            host.pauses.shift(seconds)
            host.started, host.address_until = host.started - seconds, host.address_until - seconds
            host.robots_at = max(host.robots_at - seconds, 0.0)
            if host.fresh is not None:
                host.pauses.others = max(host.pauses.others, min(host.fresh, self.now + BLIND_BLOCK_MAX_S))
            host.fresh = None
        for flight in self.flights.values():
            flight.returnable = False
            flight.lease = flight.lease._replace(expires_at=min(flight.lease.expires_at, self.now + LEASE_S))
        return True

    def pause(self, key: str, until: float) -> None:
        host = self.host(key)
        host.pauses.others = max(host.pauses.others, until)
        host.fresh = max(host.fresh or 0.0, until)

    def group_of(self, key: str) -> str:
        return self.host(key).address if self.resolves else ""

    def in_flight(self, key: str) -> int:
        return sum(flight.host == key for flight in self.flights.values())

    def has_place(self, key: str) -> bool:
        if not self.store.queues[key] or self.in_flight(key) >= self.policy.concurrency_per_host:
            return False
        if any(flight.host == key and flight.kind != RecordKind.PAGE for flight in self.flights.values()):
            return False
        group = self.group_of(key)
        there = [f for f in self.flights.values() if group and f.address == group and f.kind != RecordKind.RESOLVE]
        return not (group and self.policy.concurrency_per_ip) or len(there) < self.policy.concurrency_per_ip

    def ready_at(self, key: str) -> float:
        until, group = self.host(key).pauses.until(), self.group_of(key)
        return max(until, self.groups[group].until()) if group else until

    def ready(self) -> list[str]:
        return [key for key in HOSTS if self.has_place(key) and self.ready_at(key) <= self.latest]

    def kind_wanted(self, key: str) -> int:
        host = self.host(key)
        if self.resolves and host.address_until <= self.latest:
            return RecordKind.RESOLVE
        if self.policy.robots and self.latest - host.robots_at >= ROBOTS_TTL_S:
            return RecordKind.ROBOTS
        return RecordKind.PAGE

    # What happens.

    @rule(
        key=st.sampled_from(HOSTS),
        rank=st.sampled_from([0.0, 0.0, 5.0, 9.0]),
        count=st.sampled_from([1, 1, 3, 20, 300]),
    )
    def push(self, key: str, rank: float, count: int) -> None:
        for _ in range(count):
            self.number += 1
            self.store.queues[key].append((rank, self.number))
        self.host(key)
        self.manager.scheduler.add_work(self.manager.scheduler.activate(key), rank, count)

    @rule(limit=st.integers(0, 12))
    def lend(self, limit: int) -> None:
        before = {key: list(queue) for key, queue in self.store.queues.items()}
        leases = self.manager.lease(limit, self.now)
        after, self.store.queues = self.store.queues, before
        self.see()
        for lease in leases:
            self.check_lent(lease)
        assert self.store.queues == after
        assert len(leases) == limit or not self.ready(), f"{self.ready()} could have been lent"

    def check_lent(self, lease: Lease) -> None:
        key, ready = lease.record.host, self.ready()
        host = self.host(key)
        assert key in ready, f"{key} may not be contacted"
        oldest = min(min(self.store.queues[other])[0] for other in ready)
        assert min(self.store.queues[key])[0] == oldest, "an older segment was waiting"
        assert lease.record.kind == self.kind_wanted(key)
        assert lease.expires_at == self.latest + LEASE_S
        flight = Flight(lease, key, host.address, lease.record.kind)
        self.flights[lease.token] = flight
        if flight.kind == RecordKind.RESOLVE:
            return
        assert lease.address == host.address
        host.started = self.latest
        host.pauses.start(self.latest + host.delay if host.delay else 0.0)
        flight.starts = host.pauses.starts
        if self.group_of(key):
            group = self.groups[host.address]
            group.start(self.latest + self.policy.delay_per_ip_s)
            flight.group_starts = group.starts
        if flight.kind == RecordKind.PAGE:
            place = min(self.store.queues[key])
            assert lease.record.fingerprint == place[1]
            self.store.queues[key].remove(place)

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), contacted=st.booleans())
    def give_back(self, data: st.DataObject, contacted: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.flights))), contacted)

    @rule(address=st.sampled_from(ADDRESSES), delay=st.sampled_from([0.0, 0.5, 4.0]))
    def answer(self, address: str, delay: float) -> None:
        """All who ask are told."""
        for token, flight in list(self.flights.items()):
            if flight.kind == RecordKind.RESOLVE:
                self.has_address(flight.host, address, 400.0)
            elif flight.kind == RecordKind.ROBOTS:
                self.has_robots(flight.host, delay)
            if flight.kind != RecordKind.PAGE:
                self.end(token, contacted=True)

    def end(self, token: int, contacted: bool) -> None:
        flight = self.flights.pop(token)
        held = self.manager.end(flight.lease, contacted=contacted)
        assert held is not None
        assert held.lease == flight.lease
        assert self.manager.end(flight.lease, contacted=contacted) is None
        if not contacted and flight.returnable and flight.kind != RecordKind.RESOLVE:
            self.host(flight.host).pauses.take_back(flight.starts)
            if self.resolves and flight.address:
                self.groups[flight.address].take_back(flight.group_starts)

    @precondition(lambda self: self.flights)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.flights)))
        self.see()
        flight = self.flights.pop(token)
        renewed = self.manager.renew(flight.lease, self.now)
        assert renewed == flight.lease._replace(expires_at=self.latest + LEASE_S)
        flight.lease = renewed
        self.flights[token] = flight

    @rule()
    def overdue(self) -> None:
        self.see()
        late = {flight.lease for flight in self.flights.values() if flight.lease.expires_at <= self.now}
        assert set(self.manager.overdue(self.now)) == late

    @rule(key=st.sampled_from(HOSTS), seconds=quarters)
    def block(self, key: str, seconds: float) -> None:
        self.manager.scheduler.block(self.manager.scheduler.activate(key), self.now + seconds)
        self.pause(key, self.now + seconds)

    @rule(key=st.sampled_from(HOSTS), delay=st.sampled_from([0.0, 0.5, 4.0]))
    def learn_robots(self, key: str, delay: float) -> None:
        self.has_robots(key, delay)

    def has_robots(self, key: str, delay: float) -> None:
        self.manager.set_facts(key, HostFacts(b"", 200, self.now, delay), self.now)
        host = self.host(key)
        host.robots_at, host.delay = self.now, max(delay, self.policy.delay_s)
        self.pause(key, self.now + host.delay)

    @rule(key=st.sampled_from(HOSTS), seconds=quarters, robots=st.booleans())
    def fail(self, key: str, seconds: float, robots: bool) -> None:
        failed = self.manager.robots_failed if robots else self.manager.address_failed
        failed(key, self.now + seconds)
        self.pause(key, self.now + seconds)

    @rule(key=st.sampled_from(HOSTS), address=st.sampled_from(ADDRESSES), seconds=quarters)
    def learn_address(self, key: str, address: str, seconds: float) -> None:
        self.has_address(key, address, seconds * 10)

    def has_address(self, key: str, address: str, seconds: float) -> None:
        self.manager.set_address(key, address, self.now + seconds, self.now)
        host = self.host(key)
        if self.resolves and address and not host.address and host.started:
            group = self.groups[address]
            group.others = max(group.others, host.started + self.policy.delay_per_ip_s)
        host.address, host.address_until = address, self.now + seconds

    @rule(
        seconds=st.one_of(
            quarters,
            st.integers(0, 8).map(lambda number: number / 4),
            st.sampled_from([0.0, 0.5, 2.0, 100.0, 7200.0, -0.25, -1.0, -1.25, -20.0, -7200.0]),
        )
    )
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def forget_idle(self) -> None:
        self.manager.scheduler.forget_idle(self.now)
        for key in list(self.hosts):
            if not self.store.queues[key] and not self.in_flight(key) and self.hosts[key].pauses.until() <= self.now:
                del self.hosts[key]
        assert set(self.manager.scheduler.hosts) == set(self.hosts)

    @rule()
    def next_ready(self) -> None:
        at = self.manager.scheduler.next_ready()
        times = [self.ready_at(key) for key in HOSTS if self.has_place(key)]
        if not times:
            assert at is None
        elif min(times) <= self.latest:
            assert at is not None
            assert at <= self.latest
        else:
            assert at == min(times)

    @invariant()
    def estimates_add_up(self) -> None:
        if not hasattr(self, "manager"):
            return
        scheduler = self.manager.scheduler
        for key, host in scheduler.hosts.items():
            assert (host.backlog, host.in_flight) == (len(self.store.queues[key]), self.in_flight(key))
        for address, group in scheduler.groups.items():
            hosts = [host for host in scheduler.hosts.values() if host.group is group]
            assert (group.members, group.backlog) == (len(hosts), sum(host.backlog for host in hosts))
            flights = [f for f in self.flights.values() if f.address == address and f.kind != RecordKind.RESOLVE]
            assert group.in_flight == len(flights)


PickingHistory.TestCase.settings = settings(
    max_examples=5000 if PROVE else 125,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPickingHistory = PickingHistory.TestCase
