"""The pool, compared with two other strategies in virtual time: goodput, and no cascading bans.

bench/goodput.py crawls through real proxies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.conftest import PROVE
from tests.proxies.sim.proxy_crawl import BackOff, Crawl, PoolStrategy, RoundRobin, Scenario, SimulatedCrawl, Strategy

SCENARIO = Scenario()
SEEDS = range(5) if PROVE else (1,)
LOSING = Scenario(
    pages=100_000 if PROVE else 16_000, proxies=500, requests_max=1_000, missing=0.0, from_s=10.0, to_s=20.0,
    timeout_s=0.5,
)  # fmt: skip
"""No proxy is banned for its rate, so the loss of 30 % of the proxies is the only effect on the other proxies."""


def crawled(scenario: Scenario, seed: int, strategy: type[Strategy], **policy: object) -> SimulatedCrawl:
    crawl = Crawl(scenario, seed)
    arguments = {PoolStrategy: (crawl.proxies, seed), RoundRobin: (crawl.proxies,), BackOff: (crawl.proxies, seed)}[
        strategy
    ]
    return crawl.run(strategy(*arguments, **policy))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pool_has_twice_the_goodput_of_the_other_strategies(seed: int) -> None:
    ours, round_robin, back_off = (
        crawled(SCENARIO, seed, strategy) for strategy in (PoolStrategy, RoundRobin, BackOff)
    )
    for name, each in (("pool", ours), ("round robin", round_robin), ("back-off", back_off)):
        print(f"{name:11} {each.goodput:6.1f} pages/s, {each.success:.1%} of {each.requests:,} requests")
    assert ours.pages == SCENARIO.pages, "no page is lost"
    assert ours.goodput >= 2 * round_robin.goodput
    assert ours.goodput >= 2 * back_off.goodput
    assert ours.success >= 0.95


def rates(result: SimulatedCrawl, begin: float, end: float) -> Counter[tuple[str, str]]:
    """Return the requests per second of each site and proxy that was not lost, in this interval."""
    sums: Counter[tuple[str, str]] = Counter()
    for (site, proxy, second), requests in result.rates.items():
        if proxy not in result.lost and begin <= second < end:
            sums[site, proxy] += requests
    return Counter({pair: requests / (end - begin) for pair, requests in sums.items()})


@pytest.mark.parametrize("workers", [64, pytest.param(400, marks=pytest.mark.prove)])
@pytest.mark.parametrize("guarded", [True, False])
def test_only_the_guard_keeps_the_rate_of_the_remaining_proxies_from_rising(workers: int, *, guarded: bool) -> None:
    """150 of 500 proxies are lost: without the guard the other proxies are used at least a fifth more."""
    scenario = replace(LOSING, workers=workers, pages=LOSING.pages * workers // 64)
    result = crawled(scenario, 7, PoolStrategy, guarded=guarded)
    before, after = rates(result, 4, 10), rates(result, 23, int(result.took_s) - 1)
    assert len(before) == len(after) == 2 * 350
    ratio = (sum(after.values()) / len(after)) / (sum(before.values()) / len(before))
    print(f"{ratio:.3f} of the rate before, {result.goodput:.0f} pages/s")
    if guarded:
        assert 0.8 < ratio <= 1.05
    else:
        assert ratio > 1.2
