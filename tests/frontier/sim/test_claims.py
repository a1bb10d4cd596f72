"""Claims next to leases in virtual time (C5, F8): callbacks that fetch inline, on their own host and on others.

Workers lease and visit, callbacks claim one after the other or several at a time, hosts are blocked and throttled,
clocks are set back, addresses change. The test keeps its own record of all starts and ends, in true time, and checks
it against the definitions: the gap between two starts, the number of simultaneous transfers, the order of the claims,
and that everything ends.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from lycosa.frontier.core.claims import YIELD_S
from lycosa.frontier.core.leases import LeaseManager
from lycosa.frontier.core.model import Lease, RecordKind
from lycosa.frontier.core.scheduler import Claim
from lycosa.frontier.core.states import Policy
from tests.conftest import PROVE
from tests.frontier.sim.claiming import (
    BIG_HOST,
    CLAIMS_ROW,
    TOLERANCE_S,
    Start,
    Transfers,
    assert_bounded_waits,
    claim_all_hosts,
    claim_at_random,
    no_claims,
)
from tests.frontier.sim.test_fairness import Counted, numbered

SEEDS = range(400) if PROVE else range(16)
SLOW_S = 1.5
Visit = Callable[["Crawl", Lease], Generator[list[str], None, None]]
"""A callback: yields lists of hosts, and claims each list at once."""


@dataclass(repr=False)
class Crawl(Transfers):
    """A crawl whose clock shows `true + skew`."""

    policy: Policy
    counts: dict[str, int]
    workers: int
    seed: int
    visit: Visit
    addresses: dict[str, str] = field(default_factory=dict)
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    true: float = 0.0
    skew: float = 1e6
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    number: int = 0
    busy: int = 0
    outstanding: int = 0
    leasing: bool = True

    def __post_init__(self) -> None:
        self.rng, self.slow_s = random.Random(self.seed), SLOW_S
        self.delays = dict.fromkeys(self.counts, self.policy.delay_s)
        self.manager: LeaseManager[int] = LeaseManager(self.policy, Counted(self.counts), 0)
        self.left = sum(self.counts.values())
        scheduler = self.manager.scheduler
        scheduler.update_clock(self.now)
        for key, count in self.counts.items():
            scheduler.activate(key)
            if key in self.addresses:
                self.manager.set_address(key, self.addresses[key], math.inf, self.now)
            if count:
                scheduler.add_work(scheduler.activate(key), count=count)

    @property
    def now(self) -> float:
        return self.true + self.skew

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.true + seconds, self.number, do))

    def run(self, until: float = math.inf) -> Crawl:
        print(f"seed {self.seed}")
        polled_at = -1.0
        while True:
            if self.leasing:
                for lease in self.manager.lease(self.workers - self.busy, self.now):
                    self.lease(lease)
            ready = self.manager.scheduler.next_ready()
            if self.leasing and self.busy < self.workers and ready is not None:
                at = max(ready - self.skew, self.true) + TOLERANCE_S
                if at != polled_at:
                    self.after(at - self.true, lambda: None)
                    polled_at = at
            if not self.events or self.events[0][0] > until:
                return self
            self.true = self.events[0][0]
            while self.events and self.events[0][0] <= self.true:
                heapq.heappop(self.events)[2]()

    def lease(self, lease: Lease) -> None:
        assert lease.record.kind == RecordKind.PAGE
        self.busy += 1
        host = lease.record.host
        end = self.transfer(host, self.true, claim=False)
        visit = self.visit(self, lease)
        self.after(end - self.true, lambda: self.continue_visit(lease, visit))

    def continue_visit(self, lease: Lease, visit: Generator[list[str], None, None]) -> None:
        hosts = next(visit, None)
        if hosts is None:
            self.busy -= 1
            self.left -= 1
            assert self.manager.end(lease, contacted=True) is not None
            return
        waiting = len(hosts)

        def done() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self.continue_visit(lease, visit)

        for host in hosts:
            Claimer(self, host, lease, done)

    def transfer(self, host: str, claimed_at: float, *, claim: bool) -> float:
        return self.record_start(host, self.true, claimed_at, claim=claim)

    def assert_finished(self) -> None:
        """Check that everything was fetched, nothing waits, and hosts that only had claims are unloaded."""
        assert (self.left, self.busy, self.outstanding) == (0, 0, 0), "something waits forever"
        scheduler = self.manager.scheduler
        assert all(host.claims is None and host.in_flight == 0 for host in scheduler.hosts.values())
        assert all(not group.claiming_hosts and group.in_flight == 0 for group in scheduler.groups.values())
        scheduler.update_clock(self.now + 1e5)
        scheduler.forget_idle(self.now + 1e5)
        scheduler.forget_idle(self.now + 1e5)
        assert (scheduler.hosts, scheduler.groups) == ({}, {})


class Claimer:
    """Handles one claim as an engine does: polls it until its transfer may start, and releases it in the end."""

    def __init__(self, crawl: Crawl, host: str, lease: Lease | None, done: Callable[[], None]) -> None:
        self.crawl, self.host, self.done = crawl, host, done
        self.claimed_at = crawl.true
        self.polls = 0
        crawl.outstanding += 1
        self.claim: Claim = crawl.manager.claim(host, self.wake, lease, crawl.now)
        self.poll()

    def wake(self) -> None:
        self.poll_in(0.0)

    def poll_in(self, seconds: float) -> None:
        """Poll once after this time; earlier plans to poll are void."""
        self.polls += 1
        number = self.polls
        self.crawl.after(seconds, lambda: self.poll() if number == self.polls else None)

    def poll(self) -> None:
        crawl = self.crawl
        at = crawl.manager.try_start(self.claim, crawl.now)
        if not at:
            self.polls += 1
            end = crawl.transfer(self.host, self.claimed_at, claim=True)
            crawl.after(end - crawl.true, self.end)
        elif not math.isinf(at):
            assert at > crawl.now
            self.poll_in(at - crawl.now + TOLERANCE_S)

    def end(self) -> None:
        crawl = self.crawl
        self.polls += 1
        crawl.outstanding -= 1
        crawl.manager.release_claim(self.claim, crawl.now)
        crawl.manager.release_claim(self.claim, crawl.now)
        self.done()


@pytest.mark.parametrize("seed", SEEDS)
def test_crawl_stays_polite_and_ends_under_disturbances(seed: int) -> None:
    rng = random.Random(seed)
    counts = numbered([rng.choice([0, 1, 5, 40]) for _ in range(6)])
    policy = Policy(
        robots=False,
        delay_s=rng.choice([0.0, 0.0, 0.5, 2.0]),
        concurrency_per_host=rng.choice([1, 1, 2, 4]),
        delay_per_ip_s=rng.choice([0.0, 0.0, 0.7]),
        concurrency_per_ip=rng.choice([0, 0, 1, 3]),
        lease_s=1e9,
    )
    addresses = {host: f"10.0.0.{rng.randrange(3)}" for host in counts} if policy.limits_addresses else {}
    crawl = Crawl(policy, counts, rng.choice([1, 3, 16]), seed, claim_at_random, addresses)

    def disturb() -> None:
        host = rng.choice(list(counts))
        scheduler = crawl.manager.scheduler
        disturbance = rng.randrange(4 if addresses else 3)
        if disturbance == 0:
            scheduler.update_clock(crawl.now)
            crawl.delays[host] = max(policy.delay_s, rng.choice([0.0, 0.3, 3.0]))
            scheduler.throttle(scheduler.activate(host), crawl.delays[host])
            crawl.manager.unsaved_hosts.add(host)
        elif disturbance == 1:
            scheduler.update_clock(crawl.now)
            scheduler.block(scheduler.activate(host), crawl.now + rng.uniform(0, 20))
        elif disturbance == 3:
            scheduler.update_clock(crawl.now)
            addresses[host] = f"10.0.0.{rng.randrange(3)}"
            crawl.manager.set_address(host, addresses[host], math.inf, crawl.now)
        else:
            crawl.skew -= rng.choice([0.5, 30.0, 7200.0])

    for _ in range(30):
        crawl.after(rng.uniform(0, 100), disturb)
    crawl.run()
    crawl.assert_polite()
    crawl.assert_finished()


@pytest.mark.parametrize("seed", SEEDS)
def test_callbacks_that_claim_from_each_other_do_not_block_each_other(seed: int) -> None:
    """Each host allows one transfer at a time, and each callback claims on all other hosts and on its own host."""
    crawl = Crawl(Policy(robots=False, concurrency_per_host=1), numbered([5] * 4), 4, seed, claim_all_hosts).run()
    crawl.assert_polite()
    crawl.assert_finished()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("delay", "concurrency"), [(1.0, 8), (0.0, 1), (0.0, 3)])
def test_claims_are_first_come_first_served_and_precede_leases(seed: int, delay: float, concurrency: int) -> None:
    """With hundreds of records queued, a claim waits for the claims before it, and for one lease per eight claims."""

    def claim_sometimes(crawl: Crawl, lease: Lease) -> Generator[list[str], None, None]:
        if crawl.rng.random() < 0.1:
            yield [lease.record.host] * crawl.rng.choice([1, 4, 30])

    policy = Policy(robots=False, delay_s=delay, concurrency_per_host=concurrency)
    crawl = Crawl(policy, numbered([400]), 16, seed, claim_sometimes).run()
    crawl.assert_polite()
    crawl.assert_finished()
    claims = crawl.claims(BIG_HOST)
    assert [start.claimed_at for start in claims] == sorted(start.claimed_at for start in claims)
    pace = delay or SLOW_S / concurrency
    assert_bounded_waits(claims, pace, SLOW_S)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fields", [{"concurrency_per_ip": 1}, {"delay_per_ip_s": 1.0}], ids=str)
def test_claims_precede_leases_of_other_hosts_at_the_same_address(seed: int, fields: dict[str, float]) -> None:
    def claim_sometimes(crawl: Crawl, lease: Lease) -> Generator[list[str], None, None]:
        if crawl.rng.random() < 0.1:
            yield [BIG_HOST]

    counts = numbered([0, 100, 100])
    policy = Policy(robots=False, concurrency_per_host=4, **fields)  # type: ignore[arg-type]
    crawl = Crawl(policy, counts, 8, seed, claim_sometimes, dict.fromkeys(counts, "10.0.0.1")).run()
    crawl.assert_polite()
    crawl.assert_finished()
    claims = crawl.starts[BIG_HOST]
    for number, start in enumerate(claims):
        before = sum(earlier.at >= start.claimed_at for earlier in claims[:number])
        assert start.at - start.claimed_at <= (before + 2) * SLOW_S, f"{start} had {before} before it"


@pytest.mark.parametrize("seed", SEEDS[: len(SEEDS) // 4])
@pytest.mark.parametrize(("delay", "concurrency", "per_ip"), [(1.0, 8, 0), (0.0, 2, 0), (0.5, 2, 1), (0.0, 4, 2)])
def test_leases_do_not_starve_behind_endless_claims(seed: int, delay: float, concurrency: int, per_ip: int) -> None:
    """There are always more claims than the host can take."""
    policy = Policy(robots=False, delay_s=delay, concurrency_per_host=concurrency, concurrency_per_ip=per_ip)
    counts = numbered([20, 20])
    addresses = dict.fromkeys(counts, "10.0.0.1") if per_ip else {}
    crawl = Crawl(policy, counts, 4, seed, no_claims, addresses)

    def claim_again(host: str) -> Callable[[], None]:
        return lambda: Claimer(crawl, host, None, claim_again(host)) and None if crawl.left else None

    for host in counts:
        for _ in range(20):
            claim_again(host)()
    crawl.run(10_000.0)
    crawl.assert_polite()
    assert not crawl.left, "the leases starved"
    crawl.assert_finished()
    pace = max(delay / (len(counts) if per_ip else 1), SLOW_S / (per_ip / len(counts) if per_ip else concurrency))
    leases = sum(counts.values()) / (1 if per_ip else len(counts))
    assert crawl.true <= (leases + 2) * (CLAIMS_ROW + 1) * pace + 20 * SLOW_S


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_claims_do_not_wait_for_leases_that_no_worker_wants(seed: int) -> None:
    """The only worker is in a callback that claims; its host has work, but no worker is free for it."""

    def claim_repeatedly(crawl: Crawl, lease: Lease) -> Generator[list[str], None, None]:
        for _ in range(50):
            yield [lease.record.host]

    crawl = Crawl(Policy(robots=False, concurrency_per_host=1), numbered([3]), 1, seed, claim_repeatedly).run()
    crawl.assert_finished()
    starts = crawl.starts[BIG_HOST]
    assert sum(later.at - earlier.end for earlier, later in pairwise(starts)) < 0.1


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_claims_continue_when_no_more_leases_are_wanted(seed: int) -> None:
    """A closing crawl leases nothing, but its callbacks must be able to end."""

    def claim_repeatedly(crawl: Crawl, lease: Lease) -> Generator[list[str], None, None]:
        for _ in range(30):
            yield [lease.record.host]

    policy = Policy(robots=False, concurrency_per_host=1, lease_s=1e9)
    crawl = Crawl(policy, numbered([3]), 4, seed, claim_repeatedly)
    crawl.after(2.0, lambda: setattr(crawl, "leasing", False))
    crawl.run()
    assert (crawl.busy, crawl.outstanding) == (0, 0)
    assert crawl.true <= 3 * 31 * SLOW_S + (3 * 31 / CLAIMS_ROW + 1) * YIELD_S


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_block_set_while_a_claim_waits_delays_the_claim(seed: int) -> None:
    host = BIG_HOST
    crawl = Crawl(Policy(robots=False, delay_s=10.0), {host: 1}, 1, seed, no_claims)
    crawl.after(1.0, lambda: Claimer(crawl, host, None, lambda: None) and None)
    crawl.after(2.0, lambda: crawl.manager.scheduler.block(crawl.manager.scheduler.activate(host), crawl.now + 60.0))
    crawl.run()
    crawl.assert_finished()
    assert [round(start.at) for start in crawl.starts[host]] == [0, 62]


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_abandoned_claim_gives_way_to_the_next(seed: int) -> None:
    host = BIG_HOST
    crawl = Crawl(Policy(robots=False, concurrency_per_host=1), {host: 5}, 1, seed, no_claims)
    lost = [Claimer(crawl, host, None, lambda: None) for _ in range(3)]
    crawl.after(0.01, lost[2].end)
    crawl.after(0.02, lost[1].end)
    crawl.after(0.0, lambda: Claimer(crawl, host, None, lambda: None) and None)
    crawl.run()
    crawl.assert_finished()
    assert [start.claim for start in crawl.starts[host]] == [True, True, *[False] * 5]
