"""How fast the sweep finds infohashes, compared with an ideal sweep that knows all nodes and uses the limits fully."""

from __future__ import annotations

import random

import pytest

from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.crawler.core.sampler_trust import TRIED_MIN, SamplerTrust
from lycosa.dht.crawler.core.sweep import Sweep
from tests.dht.sim.discovery import Discovery, KeySpace, Lie, OracleSweep, Population, bootstrap

SEED = 19
SMALL = Population(nodes=200, infohashes=20_000)
FULL = Population(nodes=2000, infohashes=1_000_000)
NEAR = 0.9
"""Minimum share of the ideal result that the sweep reaches."""


def discover(space: KeySpace, until: float, limits: NodeLimits | None = None) -> Discovery:
    sweep = Sweep(0.0)
    sweep.add(bootstrap(space, random.Random(SEED)))
    return Discovery(space, sweep, SEED, limits or NodeLimits(), trust=SamplerTrust()).run(until)


def ideal(space: KeySpace, until: float, limits: NodeLimits | None = None) -> Discovery:
    return Discovery(space, OracleSweep(space), SEED, limits or NodeLimits()).run(until)


def assert_near(found: Discovery, best: Discovery, minutes: tuple[int, ...]) -> None:
    shares = {each: (found.share_at(60 * each), best.share_at(60 * each)) for each in minutes}
    assert all(share >= NEAR * limit for share, limit in shares.values()), shares


@pytest.fixture(scope="module")
def space() -> KeySpace:
    print(f"seed {SEED}")
    return KeySpace(SMALL, random.Random(SEED))


@pytest.fixture(scope="module")
def small(space: KeySpace) -> Discovery:
    return discover(space, 7200.0)


def test_a_sweep_finds_nearly_as_many_infohashes_as_the_ideal_sweep(space: KeySpace, small: Discovery) -> None:
    assert_near(small, ideal(space, 7200.0), (2, 5, 10, 30, 60, 120))


def test_the_whole_key_space_is_covered(space: KeySpace, small: Discovery) -> None:
    missed = [each for each in space.answering if not small.asked[each.contact.endpoint]]
    assert len(missed) <= 0.01 * len(space.answering)


def test_the_position_does_not_pass_a_node_before_its_infohashes_have_arrived(small: Discovery) -> None:
    assert small.stale_positions == 0


def test_the_estimated_known_share_is_not_too_high(small: Discovery) -> None:
    for at, estimate in small.estimates:
        assert estimate <= small.share_at(at) + 0.05, at
    late = [(at, estimate) for at, estimate in small.estimates if at >= 3600.0]
    assert all(estimate >= 0.85 * small.share_at(at) for at, estimate in late)


def test_under_the_limits_of_a_home_line_the_sweep_is_near_the_ideal_too(space: KeySpace) -> None:
    """Here the limit decides: 60 new addresses a minute for 200 nodes."""
    narrow = [NodeLimits(new_addresses_per_minute=60) for _ in range(2)]
    assert_near(discover(space, 3600.0, narrow[0]), ideal(space, 3600.0, narrow[1]), (10, 30, 60))


@pytest.mark.parametrize("lie", Lie)
def test_the_sweep_is_near_the_ideal_even_if_a_tenth_of_the_nodes_lie(lie: Lie) -> None:
    print(f"seed {SEED}")
    space = KeySpace(Population(nodes=200, infohashes=20_000, liars=0.1, lie=lie), random.Random(SEED))
    found, best = discover(space, 3600.0), ideal(space, 3600.0)
    assert_near(found, best, (5, 10, 30, 60))
    liars = sum(each.lie is not None for each in space.nodes)
    assert found.fakes <= 12 * TRIED_MIN * liars
    to_liars = sum(found.asked[each.contact.endpoint] for each in space.nodes if each.lie is not None)
    assert to_liars <= 0.5 * found.asked.total()


@pytest.mark.prove
def test_the_sweep_is_near_the_ideal_for_a_million_infohashes_on_two_thousand_nodes() -> None:
    print(f"seed {SEED}")
    space = KeySpace(FULL, random.Random(SEED))
    until = 6 * 3600.0
    assert_near(discover(space, until), ideal(space, until), (5, 10, 30, 60, 120, 240, 360))
