"""Leases and their ends (C4, C6, F8), and what must be fetched of a host before its pages."""

from __future__ import annotations

from collections import defaultdict, deque

from msgspec.structs import replace

from lycosa.frontier.core.leases import LeaseManager
from lycosa.frontier.core.model import HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.states import Policy

A, B = "http://a.example:80", "http://b.example:80"
NOW = 1_000_000.0
PER_IP = Policy(robots=False, delay_s=0.0, delay_per_ip_s=2.0, concurrency_per_ip=1, lease_s=60.0)


class FakeStore:
    """Records in the order of arrival."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, deque[UrlRecord]] = defaultdict(deque)

    def take(self, host: str) -> tuple[str, UrlRecord, float | None] | None:
        queue = self.queues[host]
        if not queue:
            return None
        record = queue.popleft()
        return record.url, record, 0.0 if queue else None

    def peek(self, host: str) -> UrlRecord | None:
        return self.queues[host][0] if self.queues[host] else None


def new_manager(policy: Policy, counts: dict[str, int]) -> LeaseManager[str]:
    store = FakeStore()
    manager = LeaseManager(policy, store, 100)
    for host, count in counts.items():
        store.queues[host].extend(UrlRecord(1, number, f"{host}/{number}", host) for number in range(count))
        manager.scheduler.add_work(manager.scheduler.activate(host), count=count)
    return manager


def kinds(leases: list[Lease]) -> list[tuple[str, int]]:
    return [(lease.record.host, lease.record.kind) for lease in leases]


def test_each_lease_has_its_own_token() -> None:
    manager = new_manager(Policy(robots=False, lease_s=60.0), {A: 2})
    first, second = manager.lease(5, NOW)
    assert (first.token, second.token) == (101, 102)
    assert (first.record.url, first.expires_at, first.address) == (A + "/0", NOW + 60.0, "")
    assert len(manager) == 2
    leased = manager.end(first, contacted=True)
    assert leased is not None
    assert (leased.lease, leased.key) == (first, A + "/0")
    assert manager.end(first, contacted=True) is None
    assert len(manager) == 1


def test_a_store_with_fewer_records_than_expected() -> None:
    manager = new_manager(Policy(robots=False), {A: 1})
    manager.scheduler.add_work(manager.scheduler.activate(B), count=3)
    assert kinds(manager.lease(5, NOW)) == [(A, RecordKind.PAGE)]
    assert manager.scheduler.next_ready() is None
    manager.scheduler.forget_idle(NOW)
    assert set(manager.scheduler.hosts) == {A}


def test_the_address_comes_first_then_robots_txt_then_pages() -> None:
    manager = new_manager(Policy(robots=True, concurrency_per_ip=3, robots_ttl_s=100.0), {A: 2})
    (look_up,) = manager.lease(5, NOW)
    assert (look_up.record.kind, look_up.record.url, look_up.address) == (RecordKind.RESOLVE, A + "/", "")
    assert manager.lease(5, NOW) == []
    assert manager.scheduler.next_ready() is None
    manager.set_address(A, "10.0.0.1", NOW + 50.0, NOW)
    assert manager.lease(5, NOW) == [], "not before the look-up has ended"
    leased = manager.end(look_up, contacted=True)
    assert leased is not None
    assert leased.key is None
    (robots,) = manager.lease(5, NOW)
    assert (robots.record.kind, robots.record.url, robots.address) == (RecordKind.ROBOTS, A + "/robots.txt", "10.0.0.1")
    assert manager.lease(5, NOW) == []
    manager.set_facts(A, HostFacts(b"", 200, NOW), NOW)
    manager.end(robots, contacted=True)
    pages = manager.lease(5, NOW)
    assert kinds(pages) == [(A, RecordKind.PAGE)] * 2
    assert pages[0].address == "10.0.0.1"


def test_an_expired_address_is_looked_up_again_while_pages_are_in_flight() -> None:
    manager = new_manager(Policy(robots=False, concurrency_per_ip=3), {A: 3})
    manager.set_address(A, "10.0.0.1", NOW + 50.0, NOW)
    (page,) = manager.lease(1, NOW)
    (look_up,) = manager.lease(5, NOW + 50.0)
    assert look_up.record.kind == RecordKind.RESOLVE
    manager.end(page, contacted=True)
    assert manager.lease(5, NOW + 50.0) == []
    manager.set_address(A, "10.0.0.2", NOW + 90.0, NOW + 50.0)
    manager.end(look_up, contacted=True)
    assert [lease.address for lease in manager.lease(5, NOW + 50.0)] == ["10.0.0.2"] * 2


def test_a_look_up_counts_for_no_limit() -> None:
    manager = new_manager(PER_IP, {A: 2, B: 1})
    manager.set_address(B, "10.0.0.1", NOW + 500.0, NOW)
    leases = manager.lease(5, NOW)
    assert sorted(kinds(leases)) == [(A, RecordKind.RESOLVE), (B, RecordKind.PAGE)]
    manager.set_address(A, "10.0.0.1", NOW + 500.0, NOW)
    for lease in leases:
        manager.end(lease, contacted=True)
    assert manager.scheduler.next_ready() == NOW + 2.0
    assert kinds(manager.lease(5, NOW + 2.0)) == [(A, RecordKind.PAGE)]


def test_a_failed_look_up_blocks_the_host_and_counts_as_an_attempt() -> None:
    manager = new_manager(PER_IP, {A: 1})
    (look_up,) = manager.lease(1, NOW)
    assert look_up.record.attempts == 0
    manager.end(look_up, contacted=True)
    manager.address_failed(A, NOW + 30.0)
    assert manager.lease(1, NOW + 29.0) == []
    (look_up,) = manager.lease(1, NOW + 30.0)
    assert (look_up.record.kind, look_up.record.attempts) == (RecordKind.RESOLVE, 1)
    manager.set_address(A, "", NOW + 500.0, NOW + 30.0)
    manager.end(look_up, contacted=True)
    assert kinds(manager.lease(1, NOW + 30.0)) == [(A, RecordKind.PAGE)]
    manager.set_address(A, "", NOW + 40.0, NOW + 30.0)
    assert manager.scheduler.hosts[A].address_attempts == 0


def test_a_failed_robots_txt_is_fetched_again() -> None:
    manager = new_manager(Policy(robots=True), {A: 1})
    (robots,) = manager.lease(1, NOW)
    manager.end(robots, contacted=True)
    manager.robots_failed(A, NOW + 30.0)
    (again,) = manager.lease(1, NOW + 30.0)
    assert (again.record.kind, again.record.attempts) == (RecordKind.ROBOTS, 1)
    manager.set_facts(A, HostFacts(b"", 200, NOW + 30.0), NOW + 30.0)
    manager.end(again, contacted=True)
    assert manager.scheduler.hosts[A].robots_attempts == 0
    assert kinds(manager.lease(1, NOW + 30.0)) == [(A, RecordKind.PAGE)]


def test_robots_txt_may_lead_to_private_addresses_only_if_the_waiting_page_may() -> None:
    manager = new_manager(Policy(robots=True), {A: 1, B: 1})
    queue = manager._store.queues[B]  # type: ignore[attr-defined]
    queue[0] = replace(queue[0], guarded=True)
    assert {lease.record.host: lease.record.guarded for lease in manager.lease(5, NOW)} == {A: False, B: True}


def test_without_limits_per_address_no_address_is_looked_up() -> None:
    manager = new_manager(Policy(robots=False), {A: 1})
    manager.set_address(A, "10.0.0.1", NOW + 50.0, NOW)
    (lease,) = manager.lease(1, NOW)
    assert (lease.record.kind, lease.address) == (RecordKind.PAGE, "10.0.0.1")
    assert manager.scheduler.groups == {}


def test_an_unused_turn_is_returned_to_the_host_and_its_address() -> None:
    manager = new_manager(PER_IP, {A: 2, B: 1})
    for host in (A, B):
        manager.set_address(host, "10.0.0.1", NOW + 500.0, NOW)
    (lease,) = manager.lease(5, NOW)
    manager.end(lease, contacted=False)
    assert len(manager.lease(5, NOW)) == 1


def test_leases_expire_in_the_order_of_grant_or_renewal() -> None:
    manager = new_manager(Policy(robots=False, lease_s=60.0), {A: 3})
    first, second, third = (manager.lease(1, NOW + n)[0] for n in range(3))
    renewed = manager.renew(first, NOW + 10.0)
    assert renewed == first._replace(expires_at=NOW + 70.0)
    assert manager.overdue(NOW + 59.0) == []
    assert manager.overdue(NOW + 62.0) == [second, third]
    assert manager.overdue(NOW + 70.0) == [second, third, renewed]
    manager.end(first, contacted=True)
    assert manager.renew(first, NOW + 10.0) is None


def test_no_lease_lasts_longer_because_the_clock_was_set_back() -> None:
    manager = new_manager(Policy(robots=False, lease_s=60.0), {A: 2})
    (old,) = manager.lease(1, NOW)
    (young,) = manager.lease(1, NOW - 7200.0)
    late = manager.overdue(NOW - 7200.0 + 60.0)
    assert late == [old._replace(expires_at=NOW - 7140.0), young]


def test_no_turn_is_returned_after_the_clock_was_set_back() -> None:
    manager = new_manager(Policy(robots=False, delay_s=10.0), {A: 3})
    (old,) = manager.lease(1, NOW)
    assert manager.lease(1, NOW - 90.0) == []
    assert len(manager.lease(1, NOW - 80.0)) == 1
    assert len(manager.lease(1, NOW)) == 1
    manager.end(old, contacted=False)
    assert manager.scheduler.next_ready() is None
    manager.scheduler.add_work(manager.scheduler.hosts[A])
    assert manager.scheduler.next_ready() == NOW + 10.0
