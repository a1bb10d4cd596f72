"""A network of nodes that come and go, with a fifth of all datagrams lost: an announced peer is found."""

from __future__ import annotations

import pytest

from lycosa.dht.core.events import Reachability
from tests.dht.sim.swarm import Outcome, Scenario, Swarm

SEED = 20


@pytest.fixture(scope="module")
def small() -> tuple[Swarm, Outcome]:
    print(f"seed {SEED}")
    swarm = Swarm(SEED, Scenario())
    return swarm, swarm.run()


def test_lookups_find_announced_peers(small: tuple[Swarm, Outcome]):
    _, outcome = small
    assert outcome.lookups > 300
    assert outcome.found_part >= 0.98


def test_tables_hold_the_closest_nodes_and_few_that_left(small: tuple[Swarm, Outcome]):
    swarm, _ = small
    assert swarm.neighbours_known() >= 0.8
    assert swarm.good_and_up() >= 0.8


def test_nodes_know_whether_they_can_be_reached(small: tuple[Swarm, Outcome]):
    swarm, _ = small
    old = [host for host in swarm.honest if swarm.network.now - host.since > 1800.0]
    right = [
        host.node.status(swarm.network.now).reachability
        is (Reachability.UNREACHABLE if host.behind_nat else Reachability.REACHABLE)
        for host in old
    ]
    assert sum(right) >= 0.9 * len(right)


def test_announces_are_confirmed_as_often_as_losses_allow(small: tuple[Swarm, Outcome]):
    """An announce and its answer arrive with probability 0.8 x 0.8.

    A few nodes leave before they answer. Tokens cause no further losses.
    """
    _, outcome = small
    assert outcome.asked > 7.5 * outcome.announces
    assert outcome.confirmed > 0.55 * outcome.asked


def test_lookups_find_announced_peers_in_a_network_on_ipv6():
    print(f"seed {SEED}")
    swarm = Swarm(SEED, Scenario(nodes=30, hours=0.5, ipv6=True, behind_nat=0.0, lookups_per_minute=8.0))
    outcome = swarm.run()
    assert outcome.lookups > 80
    assert outcome.found_part >= 0.98
    assert swarm.neighbours_known() >= 0.8


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(3))
def test_lookups_find_announced_peers_in_a_larger_network_for_six_hours(seed: int):
    swarm = Swarm(seed, Scenario(nodes=200, hours=6.0))
    outcome = swarm.run()
    assert outcome.found_part >= 0.98
    assert swarm.neighbours_known() >= 0.8
    assert swarm.good_and_up() >= 0.8


@pytest.mark.prove
def test_lookups_find_announced_peers_among_a_thousand_nodes_for_a_day():
    swarm = Swarm(1, Scenario(nodes=1000, hours=24.0, infohashes=100))
    outcome = swarm.run()
    assert outcome.found_part >= 0.98
    assert swarm.neighbours_known() >= 0.8
    assert swarm.good_and_up() >= 0.8
