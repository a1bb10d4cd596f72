"""The pool, compared with two other ways to choose proxies, in virtual time: goodput, and no cascading bans.

The real crawl, through real proxies, is bench/goodput.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.conftest import PROVE
from tests.proxies.sim.proxy_crawl import BackOff, Crawl, Crawled, InTurn, Ours, Way, World

WORLD = World()
SEEDS = range(5) if PROVE else (1,)
LOSING = World(
    pages=100_000 if PROVE else 16_000, proxies=500, most=1_000, missing=0.0, from_s=10.0, to_s=20.0, timeout_s=0.5
)  # fmt: skip
"""No proxy is banned for its rate here: the only effect is that of the loss of 30 % on the others."""


def crawled(world: World, seed: int, way: type[Way], **policy: object) -> Crawled:
    crawl = Crawl(world, seed)
    given = {Ours: (crawl.proxies, seed), InTurn: (crawl.proxies,), BackOff: (crawl.proxies, seed)}[way]
    return crawl.run(way(*given, **policy))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_pool_has_twice_the_goodput_of_the_others(seed: int) -> None:
    ours, in_turn, back_off = (crawled(WORLD, seed, way) for way in (Ours, InTurn, BackOff))
    for name, each in (("ours", ours), ("in turn", in_turn), ("back-off", back_off)):
        print(f"{name:9} {each.goodput:6.1f} pages/s, {each.success:.1%} of {each.requests:,} requests")
    assert ours.pages == WORLD.pages, "no page is lost"
    assert ours.goodput >= 2 * in_turn.goodput
    assert ours.goodput >= 2 * back_off.goodput
    assert ours.success >= 0.95


def rates(found: Crawled, begin: float, end: float) -> Counter[tuple[str, str]]:
    """Return the requests a second of each proxy and site that was not lost in this time."""
    sums: Counter[tuple[str, str]] = Counter()
    for (site, proxy, second), requests in found.rates.items():
        if proxy not in found.lost and begin <= second < end:
            sums[site, proxy] += requests
    return Counter({pair: requests / (end - begin) for pair, requests in sums.items()})


@pytest.mark.parametrize("workers", [64, pytest.param(400, marks=pytest.mark.prove)])
@pytest.mark.parametrize("guarded", [True, False])
def test_the_rate_of_the_remaining_proxies_does_not_rise(workers: int, *, guarded: bool) -> None:
    """Of 500 proxies 150 are lost: without the guard the others would be used a fifth more."""
    world = replace(LOSING, workers=workers, pages=LOSING.pages * workers // 64)
    found = crawled(world, 7, Ours, guarded=guarded)
    before, after = rates(found, 4, 10), rates(found, 23, int(found.took_s) - 1)
    assert len(before) == len(after) == 2 * 350
    ratio = (sum(after.values()) / len(after)) / (sum(before.values()) / len(before))
    print(f"{ratio:.3f} of the rate before, {found.goodput:.0f} pages/s")
    if guarded:
        assert 0.8 < ratio <= 1.05
    else:
        assert ratio > 1.2
