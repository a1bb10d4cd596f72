"""Fairness of hosts on Redis in virtual time (C6, F8): the cases of `test_fairness`, with fewer hosts.

The order is not that of `frontier.core.fair_queue`, but the bounds are the same: a crawl takes little longer than
the ideal, and the last host of the queue has its turn.
"""

from __future__ import annotations

import asyncio
import random
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontier.core.fair_queue import FAIR_TURN, SHORT_S
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.sim.test_fairness import BIG_HOST, FAST_S, IDEAL_FACTOR, SLOW_S, Crawl, numbered, turn_bound
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

HOSTS = 3000 if PROVE else 300
SEEDS = range(5) if PROVE else range(1)


class RedisLeases:
    """The methods of a `LeaseManager` that `test_fairness` needs, for a frontier on Redis."""

    def __init__(self, url: str, policy: Policy, addresses: dict[str, str]) -> None:
        self.runner = asyncio.Runner()
        self.do = self.runner.run
        self.frontier = self.do(simulated_frontier(LooplessClient(url), token_hex(8), policy, 0.0))
        self.scheduler = self
        self.now = 0.0
        for host, address in addresses.items():
            self.do(self.frontier.set_address(host, address, 1e9, 0.0))

    def push(self, counts: dict[str, int], order: list[str]) -> None:
        numbers = iter(range(sum(counts.values())))
        records = [UrlRecord(1, next(numbers), f"{host}/", host) for host in order for _ in range(counts[host])]
        for first in range(0, len(records), 1000):
            self.do(self.frontier.push(records[first : first + 1000]))

    def lease(self, limit: int, now: float) -> list[Lease]:
        self.now = now
        leases: list[Lease] = self.do(self.frontier.lease(limit, now))
        return leases

    def next_ready(self) -> float | None:
        at: float | None = self.frontier.next_ready(self.now)
        return at

    def end(self, lease: Lease, *, contacted: bool) -> None:
        assert self.do(self.frontier.ack(lease, "200", (), self.now, contacted=contacted))


class RedisCrawl(Crawl):
    """A crawl on Redis."""

    def run_on(self, redis: Any) -> RedisCrawl:
        print(f"seed {self.seed}")
        self.rng = random.Random(self.seed)
        leases = RedisLeases(redis.url, self.policy, self.addresses)
        order = list(self.counts)
        self.rng.shuffle(order)
        leases.push(self.counts, order)
        self.run_until_empty(leases)  # type: ignore[arg-type]
        leases.do(leases.frontier.close())
        leases.runner.close()
        assert {key: len(self.transfers[key]) for key in self.counts} == self.counts
        self.assert_polite()
        print(f"{self.now / self.ideal():.3f} of the ideal {self.ideal():.0f}")
        return self


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("delay", [1.0, 0.0])
def test_huge_host_does_not_slow_down_small_ones(redis, seed: int, delay: float) -> None:
    policy, workers = Policy(robots=False, delay_s=delay), 32
    crawl = RedisCrawl(numbered([3 * HOSTS] + [1] * (HOSTS - 1)), policy, workers, seed).run_on(redis)
    assert crawl.now <= IDEAL_FACTOR * crawl.ideal() + SHORT_S
    last = max(crawl.finished_at(host) for host in crawl.counts if host != BIG_HOST)
    assert last <= turn_bound(HOSTS, workers, delay)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("workers", "exponent", "largest"), [(3, 1.0, HOSTS // 2), (12, 1.0, HOSTS), (8, 0.6, HOSTS // 10)]
)
def test_zipf_distributed_hosts_finish_in_near_ideal_time(
    redis, seed: int, workers: int, exponent: float, largest: int
) -> None:
    """The sum of all work, the largest host, or both limit how fast the crawl can be."""
    counts = numbered([max(1, int(largest / rank**exponent)) for rank in range(1, HOSTS + 1)])
    crawl = RedisCrawl(counts, Policy(robots=False, delay_s=1.0), workers, seed).run_on(redis)
    assert crawl.now <= IDEAL_FACTOR * crawl.ideal() + SHORT_S
    for host, count in counts.items():
        assert crawl.finished_at(host) <= count * turn_bound(HOSTS, workers, 1.0)


@pytest.mark.parametrize("seed", SEEDS)
def test_equal_hosts_finish_together(redis, seed: int) -> None:
    crawl = RedisCrawl(numbered([4] * HOSTS), Policy(robots=False, delay_s=2.0), 20, seed).run_on(redis)
    assert crawl.now <= IDEAL_FACTOR * crawl.ideal()
    assert min(map(crawl.finished_at, crawl.counts)) >= 0.7 * crawl.now


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("delay_per_ip", "places_per_ip"), [(0.5, 0), (0.0, 2)])
def test_hosts_that_share_addresses_finish_in_near_ideal_time(
    redis, seed: int, delay_per_ip: float, places_per_ip: int
) -> None:
    rng = random.Random(seed)
    counts = numbered([HOSTS // 4] + [rng.randint(1, 5) for _ in range(HOSTS - 1)])
    addresses = {host: f"10.0.0.{rng.randrange(10 if rng.random() < 0.6 else 100)}" for host in counts}
    policy = Policy(robots=False, delay_s=1.0, delay_per_ip_s=delay_per_ip, concurrency_per_ip=places_per_ip)
    crawl = RedisCrawl(counts, policy, 24, seed, addresses).run_on(redis)
    assert crawl.now <= IDEAL_FACTOR * crawl.ideal() + SHORT_S


@pytest.mark.parametrize("seed", SEEDS)
def test_worst_mix_of_large_and_tiny_hosts_costs_little(redis, seed: int) -> None:
    """The turns of tiny hosts delay the large ones by at most an eighth of the time."""
    workers, length, transfer_s = 12, HOSTS // 3, (FAST_S + SLOW_S) / 2
    turn_count = length * workers / transfer_s
    large, tiny = int(turn_count * (1 - 1 / 16) / length), int(turn_count / 16)
    crawl = RedisCrawl(
        numbered([length] * large + [1] * tiny), Policy(robots=False, delay_s=1.0), workers, seed
    ).run_on(redis)
    assert crawl.now <= FAIR_TURN / (FAIR_TURN - 1) * crawl.ideal() + SHORT_S
    assert crawl.now <= (1 + 1 / 20) * crawl.ideal() + SHORT_S + length * transfer_s / workers
