"""Auto-throttle (C2): Scrapy's rule by latency, our rule by errors, and their effect on servers in virtual time."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from lycosa.frontier.core.auto_throttle import HOSTS_MAX, REPORT_AGAIN_S, AutoThrottle, ThrottleSettings
from lycosa.frontier.core.leases import LeaseManager
from lycosa.frontier.core.model import Lease
from lycosa.frontier.core.states import Policy
from tests.conftest import PROVE
from tests.frontier.sim.test_fairness import Counted

HOST = "http://a.example:80"
PLAIN = ThrottleSettings(start_delay_s=4.0, max_delay_s=60.0)


def respond(throttle: AutoThrottle, latency_s: float, status: int = 200, at: float = 100.0, **more: float) -> object:
    return throttle.record_response(HOST, status, latency_s, at - latency_s, at, **more)


def test_the_delay_is_the_mean_of_the_old_one_and_the_latency() -> None:
    throttle = AutoThrottle(PLAIN)
    assert respond(throttle, 1.0) == 2.5
    assert respond(throttle, 1.0) == 1.75
    assert respond(throttle, 8.0) == 8.0, "a larger delay applies at once"
    assert respond(AutoThrottle(ThrottleSettings(4.0, target_concurrency=4.0)), 4.0) == 2.5


def test_only_a_200_lowers_the_delay() -> None:
    throttle = AutoThrottle(PLAIN)
    respond(throttle, 4.0)
    assert respond(throttle, 0.1, 404) is None
    assert respond(throttle, 0.1, 500) is None
    assert respond(throttle, 9.0, 500) == 9.0


def test_the_delay_stays_within_its_limits() -> None:
    throttle = AutoThrottle(ThrottleSettings(1.0, max_delay_s=10.0, min_delay_s=2.0))
    assert respond(throttle, 0.01) == 2.0
    assert respond(throttle, 99.0) == 10.0
    for number in range(10):
        throttle.record_failure(HOST, 200.0 + 100 * number)
    assert respond(throttle, 99.0, 429, 2000.0) == 10.0


def test_errors_double_the_delay_once_for_all_requests_in_flight() -> None:
    throttle = AutoThrottle(ThrottleSettings(1.0))
    delays = [throttle.record_response(HOST, 429, 0.5, 99.5 + n / 10, 100.0 + n / 10) for n in range(5)]
    assert delays == [2.0, None, None, None, None]
    assert throttle.record_response(HOST, 503, 0.5, 101.0, 101.5) == 4.0
    assert throttle.record_failure(HOST, 102.0) is None
    assert throttle.record_failure(HOST, 106.0) == 8.0


def test_an_error_gives_a_host_without_a_delay_the_minimum_back_off() -> None:
    throttle = AutoThrottle(ThrottleSettings(0.0))
    assert throttle.record_response(HOST, 429, 0.001, 1.0, 1.0) == 0.1


def test_good_responses_lower_the_back_off_in_steps() -> None:
    throttle = AutoThrottle(ThrottleSettings(0.1))
    throttle.record_response(HOST, 503, 0.1, 0.0, 100.0)
    assert throttle.record_response(HOST, 200, 0.1, 99.0, 101.0) is None, "it started before the error"
    delays = [throttle.record_response(HOST, 200, 0.1, 102.0 + n, 102.0 + n) or 0.0 for n in range(200)]
    assert delays[0] == pytest.approx(0.2 * 15 / 16)
    falling = delays[:10]
    assert all(later < earlier for earlier, later in pairwise(falling) if later)
    assert throttle.record_response(HOST, 200, 0.1, 400.0, 400.0) == pytest.approx(0.1)


def test_a_retry_after_applies_once() -> None:
    throttle = AutoThrottle(ThrottleSettings(1.0))
    assert respond(throttle, 0.5, 429, retry_after_s=300.0) == 300.0
    assert respond(throttle, 0.5, 200, 400.0) == pytest.approx(2.0 * 15 / 16)


def test_an_unchanged_delay_is_reported_again_after_a_while() -> None:
    throttle = AutoThrottle(ThrottleSettings(1.0))
    assert respond(throttle, 1.0, 200, 100.0) == 1.0
    assert respond(throttle, 1.0, 200, 101.0) is None
    assert respond(throttle, 1.0, 200, 100.0 + REPORT_AGAIN_S) == 1.0


def test_the_number_of_hosts_is_bounded() -> None:
    throttle = AutoThrottle(PLAIN)
    for number in range(HOSTS_MAX + 100):
        throttle.record_response(f"http://h{number}.example:80", 200, 1.0, 0.0, 1.0)
        throttle.record_response(HOST, 200, 1.0, 0.0, 1.0)
    assert len(throttle._hosts) == HOSTS_MAX
    assert throttle.record_response(HOST, 200, 1.0, 0.0, 1.0) is None
    assert throttle.record_response("http://h0.example:80", 200, 1.0, 0.0, 1.0) == 2.5


SEEDS = range(20) if PROVE else range(2)
Serve = Callable[["Crawl"], tuple[int, float]]


@dataclass(repr=False)
class Crawl:
    """Workers, a frontier and a host that responds as `serve` returns, in virtual time."""

    serve: Serve
    settings: ThrottleSettings
    seed: int
    workers: int = 64
    now: float = 1000.0
    in_flight: int = 0
    served: list[tuple[float, int]] = field(default_factory=list)
    busy_s: float = 0.0

    def run(self, end: float, settled: float) -> Crawl:
        """Crawl until the time `end`. `busy_s` sums up the time of requests in flight from `settled` on."""
        print(f"seed {self.seed}")
        self.rng = random.Random(self.seed)
        throttle = AutoThrottle(self.settings)
        policy = Policy(robots=False, concurrency_per_host=self.workers, start_delay_s=self.settings.start_delay_s)
        manager: LeaseManager[int] = LeaseManager(policy, Counted({HOST: 1_000_000}), 0)
        scheduler = manager.scheduler
        scheduler.update_clock(self.now)
        scheduler.add_work(scheduler.activate(HOST), count=1_000_000)
        running: list[tuple[float, int, Lease, int, float, float]] = []
        while self.now < end:
            for lease in manager.lease(self.workers - len(running), self.now):
                self.in_flight += 1
                status, latency = self.serve(self)
                self.served.append((self.now, status))
                heapq.heappush(running, (self.now + latency, lease.token, lease, status, latency, self.now))
            ready = scheduler.next_ready()
            times = [running[0][0]] if running else []
            times += [ready] if ready is not None and len(running) < self.workers else []
            if self.now >= settled:
                self.busy_s += self.in_flight * (min(times) - self.now)
            self.now = max(self.now, min(times))
            while running and running[0][0] <= self.now:
                _, _, lease, status, latency, started_at = heapq.heappop(running)
                self.in_flight -= 1
                delay = throttle.record_response(HOST, status, latency, started_at, self.now)
                scheduler.update_clock(self.now)
                if delay is not None:
                    scheduler.throttle(scheduler.activate(HOST), delay)
                manager.end(lease, contacted=True)
        return self

    def count(self, since: float, until: float, status: int | None = None) -> int:
        return sum(since <= at < until and status in (None, served) for at, served in self.served)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("target", [1.0, 3.0, 8.0])
def test_the_delay_converges_to_the_target_concurrency(seed: int, target: float) -> None:
    """A server that handles four requests at a time; with more, each takes longer."""

    def shared(crawl: Crawl) -> tuple[int, float]:
        return 200, crawl.rng.uniform(0.4, 0.6) * max(1.0, crawl.in_flight / 4)

    crawl = Crawl(shared, ThrottleSettings(5.0, target_concurrency=target), seed).run(1700.0, 1200.0)
    assert target * 0.75 <= crawl.busy_s / 500.0 <= target * 1.25


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("rate", [0.5, 4.0, 20.0])
def test_the_delay_finds_the_rate_that_a_host_allows(seed: int, rate: float) -> None:
    """A host that responds at once, with 429 above its rate."""
    tokens, at = 5.0, 1000.0

    def limited(crawl: Crawl) -> tuple[int, float]:
        nonlocal tokens, at
        tokens, at = min(5.0, tokens + (crawl.now - at) * rate), crawl.now
        if tokens < 1.0:
            return 429, 0.01
        tokens -= 1.0
        return 200, 0.02

    crawl = Crawl(limited, ThrottleSettings(1.0), seed).run(1600.0, 1600.0)
    good, bad = crawl.count(1200.0, 1600.0, 200), crawl.count(1200.0, 1600.0, 429)
    assert good >= rate * 400.0 * 0.5
    assert bad <= (good + bad) * 0.15


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_run_of_429_is_waited_out(seed: int) -> None:
    def stormy(crawl: Crawl) -> tuple[int, float]:
        return (429 if 1500.0 <= crawl.now < 1900.0 else 200), crawl.rng.uniform(0.05, 0.15)

    crawl = Crawl(stormy, ThrottleSettings(1.0, max_delay_s=60.0), seed).run(5000.0, 4900.0)
    assert crawl.count(1400.0, 1500.0) >= 500
    assert crawl.count(1502.0, 1900.0) <= 8 + 400 / 60
    assert crawl.count(4900.0, 5000.0) >= 500, "the back-off ends"
