"""The pool beside two other ways to choose proxies, in virtual time (P1, P3, P4): goodput, and nobody is run down.

The real crawl, through real proxies, is bench/goodput.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.conftest import PROVE
from tests.sim.proxy_crawl import BackOff, Crawl, Crawled, InTurn, Ours, Way, World

WORLD = World() if PROVE else World(pages=8_000, to_s=10.0, from_s=2.0)
SEEDS = range(5) if PROVE else (1,)


def crawled(world: World, seed: int, way: type[Way], **policy: object) -> Crawled:
    crawl = Crawl(world, seed)
    given = {Ours: (crawl.proxies, seed), InTurn: (crawl.proxies,), BackOff: (crawl.proxies, seed)}[way]
    return crawl.run(way(*given, **policy))


@pytest.mark.parametrize("seed", SEEDS)
def test_twice_the_goodput_of_others(seed: int) -> None:
    ours, in_turn, back_off = (crawled(WORLD, seed, way) for way in (Ours, InTurn, BackOff))
    for name, each in (("ours", ours), ("in turn", in_turn), ("back-off", back_off)):
        print(f"{name:9} {each.goodput:6.1f} pages/s, {each.success:.1%} of {each.requests:,} requests")
    assert ours.pages == WORLD.pages, "no page is lost"
    assert ours.goodput >= 2 * in_turn.goodput
    assert ours.goodput >= 2 * back_off.goodput
    assert ours.success >= 0.95


def rates(found: Crawled, begin: float, end: float) -> Counter[tuple[str, str]]:
    """Return the requests a second of each pair of a proxy that was not lost, in this time."""
    sums: Counter[tuple[str, str]] = Counter()
    for (site, proxy, second), requests in found.rates.items():
        if proxy not in found.lost and begin <= second < end:
            sums[site, proxy] += requests
    return Counter({pair: requests / (end - begin) for pair, requests in sums.items()})


@pytest.mark.parametrize("workers", [64, 400])
def test_the_rate_of_the_others_does_not_rise(workers: int) -> None:
    """1,000 proxies, of which 300 are lost between 30 s and 60 s: few workers, or more than a site would stand."""
    world = World(
        pages=400_000 if PROVE else 60_000, proxies=1_000, workers=workers, most=1_000, missing=0.0, sites=2,
        killed=0.15, banned=0.15, from_s=15.0, to_s=30.0,
    )  # fmt: skip
    found = crawled(world, 7, Ours)
    before, after = rates(found, 5, 15), rates(found, 35, int(found.took_s) - 1)
    assert len(before) == len(after) == 2 * 700
    mean = (sum(after.values()) / len(after)) / (sum(before.values()) / len(before))
    print(f"{mean:.3f} of the rate before, {found.goodput:.0f} pages/s")
    assert 0.8 < mean <= 1.02


def test_without_the_guard_it_rises() -> None:
    """What the test before would see."""
    world = replace(WORLD, proxies=100, most=1_000, pages=8_000, from_s=5.0, to_s=10.0)
    found = crawled(world, 7, Ours, guarded=False)
    before, after = rates(found, 1, 5), rates(found, 20, int(found.took_s) - 1)
    assert sum(after.values()) / len(after) > 1.2 * sum(before.values()) / len(before)
