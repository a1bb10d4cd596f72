"""Fifty attackers in two /24s against fifty honest nodes: they get into few tables, and lookups still succeed."""

from __future__ import annotations

import pytest

from tests.dht.sim.attackers import Attack
from tests.dht.sim.swarm import Scenario, Swarm

SEED = 7


@pytest.mark.parametrize("attack", Attack)
def test_attackers_hold_few_contacts_and_lookups_find_peers(attack: Attack):
    print(f"seed {SEED}")
    swarm = Swarm(SEED, Scenario(hours=0.5, attackers=50, attack=attack, lookups_per_minute=8.0))
    outcome = swarm.run()
    assert outcome.lookups >= 90
    assert outcome.found_part >= 0.95
    assert max(swarm.held_by_attackers()) <= 0.2


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("attack", Attack)
def test_attackers_that_flood_for_hours_hold_few_contacts_and_lookups_find_peers(attack: Attack, seed: int):
    swarm = Swarm(seed, Scenario(hours=3.0, attackers=50, attack=attack, attack_pause_s=0.5))
    outcome = swarm.run()
    assert outcome.found_part >= 0.95
    assert max(swarm.held_by_attackers()) <= 0.2
