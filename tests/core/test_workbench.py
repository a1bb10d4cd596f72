"""Politeness by construction (F8): whom to contact next, proved in virtual time."""

from __future__ import annotations

import heapq
import random
from itertools import pairwise

import pytest

from lycosa.core.frontier import Policy
from lycosa.core.workbench import Workbench


def bench(**fields: float) -> Workbench:
    return Workbench(Policy(**{"robots": False, **fields}))  # type: ignore[arg-type]


def test_nothing_to_do() -> None:
    work = bench()
    assert work.pick(10.0) is None
    assert work.next_ready() is None
    work.host("a")
    assert work.next_ready() is None


def test_blocked_after_it_was_offered() -> None:
    work = bench()
    host = work.host("a")
    work.found_work(host)
    work.block(host, 30.0)
    assert work.pick(29.0) is None
    assert work.next_ready() == 30.0
    assert work.pick(30.0) is host


def test_a_block_never_ends_sooner_than_a_longer_one() -> None:
    work = bench()
    host = work.host("a")
    work.found_work(host)
    work.block(host, 30.0)
    work.block(host, 20.0)
    assert work.next_ready() == 30.0


def test_a_crawl_delay_counts_from_when_it_is_learned_and_never_shortens_ours() -> None:
    work = bench(delay_s=2.0)
    host = work.host("a")
    work.set_delay(host, 5.0, 100.0)
    assert (host.delay_s, host.ready_at) == (5.0, 105.0)
    work.set_delay(host, 1.0, 100.0)
    assert host.delay_s == 2.0


def test_idle_hosts_are_forgotten_when_they_owe_no_pause() -> None:
    work = bench(delay_s=10.0)
    busy, resting = work.host("busy"), work.host("resting")
    for host in (busy, resting):
        work.found_work(host)
        assert work.pick(0.0) is host
        work.lent(host, 0.0 if host is busy else None)
        work.ended(host)
    work.forget_idle(9.9)
    assert set(work.hosts) == {"busy", "resting"}
    work.forget_idle(10.0)
    assert set(work.hosts) == {"busy"}


def test_a_host_that_got_work_again_is_not_forgotten() -> None:
    work = bench()
    host = work.host("a")
    work.found_work(host)
    work.pick(0.0)
    work.lent(host, None)
    work.ended(host)
    work.found_work(host)
    work.forget_idle(1.0)
    assert work.pick(1.0) is host


@pytest.mark.parametrize("seed", range(5))
def test_no_gap_below_the_delay_and_no_time_wasted(seed: int) -> None:
    """100 hosts, one with most of the URLs, transfers of random length: hours of virtual time."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    delay, places = 2.0, 2
    work = bench(delay_s=delay, concurrency_per_host=places)
    left = {f"h{n}": 2000 if n == 0 else chance.randint(1, 30) for n in range(100)}
    for key in left:
        work.found_work(work.host(key))
    starts: dict[str, list[float]] = {key: [] for key in left}
    running: list[tuple[float, int, str]] = []
    now, count = 0.0, 0
    while True:
        while (host := work.pick(now)) is not None:
            left[host.key] -= 1
            work.lent(host, 0.0 if left[host.key] else None)
            assert host.in_flight <= places
            starts[host.key].append(now)
            count += 1
            heapq.heappush(running, (now + chance.uniform(0.01, 3.0), count, host.key))
        times = [at for at in (work.next_ready(), running[0][0] if running else None) if at is not None]
        if not times:
            break
        now = min(times)
        while running and running[0][0] <= now:
            work.ended(work.host(heapq.heappop(running)[2]))
    assert not any(left.values())
    for times in starts.values():
        assert all(later - earlier >= delay for earlier, later in pairwise(times))
    # The largest host alone sets the pace: 2,000 turns of 2 s, and at most a transfer's length more.
    assert now <= 2000 * delay * 1.05
