"""Claims and leases of several workers on one Redis, in virtual time (C5, C6, F8).

Workers lease, their callbacks claim, hosts are throttled, blocked and move to other addresses, and workers die while
they have or wait for turns. The test keeps its own record of all starts and ends, and checks it against the
definitions: the gap between two starts, the number of simultaneous transfers, the order of the claims, and that
everything ends. A worker is not woken by what another one does, so each wait may last LATE_S longer.
"""

from __future__ import annotations

import asyncio
import heapq
import math
import random
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from secrets import token_hex
from typing import Any
from zlib import crc32

import pytest

from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
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
from tests.frontier.sim.test_fairness import numbered
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

SEEDS = range(40) if PROVE else range(1)
SLOW_S = 1.0
POLL_S, SEND_S, COMMIT_S = 0.1, 0.005, 0.5
SILENT_S = 2.0
LATE_S = 0.3
"""How much longer a wait may last: a worker polls again after a quarter of the duration of the transfer that it waits
for."""

Visit = Callable[["Crawl", Lease | None], Generator[list[str], None, None]]


@dataclass(repr=False, eq=False)
class Worker:
    """One process. It does nothing any more once `alive` is False."""

    number: int
    frontier: Any
    places: int
    busy: int = 0
    alive: bool = True
    is_sending: bool = False


@dataclass(repr=False, eq=False)
class Crawl(Transfers):
    """A crawl of several workers that share one clock."""

    url: str
    policy: Policy
    counts: dict[str, int]
    seed: int
    visit: Visit
    addresses: dict[str, str] = field(default_factory=dict)
    now: float = 1e6
    starts: dict[str, list[Start]] = field(default_factory=lambda: defaultdict(list))
    events: list[tuple[float, int, Worker | None, Callable[[], None]]] = field(default_factory=list)
    workers: list[Worker] = field(default_factory=list)
    number: int = 0
    outstanding: int = 0
    calls: int = 0

    def __post_init__(self) -> None:
        print(f"seed {self.seed}")
        self.name = token_hex(8)
        self.rng, self.slow_s = random.Random(self.seed), SLOW_S
        self.delays = dict.fromkeys(self.counts, self.policy.delay_s)
        self.loop = asyncio.new_event_loop()
        self.left = sum(self.counts.values())

    def do(self, coroutine: Any) -> Any:
        self.calls += 1
        return self.loop.run_until_complete(coroutine)

    def join(self, places: int = 8) -> Worker:
        name = f"w{len(self.workers)}"
        frontier = simulated_frontier(LooplessClient(self.url), self.name, self.policy, self.now, worker=name)
        worker = Worker(len(self.workers), self.do(frontier), places)
        if not self.workers:
            for host, address in self.addresses.items():
                self.do(worker.frontier.set_address(host, address, math.inf, self.now))
            records = [record(host, n) for host, count in self.counts.items() for n in range(count)]
            self.do(worker.frontier.push(records))
        self.workers.append(worker)
        self.after(self.rng.uniform(0, POLL_S), worker, lambda: self.poll(worker))
        self.after(COMMIT_S, worker, lambda: self.commit(worker))
        return worker

    def after(self, seconds: float, worker: Worker | None, callback: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, worker, callback))

    def poll(self, worker: Worker) -> None:
        if worker.busy < worker.places:
            for lease in self.do(worker.frontier.lease(worker.places - worker.busy, self.now)):
                self.start_page(worker, lease)
        self.after(POLL_S, worker, lambda: self.poll(worker))

    def commit(self, worker: Worker) -> None:
        worker.frontier.session.now = self.now
        self.do(worker.frontier.commit({}))
        self.after(COMMIT_S, worker, lambda: self.commit(worker))

    def send_soon(self, worker: Worker) -> None:
        """Send the end of a claim, as a worker on a real loop does."""
        if not worker.is_sending:
            worker.is_sending = True
            self.after(SEND_S, worker, lambda: self.send(worker))

    def send(self, worker: Worker) -> None:
        worker.is_sending = False
        worker.frontier.session.now = self.now
        self.do(worker.frontier.session.send())

    def start_page(self, worker: Worker, lease: Lease) -> None:
        worker.busy += 1
        end = self.transfer(worker, lease.record.host, self.now, claim=False)
        visit = self.visit(self, lease)
        self.after(end - self.now, worker, lambda: self.continue_visit(worker, lease, visit))

    def continue_visit(self, worker: Worker, lease: Lease, visit: Generator[list[str], None, None]) -> None:
        hosts = next(visit, None)
        if hosts is None:
            worker.busy -= 1
            self.left -= 1
            assert self.do(worker.frontier.ack(lease, "200", (), self.now))
            return
        waiting = len(hosts)

        def done() -> None:
            nonlocal waiting
            waiting -= 1
            if not waiting:
                self.continue_visit(worker, lease, visit)

        for host in hosts:
            Claimer(self, worker, host, lease, done)

    def transfer(self, worker: Worker, host: str, claimed_at: float, *, claim: bool) -> float:
        return self.record_start(host, self.now, claimed_at, claim=claim, worker=worker.number)

    def kill(self, worker: Worker) -> None:
        """Kill a worker.

        Its leases go back when the others notice; until then the hosts may still be busy with its requests.
        """
        worker.alive = False
        self.do(worker.frontier.session.calls.client.aclose())

    def run(self, until: float = math.inf) -> Crawl:
        while (self.left or self.outstanding) and self.events and self.events[0][0] <= until:
            self.now, _, worker, callback = heapq.heappop(self.events)
            if worker is None or worker.alive:
                callback()
        return self

    def assert_finished(self) -> None:
        """Check that everything was fetched, and that no claims are left in Redis."""
        assert (self.left, self.outstanding) == (0, 0), "a worker waits for ever"
        client = self.workers[-1].frontier.session.calls.client
        for worker in self.workers:
            if worker.alive:
                self.send(worker)
        names = [name.decode().rpartition(":")[2] for name in client.blocking.keys(f"lycosa:{{{self.name}.0}}:*")]
        remaining = [name for name in names if name.startswith(("claims", "claimed"))]
        assert not remaining

    def close(self) -> None:
        for worker in self.workers:
            if worker.alive:
                self.do(worker.frontier.close())
        self.loop.close()


class Claimer:
    """Handles a claim as an engine does."""

    def __init__(self, crawl: Crawl, worker: Worker, host: str, lease: Lease | None, done: Callable[[], None]) -> None:
        self.crawl, self.worker, self.host, self.done = crawl, worker, host, done
        self.claimed_at = crawl.now
        self.plan = self.polls = 0
        crawl.outstanding += 1
        self.claim = crawl.do(worker.frontier.claim(host, self.wake, crawl.now, lease))
        self.poll_in(0.0)

    def wake(self) -> None:
        self.poll_in(0.0)

    def poll_in(self, seconds: float) -> None:
        self.plan += 1
        number = self.plan
        self.crawl.after(seconds, self.worker, lambda: self.poll() if number == self.plan else None)

    def poll(self) -> None:
        crawl = self.crawl
        self.polls += 1
        retry_at = crawl.do(self.worker.frontier.try_start(self.claim, crawl.now))
        if not retry_at:
            self.plan += 1
            end = crawl.transfer(self.worker, self.host, self.claimed_at, claim=True)
            crawl.after(end - crawl.now, self.worker, self.end)
        elif not math.isinf(retry_at):
            assert retry_at > crawl.now
            self.poll_in(retry_at - crawl.now + TOLERANCE_S / 10)

    def end(self) -> None:
        crawl = self.crawl
        self.plan += 1
        crawl.outstanding -= 1
        crawl.do(self.worker.frontier.release_claim(self.claim, crawl.now))
        crawl.send_soon(self.worker)
        self.done()


def record(host: str, number: int) -> UrlRecord:
    return UrlRecord(1, crc32(f"{host}/{number}".encode()), f"{host}/{number}", host)


@contextmanager
def crawling(*arguments: Any, **fields: Any) -> Iterator[Crawl]:
    crawl = Crawl(*arguments, **fields)
    try:
        yield crawl
    finally:
        crawl.close()


@pytest.mark.parametrize("seed", range(5 * len(SEEDS)))
def test_crawl_stays_polite_and_ends_under_disturbances(redis, seed: int) -> None:
    rng = random.Random(seed)
    counts = numbered([rng.choice([0, 1, 5, 15]) for _ in range(5)])
    policy = Policy(
        robots=False,
        delay_s=rng.choice([0.0, 0.0, 0.5, 1.0]),
        concurrency_per_host=rng.choice([1, 1, 2, 4]),
        delay_per_ip_s=rng.choice([0.0, 0.0, 0.7]),
        concurrency_per_ip=rng.choice([0, 0, 1, 3]),
        lease_s=1e9,
    )
    addresses = {host: f"10.0.0.{rng.randrange(3)}" for host in counts} if policy.limits_addresses else {}
    with crawling(redis.url, policy, counts, seed, claim_at_random, addresses) as crawl:
        for _ in range(3):
            crawl.join(rng.choice([1, 4]))

        def disturb() -> None:
            worker, host = rng.choice(crawl.workers), rng.choice(list(counts))
            if rng.random() < 0.5:
                crawl.delays[host] = max(policy.delay_s, rng.choice([0.0, 0.3, 2.0]))
                crawl.do(worker.frontier.set_delay(host, crawl.delays[host], crawl.now))
            elif addresses and rng.random() < 0.5:
                addresses[host] = f"10.0.0.{rng.randrange(3)}"
                crawl.do(worker.frontier.set_address(host, addresses[host], math.inf, crawl.now))
            else:
                crawl.do(worker.frontier.block_host(host, crawl.now + rng.uniform(0, 5)))
            crawl.send(worker)

        for _ in range(10):
            crawl.after(rng.uniform(0, 20), None, disturb)
        crawl.run(crawl.now + 1000.0)
        crawl.assert_polite()
        crawl.assert_finished()


@pytest.mark.parametrize("seed", SEEDS)
def test_callbacks_that_claim_from_each_other_do_not_block_each_other(redis, seed: int) -> None:
    policy = Policy(robots=False, concurrency_per_host=1)
    with crawling(redis.url, policy, numbered([2] * 3), seed, claim_all_hosts) as crawl:
        for _ in range(3):
            crawl.join(1)
        crawl.run(crawl.now + 1000.0)
        crawl.assert_polite()
        crawl.assert_finished()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("delay", "places"), [(0.5, 8), (0.0, 1), (0.0, 3)])
def test_claims_are_first_come_first_served_and_precede_leases(redis, seed: int, delay: float, places: int) -> None:
    """This holds across all workers: with many records queued, a claim waits for the claims before it, and every ninth
    turn is a lease.
    """

    def claim_sometimes(crawl: Crawl, lease: Lease | None) -> Generator[list[str], None, None]:
        if crawl.rng.random() < 0.2:
            yield [BIG_HOST] * crawl.rng.choice([1, 4, 12])

    policy = Policy(robots=False, delay_s=delay, concurrency_per_host=places)
    with crawling(redis.url, policy, numbered([60]), seed, claim_sometimes) as crawl:
        for _ in range(3):
            crawl.join()
        crawl.run(crawl.now + 2000.0)
        crawl.assert_polite()
        crawl.assert_finished()
    claims = crawl.claims(BIG_HOST)
    latest = 0.0
    for start in claims:
        assert start.claimed_at >= latest - POLL_S - TOLERANCE_S, "a claim was overtaken"
        latest = max(latest, start.claimed_at)
    pace = delay or SLOW_S / places + LATE_S
    assert_bounded_waits(claims, pace, SLOW_S + LATE_S)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("delay", "places", "per_ip"), [(0.5, 8, 0), (0.0, 2, 0), (0.5, 2, 1)])
def test_leases_do_not_starve_behind_endless_claims(redis, seed: int, delay: float, places: int, per_ip: int) -> None:
    """There are always more claims than the host can take."""
    policy = Policy(robots=False, delay_s=delay, concurrency_per_host=places, concurrency_per_ip=per_ip)
    counts = numbered([5, 5])
    addresses = dict.fromkeys(counts, "10.0.0.1") if per_ip else {}
    with crawling(redis.url, policy, counts, seed, no_claims, addresses) as crawl:
        started = crawl.now
        for _ in range(2):
            crawl.join(4)

        def claim_again(worker: Worker, host: str) -> Callable[[], None]:
            return lambda: (
                Claimer(crawl, worker, host, None, claim_again(worker, host)) and None if crawl.left else None
            )

        for host in counts:
            for number in range(12):
                claim_again(crawl.workers[number % 2], host)()
        crawl.run(started + 500.0)
        crawl.assert_polite()
        crawl.assert_finished()
    pace = max(delay, SLOW_S / places + LATE_S) * (len(counts) if per_ip else 1)
    leases = sum(counts.values()) / (1 if per_ip else len(counts))
    assert crawl.now - started <= (leases + 2) * (CLAIMS_ROW + 1) * pace + 20 * SLOW_S


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_do_not_wait_for_leases_that_no_worker_wants(redis, seed: int) -> None:
    def claim_repeatedly(crawl: Crawl, lease: Lease | None) -> Generator[list[str], None, None]:
        for _ in range(40):
            yield [BIG_HOST]

    policy = Policy(robots=False, concurrency_per_host=1)
    with crawling(redis.url, policy, numbered([3]), seed, claim_repeatedly) as crawl:
        crawl.join(1)
        crawl.run(crawl.now + 500.0)
        crawl.assert_finished()
    starts = crawl.starts[BIG_HOST]
    assert len(starts) == 3 * 41
    assert sum(later.at - earlier.end for earlier, later in pairwise(starts)) < 0.1 + 3 * POLL_S


@pytest.mark.parametrize("seed", SEEDS)
def test_the_claims_of_a_dead_worker_end_with_it(redis, seed: int) -> None:
    """The worker dies during a transfer, with waiting claims. The others wait until it expires, no longer; the delay of
    the host is kept.
    """
    policy = Policy(robots=False, delay_s=0.5, concurrency_per_host=1)
    with crawling(redis.url, policy, numbered([3]), seed, no_claims) as crawl:
        dead, other = crawl.join(0), crawl.join()
        for _ in range(20):
            Claimer(crawl, dead, BIG_HOST, None, lambda: None)
        Claimer(crawl, other, BIG_HOST, None, lambda: None)
        started = crawl.now
        crawl.run(started + 0.2)
        assert [start.worker for start in crawl.starts[BIG_HOST]] == [0]
        crawl.kill(dead)
        died_at, crawl.outstanding = crawl.now, 1
        crawl.run(started + 100.0)
        crawl.assert_finished()
        first, second = crawl.starts[BIG_HOST][:2]
        assert (second.worker, second.claim) == (1, True)
        if first.end > died_at:
            assert died_at + SILENT_S - COMMIT_S <= second.at <= died_at + SILENT_S + 1.0 + LATE_S
        else:  # the dead worker has only waiting claims left: the next turn is kept for them for half a second
            assert started + 1.0 <= second.at <= started + 1.0 + LATE_S
        assert len(crawl.starts[BIG_HOST]) == 5


def test_an_unreported_start_of_a_dead_worker_counts_from_its_expiry(redis) -> None:
    """The claim of the worker was granted, but its start not reported: the next start is one delay after the expiry."""
    policy = Policy(robots=False, delay_s=5.0)
    with crawling(redis.url, policy, numbered([1]), 1, no_claims) as crawl:
        dead, other = crawl.join(0), crawl.join()
        client = other.frontier.session.calls.client.blocking
        client.hset(f"lycosa:{{{crawl.name}.0}}:m", "punctual", 1)
        claim = crawl.do(dead.frontier.claim(BIG_HOST, lambda: None, crawl.now))
        assert crawl.do(dead.frontier.try_start(claim, crawl.now)) == 0.0
        crawl.run(crawl.now + 4.0)
        crawl.kill(dead)
        died_at = crawl.now
        crawl.run(died_at + 30.0)
        assert crawl.starts[BIG_HOST][0].at >= died_at + SILENT_S - COMMIT_S + policy.delay_s


def test_a_claim_that_is_not_used_is_overtaken_and_queued_again(redis) -> None:
    """A worker whose event loop is blocked delays the host of its claims for half a second at most."""
    policy = Policy(robots=False, delay_s=1.0)
    with crawling(redis.url, policy, numbered([2]), 1, no_claims) as crawl:
        blocked, other = crawl.join(0), crawl.join(0)
        started = crawl.now
        claimers = [Claimer(crawl, blocked, BIG_HOST, None, lambda: None) for _ in range(3)]
        Claimer(crawl, other, BIG_HOST, None, lambda: None)
        crawl.run(started + 0.5)
        blocked.alive = False  # it is blocked, but sends heartbeats

        def send_heartbeat() -> None:
            blocked.frontier.session.now = crawl.now
            crawl.do(blocked.frontier.session.refresh())

        for number in range(20):
            crawl.after(number * 0.5, None, send_heartbeat)
        crawl.run(started + 3.4)
        assert [start.worker for start in crawl.starts[BIG_HOST]] == [0, 1]
        assert crawl.starts[BIG_HOST][1].at - started == pytest.approx(1.5, abs=0.6)
        for _ in range(2):
            Claimer(crawl, other, BIG_HOST, None, lambda: None)
        blocked.alive = True
        for claimer in claimers[1:]:
            claimer.wake()
        crawl.run(started + 9.0)
        assert [start.worker for start in crawl.starts[BIG_HOST]] == [0, 1, 1, 1, 0, 0]
        crawl.assert_polite()


def test_claims_are_polled_a_few_times_per_turn(redis) -> None:
    """Two workers with waiting claims on a host with a delay poll a few times for each turn."""
    policy = Policy(robots=False, delay_s=1.0)
    with crawling(redis.url, policy, numbered([1]), 1, no_claims) as crawl:
        workers = [crawl.join(0), crawl.join(0)]
        claimers = [Claimer(crawl, workers[n % 2], BIG_HOST, None, lambda: None) for n in range(20)]
        crawl.left = 0
        crawl.run(crawl.now + 100.0)
        assert len(crawl.starts[BIG_HOST]) == len(claimers)
        assert crawl.starts[BIG_HOST][-1].at - crawl.starts[BIG_HOST][0].at == pytest.approx(19.0, abs=0.5)
        assert sum(each.polls for each in claimers) <= 5 * len(claimers)


def test_an_unreported_start_does_not_delay_other_hosts_of_the_address(redis) -> None:
    """Seed 43 of `test_redis_history`: leases of the address waited for a claim that only its own host delayed."""
    policy = Policy(robots=False, delay_s=0.5, concurrency_per_ip=4)
    counts = numbered([0, 1])
    with crawling(redis.url, policy, counts, 1, no_claims, dict.fromkeys(counts, "10.0.0.1")) as crawl:
        frontier = crawl.join(0).frontier
        frontier.session.calls.client.blocking.hset(f"lycosa:{{{crawl.name}.0}}:m", "punctual", 1)
        first, second = (crawl.do(frontier.claim(BIG_HOST, lambda: None, crawl.now)) for _ in range(2))
        assert crawl.do(frontier.try_start(first, crawl.now)) == 0.0
        assert crawl.do(frontier.try_start(second, crawl.now + 1.0)) > crawl.now + 1.0
        assert len(crawl.do(frontier.lease(1, crawl.now + 1.0))) == 1
