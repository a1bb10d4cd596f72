"""The host scheduler (F8): politeness and order, in virtual time."""

from __future__ import annotations

import heapq
import random
from itertools import pairwise

import pytest

from lycosa.frontier.core.scheduler import PAUSE_MAX_S, HostScheduler, SavedTurn
from lycosa.frontier.core.states import Policy


def new_scheduler(**fields: float) -> HostScheduler:
    return HostScheduler(Policy(**{"robots": False, **fields}))  # type: ignore[arg-type]


def test_an_empty_scheduler() -> None:
    scheduler = new_scheduler()
    assert scheduler.pick(10.0) is None
    assert scheduler.next_ready() is None
    scheduler.activate("a")
    assert scheduler.next_ready() is None


def test_a_ready_host_can_be_blocked() -> None:
    scheduler = new_scheduler()
    host = scheduler.activate("a")
    scheduler.add_work(host)
    scheduler.block(host, 30.0)
    assert scheduler.pick(29.0) is None
    assert scheduler.next_ready() == 30.0
    assert scheduler.pick(30.0) is host


def test_a_shorter_block_does_not_shorten_a_longer_one() -> None:
    scheduler = new_scheduler()
    host = scheduler.activate("a")
    scheduler.add_work(host)
    scheduler.block(host, 30.0)
    scheduler.block(host, 20.0)
    assert scheduler.next_ready() == 30.0


def test_a_crawl_delay_counts_from_now_and_never_shortens_our_delay() -> None:
    scheduler = new_scheduler(delay_s=2.0)
    host = scheduler.activate("a")
    scheduler.set_delay(host, 5.0, 100.0)
    assert (host.delay_s, host.ready_at) == (5.0, 105.0)
    scheduler.set_delay(host, 1.0, 100.0)
    assert host.delay_s == 2.0


def test_a_crawl_delay_applies_between_all_starts() -> None:
    scheduler = new_scheduler()
    host = scheduler.activate("a")
    scheduler.set_delay(host, 5.0, 100.0)
    scheduler.add_work(host, count=3)
    for at in (105.0, 110.0, 115.0):
        assert scheduler.pick(at - 0.1) is None
        assert scheduler.pick(at) is host
        scheduler.start(host, 0.0)


def test_the_hosts_of_an_address_share_its_limits() -> None:
    scheduler = new_scheduler(concurrency_per_ip=2, delay_per_ip_s=1.0)
    hosts = [scheduler.activate(key) for key in "abc"]
    for host in hosts:
        scheduler.set_address(host, "10.0.0.1", 1000.0, 0.0)
        scheduler.add_work(host, count=3)
    for at, host in ((0.0, hosts[0]), (1.0, hosts[1])):
        assert scheduler.next_ready() in (0.0, at)
        assert scheduler.pick(at) is host
        scheduler.start(host, 0.0)
        assert scheduler.pick(at) is None
    assert scheduler.next_ready() is None
    assert scheduler.pick(9.0) is None, "the address has no free slot"
    scheduler.finish(hosts[0], scheduler.groups["10.0.0.1"])
    assert scheduler.pick(9.0) is hosts[2], "first come, first served"


def test_transfers_in_flight_count_for_the_address_they_started_at() -> None:
    scheduler = new_scheduler(concurrency_per_ip=1)
    host, other = scheduler.activate("a"), scheduler.activate("b")
    for one in (host, other):
        scheduler.set_address(one, "10.0.0.1", 1000.0, 0.0)
        scheduler.add_work(one, count=5)
    assert scheduler.pick(0.0) is host
    scheduler.start(host, 0.0)
    old = host.group
    assert scheduler.pick(0.0) is None
    scheduler.set_address(host, "10.0.0.2", 1000.0, 0.0)
    assert scheduler.pick(0.0) is host
    scheduler.start(host, 0.0)
    assert scheduler.pick(0.0) is None
    scheduler.finish(host, old)
    assert scheduler.pick(0.0) is other
    scheduler.start(other, 0.0)
    scheduler.set_address(host, "", 1000.0, 0.0)
    assert scheduler.pick(0.0) is host
    assert set(scheduler.groups) == {"10.0.0.1", "10.0.0.2"}


def test_an_idle_address_is_forgotten_after_its_pause() -> None:
    scheduler = new_scheduler(delay_per_ip_s=10.0)
    host = scheduler.activate("a")
    scheduler.set_address(host, "10.0.0.1", 1000.0, 0.0)
    scheduler.add_work(host)
    assert scheduler.pick(0.0) is host
    scheduler.start(host, None)
    scheduler.finish(host, host.group)
    scheduler.forget_idle(9.0)
    assert (list(scheduler.hosts), list(scheduler.groups)) == ([], ["10.0.0.1"])
    scheduler.forget_idle(10.0)
    assert scheduler.groups == {}


def test_an_undone_start_returns_the_turn_but_not_before_a_block_ends() -> None:
    scheduler = new_scheduler(delay_s=10.0)
    host = scheduler.activate("a")
    scheduler.add_work(host, count=5)
    assert scheduler.pick(0.0) is host
    scheduler.start(host, 0.0)
    scheduler.block(host, 4.0)
    scheduler.undo_start(host, None, SavedTurn(0.0, 10.0, 0.0, 0.0))
    scheduler.finish(host)
    assert scheduler.next_ready() == 4.0
    assert scheduler.pick(4.0) is host
    scheduler.start(host, 0.0)
    scheduler.undo_start(host, None, SavedTurn(0.0, 10.0, 0.0, 0.0))
    assert scheduler.next_ready() == 14.0, "a later start counts"


def test_the_last_start_of_a_host_counts_for_its_first_known_address() -> None:
    """The start was in an earlier process, or before the address of the host was known."""
    scheduler = new_scheduler(delay_per_ip_s=10.0)
    old, new = scheduler.activate("old"), scheduler.activate("new")
    scheduler.add_work(new)
    scheduler.set_address(new, "10.0.0.1", 1000.0, 100.0)
    assert scheduler.pick(100.0) is new
    scheduler.start(new, None)
    scheduler.add_work(old)
    scheduler.restore(old, 98.0, 0.0)
    scheduler.set_address(old, "10.0.0.1", 1000.0, 100.0)
    scheduler.undo_start(new, new.group, SavedTurn(0.0, 0.0, 0.0, 110.0))
    scheduler.finish(new, new.group)
    assert scheduler.next_ready() == 108.0


def test_setting_the_clock_back_keeps_the_length_of_pauses() -> None:
    scheduler = new_scheduler(delay_s=10.0)
    paused, blocked, fresh = (scheduler.activate(key) for key in "abc")
    for host in (paused, blocked, fresh):
        scheduler.add_work(host, count=2)
    scheduler.block(blocked, 10_030.0)
    assert scheduler.pick(10_000.0) is paused
    scheduler.start(paused, 0.0)
    assert scheduler.pick(10_002.0) is fresh
    scheduler.block(fresh, 1_000.0 + 50.0)  # computed from the new time
    assert scheduler.pick(1_000.0) is None
    assert (paused.ready_at, blocked.ready_at, fresh.ready_at) == (1_008.0, 1_028.0, 1_050.0)
    assert fresh.blocked_until == 1_050.0
    assert scheduler.pick(1_008.0) is paused
    scheduler.block(blocked, 4_000.0)
    scheduler.update_clock(0.0)
    assert blocked.ready_at == PAUSE_MAX_S, "it is unknown from which clock the block was computed"


def test_setting_the_clock_back_moves_the_hosts_of_an_address_too() -> None:
    scheduler = new_scheduler(delay_s=10.0, concurrency_per_ip=2)
    hosts = [scheduler.activate(key) for key in "abc"]
    for host in hosts:
        scheduler.set_address(host, "10.0.0.1", 20_000.0, 0.0)
        scheduler.add_work(host, count=2)
    for at, host in zip((10_000.0, 10_001.0), hosts, strict=False):
        assert scheduler.pick(at) is host
        scheduler.start(host, 0.0)
    scheduler.finish(hosts[0], hosts[0].group)
    assert scheduler.pick(10_002.0) is hosts[2]
    scheduler.start(hosts[2], None)
    scheduler.finish(hosts[1], hosts[1].group)
    assert scheduler.pick(1_002.0) is None
    assert scheduler.next_ready() == 1_010.0
    assert scheduler.pick(1_010.0) is hosts[0]


def test_an_address_has_the_rank_of_its_oldest_work() -> None:
    scheduler = new_scheduler(concurrency_per_ip=5)
    first, second, lone = (scheduler.activate(key) for key in "abc")
    for host in (first, second):
        scheduler.set_address(host, "10.0.0.1", 1000.0, 0.0)
    scheduler.add_work(second, 9.0)
    scheduler.add_work(lone, 5.0, 2)
    assert scheduler.pick(0.0) is lone
    scheduler.add_work(first, 0.0)
    assert scheduler.pick(0.0) is first
    scheduler.start(first, None)
    assert scheduler.pick(0.0) is lone
    scheduler.block(lone, 5.0)
    assert scheduler.pick(0.0) is second


def test_a_ready_address_also_waits_for_its_older_work() -> None:
    scheduler = new_scheduler(concurrency_per_ip=5)
    newer, older, lone = (scheduler.activate(key) for key in "abc")
    for host in (newer, older):
        scheduler.set_address(host, "10.0.0.1", 1000.0, 0.0)
    scheduler.add_work(newer, 9.0)
    scheduler.add_work(lone, 5.0)
    scheduler.block(older, 10.0)
    scheduler.add_work(older, 0.0)
    assert scheduler.pick(9.0) is lone
    assert scheduler.pick(10.0) is older


def test_a_ready_host_waits_for_its_address() -> None:
    scheduler = new_scheduler(delay_per_ip_s=10.0)
    first, second = scheduler.activate("a"), scheduler.activate("b")
    for host in (first, second):
        scheduler.set_address(host, "10.0.0.1", 1000.0, 0.0)
    scheduler.add_work(first)
    assert scheduler.pick(100.0) is first
    scheduler.start(first, None)
    scheduler.block(second, 105.0)
    scheduler.add_work(second)
    assert scheduler.next_ready() == 110.0
    assert scheduler.pick(109.0) is None
    assert scheduler.pick(110.0) is second


def test_a_host_with_only_newer_work_left_yields_to_older_work() -> None:
    scheduler = new_scheduler()
    done, other = scheduler.activate("a"), scheduler.activate("b")
    scheduler.add_work(done, 0.0, 2)
    assert scheduler.pick(0.0) is done
    scheduler.add_work(other, 5.0)
    scheduler.start(done, 9.0)
    assert scheduler.pick(0.0) is other


def test_a_ready_host_moves_ahead_when_it_gets_more_work() -> None:
    scheduler = new_scheduler(delay_s=1.0)
    small, large = scheduler.activate("a"), scheduler.activate("b")
    for host in (small, large):
        scheduler.add_work(host, count=20)
    assert scheduler.pick(0.0) is small
    for _ in range(20):
        scheduler.add_work(large)
    assert scheduler.pick(0.0) is large


def test_an_address_with_a_transfer_in_flight_is_not_forgotten() -> None:
    scheduler = new_scheduler(concurrency_per_ip=1)
    moved, new = scheduler.activate("a"), scheduler.activate("b")
    scheduler.set_address(moved, "10.0.0.1", 1000.0, 0.0)
    scheduler.add_work(moved, count=2)
    assert scheduler.pick(0.0) is moved
    scheduler.start(moved, None)
    scheduler.set_address(moved, "10.0.0.2", 1000.0, 0.0)
    scheduler.forget_idle(5.0)
    scheduler.add_work(new)
    scheduler.set_address(new, "10.0.0.1", 1000.0, 5.0)
    assert scheduler.pick(5.0) is None
    scheduler.finish(moved, scheduler.groups["10.0.0.1"])
    assert scheduler.pick(5.0) is new


def test_a_slightly_earlier_time_changes_nothing() -> None:
    scheduler = new_scheduler(delay_s=10.0)
    host = scheduler.activate("a")
    scheduler.add_work(host, count=2)
    assert scheduler.pick(100.0) is host
    scheduler.start(host, 0.0)
    scheduler.update_clock(99.5)
    assert host.ready_at == 110.0


def test_idle_hosts_are_forgotten_after_their_pause() -> None:
    scheduler = new_scheduler(delay_s=10.0)
    busy, idle = scheduler.activate("busy"), scheduler.activate("idle")
    for host in (busy, idle):
        scheduler.add_work(host)
        assert scheduler.pick(0.0) is host
        scheduler.start(host, 0.0 if host is busy else None)
        scheduler.finish(host)
    scheduler.forget_idle(9.9)
    assert set(scheduler.hosts) == {"busy", "idle"}
    scheduler.forget_idle(10.0)
    assert set(scheduler.hosts) == {"busy"}


def test_a_host_with_new_work_is_not_forgotten() -> None:
    scheduler = new_scheduler()
    host = scheduler.activate("a")
    scheduler.add_work(host)
    scheduler.pick(0.0)
    scheduler.start(host, None)
    scheduler.finish(host)
    scheduler.add_work(host)
    scheduler.forget_idle(1.0)
    assert scheduler.pick(1.0) is host


@pytest.mark.parametrize("seed", range(5))
def test_gaps_are_never_below_the_delay_and_no_time_is_wasted(seed: int) -> None:
    """Crawl 100 hosts, one with most of the URLs, by transfers of random length, for over an hour of virtual time."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    delay, places = 2.0, 2
    scheduler = new_scheduler(delay_s=delay, concurrency_per_host=places)
    remaining = {f"h{n}": 2000 if n == 0 else rng.randint(1, 30) for n in range(100)}
    for key in remaining:
        scheduler.add_work(scheduler.activate(key))
    starts: dict[str, list[float]] = {key: [] for key in remaining}
    running: list[tuple[float, int, str]] = []
    now, count = 0.0, 0
    while True:
        while (host := scheduler.pick(now)) is not None:
            remaining[host.key] -= 1
            scheduler.start(host, 0.0 if remaining[host.key] else None)
            assert host.in_flight <= places
            starts[host.key].append(now)
            count += 1
            heapq.heappush(running, (now + rng.uniform(0.01, 3.0), count, host.key))
        times = [at for at in (scheduler.next_ready(), running[0][0] if running else None) if at is not None]
        if not times:
            break
        now = min(times)
        while running and running[0][0] <= now:
            scheduler.finish(scheduler.activate(heapq.heappop(running)[2]))
    assert not any(remaining.values())
    for times in starts.values():
        assert all(later - earlier >= delay for earlier, later in pairwise(times))
    # The largest host determines the duration: 2,000 turns of 2 s, plus at most one transfer.
    assert now <= 2000 * delay * 1.05
