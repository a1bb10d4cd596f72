"""One random history, run on the lease manager and on a model of it that scans all hosts every time (F8).

A history consists of work of several segments, leases and their ends, blocks, crawl delays, addresses that appear,
change and expire, and clocks that jump. The model keeps a list of pauses and of transfers, and derives from the
definitions alone which hosts may be contacted; it shares no code with the manager. Times are multiples of a quarter of
a second, so that sums are exact.
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
CLOCK_SLACK_S, PAUSE_MAX_S = 1.0, 3600.0
quarters = st.integers(0, 160).map(lambda number: number / 4)


@dataclass
class Transfer:
    """A running transfer. Its pauses are undone if the host was not contacted and the transfer is still `undoable`."""

    lease: Lease
    host: str
    address: str
    kind: int
    undoable: bool = True
    starts: int = 0
    group_starts: int = 0


@dataclass
class Pauses:
    """Times before which no transfer may start; only the last start can be undone."""

    block: float = 0.0
    before: float = 0.0
    last: float = 0.0
    starts: int = 0

    def until(self) -> float:
        return max(self.block, self.before, self.last)

    def start(self, until: float) -> None:
        self.before, self.last, self.starts = max(self.before, self.last), until, self.starts + 1

    def undo(self, number: int) -> None:
        if number == self.starts:
            self.last = 0.0

    def shift(self, seconds: float) -> None:
        self.block, self.before, self.last = self.block - seconds, self.before - seconds, self.last - seconds


@dataclass
class HostModel:
    """The model of a host."""

    pauses: Pauses = field(default_factory=Pauses)
    delay: float = 0.0
    started: float = 0.0
    address: str = ""
    address_until: float = 0.0
    robots_at: float = 0.0
    fresh: float | None = None
    """The latest block since the clock was last read."""


class Store:
    """A record queue: a rank and a number per record."""

    def __init__(self) -> None:
        self.queues: dict[str, list[tuple[float, int]]] = {host: [] for host in HOSTS}

    def take(self, host: str) -> tuple[tuple[float, int], UrlRecord, float | None] | None:
        queue = self.queues[host]
        if not queue:
            return None
        key = min(queue)
        queue.remove(key)
        return key, UrlRecord(1, key[1], f"{host}/{key[1]}", host), min(queue)[0] if queue else None

    def peek(self, host: str) -> UrlRecord | None:
        key = min(self.queues[host], default=None)
        return None if key is None else UrlRecord(1, key[1], f"{host}/{key[1]}", host)


class PickingHistory(RuleBasedStateMachine):
    """The state machine that the module describes."""

    @initialize(
        delay=st.sampled_from([0.0, 2.0]),
        concurrency=st.integers(1, 3),
        delay_per_ip=st.sampled_from([0.0, 1.5, 12.0]),
        concurrency_per_ip=st.sampled_from([0, 1, 2, 3]),
        robots=st.sampled_from([False, False, True]),
        addresses=st.lists(st.sampled_from([*ADDRESSES, ADDRESSES[1], None]), min_size=len(HOSTS), max_size=len(HOSTS)),
    )
    def start(
        self,
        delay: float,
        concurrency: int,
        delay_per_ip: float,
        concurrency_per_ip: int,
        robots: bool,
        addresses: list[str | None],
    ) -> None:
        self.policy = Policy(
            delay_s=delay,
            concurrency_per_host=concurrency,
            lease_s=LEASE_S,
            robots=robots,
            robots_ttl_s=ROBOTS_TTL_S,
            delay_per_ip_s=delay_per_ip,
            concurrency_per_ip=concurrency_per_ip,
        )
        self.limits_addresses = delay_per_ip > 0 or concurrency_per_ip > 0
        self.store = Store()
        self.manager: LeaseManager[Any] = LeaseManager(self.policy, self.store, 0)
        self.now = self.latest = START
        self.hosts: dict[str, HostModel] = {}
        self.groups: dict[str, Pauses] = {address: Pauses() for address in ADDRESSES[1:]}
        self.transfers: dict[int, Transfer] = {}
        self.number = 0
        self.manager.lease(0, self.now)
        for key, address in zip(HOSTS, addresses, strict=True):
            if address is not None:
                self.set_address(key, address, 10_000.0)

    # The model.

    def host(self, key: str) -> HostModel:
        return self.hosts.setdefault(key, HostModel(delay=self.policy.delay_s))

    def update_clock(self) -> bool:
        """Read the clock. Return whether it was set back."""
        if self.now >= self.latest - CLOCK_SLACK_S:
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
                host.pauses.block = max(host.pauses.block, min(host.fresh, self.now + PAUSE_MAX_S))
            host.fresh = None
        for transfer in self.transfers.values():
            transfer.undoable = False
            transfer.lease = transfer.lease._replace(expires_at=min(transfer.lease.expires_at, self.now + LEASE_S))
        return True

    def pause(self, key: str, until: float) -> None:
        host = self.host(key)
        host.pauses.block = max(host.pauses.block, until)
        host.fresh = max(host.fresh or 0.0, until)

    def group_of(self, key: str) -> str:
        return self.host(key).address if self.limits_addresses else ""

    def in_flight(self, key: str) -> int:
        return sum(transfer.host == key for transfer in self.transfers.values())

    def in_flight_at(self, address: str) -> int:
        requests = (each for each in self.transfers.values() if each.kind != RecordKind.RESOLVE)
        return sum(each.address == address for each in requests)

    def below_limit(self, key: str) -> bool:
        if not self.store.queues[key] or self.in_flight(key) >= self.policy.concurrency_per_host:
            return False
        if any(transfer.host == key and transfer.kind != RecordKind.PAGE for transfer in self.transfers.values()):
            return False
        group = self.group_of(key)
        limit = self.policy.concurrency_per_ip if group else 0
        return not limit or self.in_flight_at(group) < limit

    def ready_at(self, key: str) -> float:
        until, group = self.host(key).pauses.until(), self.group_of(key)
        return max(until, self.groups[group].until()) if group else until

    def ready(self) -> list[str]:
        return [key for key in HOSTS if self.below_limit(key) and self.ready_at(key) <= self.latest]

    def next_kind(self, key: str) -> int:
        host = self.host(key)
        if self.limits_addresses and host.address_until <= self.latest:
            return RecordKind.RESOLVE
        if self.policy.robots and self.latest - host.robots_at >= ROBOTS_TTL_S:
            return RecordKind.ROBOTS
        return RecordKind.PAGE

    # The rules.

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
    def lease(self, limit: int) -> None:
        before = {key: list(queue) for key, queue in self.store.queues.items()}
        leases = self.manager.lease(limit, self.now)
        after, self.store.queues = self.store.queues, before
        self.update_clock()
        for lease in leases:
            self.check_leased(lease)
        assert self.store.queues == after
        assert len(leases) == limit or not self.ready(), f"{self.ready()} could have been leased"

    def check_leased(self, lease: Lease) -> None:
        key, ready = lease.record.host, self.ready()
        host = self.host(key)
        assert key in ready, f"{key} may not be contacted"
        oldest = min(min(self.store.queues[other])[0] for other in ready)
        assert min(self.store.queues[key])[0] == oldest, "an older segment was waiting"
        assert lease.record.kind == self.next_kind(key)
        assert lease.expires_at == self.latest + LEASE_S
        transfer = Transfer(lease, key, host.address, lease.record.kind)
        self.transfers[lease.token] = transfer
        if transfer.kind == RecordKind.RESOLVE:
            return
        assert lease.address == host.address
        host.started = self.latest
        host.pauses.start(self.latest + host.delay if host.delay else 0.0)
        transfer.starts = host.pauses.starts
        if self.group_of(key):
            group = self.groups[host.address]
            group.start(self.latest + self.policy.delay_per_ip_s)
            transfer.group_starts = group.starts
        if transfer.kind == RecordKind.PAGE:
            first = min(self.store.queues[key])
            assert lease.record.fingerprint == first[1]
            self.store.queues[key].remove(first)

    @precondition(lambda self: self.transfers)
    @rule(data=st.data(), contacted=st.booleans())
    def end_one(self, data: st.DataObject, contacted: bool) -> None:
        self.end(data.draw(st.sampled_from(sorted(self.transfers))), contacted)

    @rule(address=st.sampled_from(ADDRESSES), delay=st.sampled_from([0.0, 0.5, 4.0]))
    def answer_prerequisites(self, address: str, delay: float) -> None:
        """Answer all running lookups and robots.txt requests."""
        for token, transfer in list(self.transfers.items()):
            if transfer.kind == RecordKind.RESOLVE:
                self.set_address(transfer.host, address, 400.0)
            elif transfer.kind == RecordKind.ROBOTS:
                self.set_robots(transfer.host, delay)
            if transfer.kind != RecordKind.PAGE:
                self.end(token, contacted=True)

    def end(self, token: int, contacted: bool) -> None:
        transfer = self.transfers.pop(token)
        ended = self.manager.end(transfer.lease, contacted=contacted)
        assert ended is not None
        assert ended.lease == transfer.lease
        assert self.manager.end(transfer.lease, contacted=contacted) is None
        if not contacted and transfer.undoable and transfer.kind != RecordKind.RESOLVE:
            self.host(transfer.host).pauses.undo(transfer.starts)
            if self.limits_addresses and transfer.address:
                self.groups[transfer.address].undo(transfer.group_starts)

    @precondition(lambda self: self.transfers)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from(sorted(self.transfers)))
        self.update_clock()
        transfer = self.transfers.pop(token)
        renewed = self.manager.renew(transfer.lease, self.now)
        assert renewed == transfer.lease._replace(expires_at=self.latest + LEASE_S)
        transfer.lease = renewed
        self.transfers[token] = transfer

    @rule()
    def overdue(self) -> None:
        self.update_clock()
        expired = {transfer.lease for transfer in self.transfers.values() if transfer.lease.expires_at <= self.now}
        assert set(self.manager.overdue(self.now)) == expired

    @rule(key=st.sampled_from(HOSTS), seconds=quarters)
    def block(self, key: str, seconds: float) -> None:
        self.manager.scheduler.block(self.manager.scheduler.activate(key), self.now + seconds)
        self.pause(key, self.now + seconds)

    @rule(key=st.sampled_from(HOSTS), delay=st.sampled_from([0.0, 0.5, 4.0]))
    def robots_known(self, key: str, delay: float) -> None:
        self.set_robots(key, delay)

    def set_robots(self, key: str, delay: float) -> None:
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
    def address_known(self, key: str, address: str, seconds: float) -> None:
        self.set_address(key, address, seconds * 10)

    def set_address(self, key: str, address: str, seconds: float) -> None:
        self.manager.set_address(key, address, self.now + seconds, self.now)
        host = self.host(key)
        if self.limits_addresses and address and not host.address and host.started:
            group = self.groups[address]
            group.block = max(group.block, host.started + self.policy.delay_per_ip_s)
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
        times = [self.ready_at(key) for key in HOSTS if self.below_limit(key)]
        if not times:
            assert at is None
        elif min(times) <= self.latest:
            assert at is not None
            assert at <= self.latest
        else:
            assert at == min(times)

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "manager"):
            return
        scheduler = self.manager.scheduler
        for key, host in scheduler.hosts.items():
            assert (host.backlog, host.in_flight) == (len(self.store.queues[key]), self.in_flight(key))
        for address, group in scheduler.groups.items():
            hosts = [host for host in scheduler.hosts.values() if host.group is group]
            assert (group.members, group.backlog) == (len(hosts), sum(host.backlog for host in hosts))
            assert group.in_flight == self.in_flight_at(address)


PickingHistory.TestCase.settings = settings(
    max_examples=5000 if PROVE else 125,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestPickingHistory = PickingHistory.TestCase
