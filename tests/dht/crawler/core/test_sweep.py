"""The sweep over simulated nodes, each of which names its neighbours."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.crawler.core.sweep import KEY_SPACE, Ask, Rest, Search, Sweep

SEED = random.randrange(10**6)


class Nodes:
    """Answers the steps of a sweep at once."""

    def __init__(self, count: int, seed: int, interval_s: int = 600) -> None:
        print(f"seed {seed}")
        chance = random.Random(seed)
        self.interval_s = interval_s
        self.contacts = [
            Contact(chance.randbytes(20), pack(f"20.{n >> 16}.{n >> 8 & 255}.{n & 255}", 6881)) for n in range(count)
        ]
        self.asked: Counter[bytes] = Counter()
        self.asked_at: dict[bytes, float] = {}
        self.searches = 0

    def closest(self, target: bytes) -> list[Contact]:
        key = int.from_bytes(target)
        return sorted(self.contacts, key=lambda each: int.from_bytes(each.id) ^ key)[:8]

    def run(
        self, sweep: Sweep, now: float, *, until: float, steps_max: int = 1_000_000, has_more: bool = False
    ) -> float:
        for _ in range(steps_max):
            step = sweep.next_step(now)
            if isinstance(step, Ask):
                last = self.asked_at.get(step.contact.endpoint, -1e9)
                assert now - last >= self.interval_s, "asked before its interval was over"
                self.asked_at[step.contact.endpoint] = now
                self.asked[step.contact.endpoint] += 1
                closer = self.closest(step.target)
                num = 100 if has_more else 20
                sweep.answered(step, closer, now, interval_s=self.interval_s, num=num, sampled=20, new=20)
            elif isinstance(step, Search):
                self.searches += 1
                sweep.searched(step.target, self.closest(step.target), now)
            else:
                assert isinstance(step, Rest)
                assert step.until > now
                now = step.until
                if now >= until:
                    return now
        return now


@pytest.mark.parametrize("count", [1, 3, 30, 500])
def test_a_sweep_asks_every_node_once_and_rests_for_its_interval(count: int) -> None:
    nodes = Nodes(count, SEED)
    sweep = Sweep(0.0)
    assert nodes.run(sweep, 0.0, until=600.0) == 600.0
    assert sweep.sweeps == 1
    assert nodes.asked == Counter({each.endpoint: 1 for each in nodes.contacts})
    nodes.run(sweep, 601.0, until=1200.0)
    assert nodes.asked == Counter({each.endpoint: 2 for each in nodes.contacts})


def test_a_node_that_has_more_is_asked_again_in_the_same_sweep_when_its_interval_is_over() -> None:
    nodes = Nodes(20, SEED, interval_s=30)
    sweep = Sweep(0.0)
    nodes.run(sweep, 0.0, until=299.0, has_more=True)
    assert min(nodes.asked.values()) >= 9


def test_a_sweep_goes_on_at_its_position() -> None:
    nodes = Nodes(300, SEED)
    first = Sweep(0.0)
    nodes.run(first, 0.0, until=0.0, steps_max=150)
    before = set(nodes.asked)
    assert 0.2 < first.coverage < 0.8
    second = Sweep(0.0, first.position)
    assert abs(second.coverage - first.coverage) < 1e-9
    nodes.asked_at.clear()
    nodes.run(second, 0.0, until=600.0)
    assert before | set(nodes.asked) == {each.endpoint for each in nodes.contacts}


def test_the_position_does_not_pass_a_node_that_has_not_answered() -> None:
    nodes = Nodes(50, SEED)
    sweep = Sweep(0.0)
    sweep.add(nodes.contacts, 0.0)
    steps = [sweep.next_step(0.0) for _ in range(5)]
    asked = [step for step in steps if isinstance(step, Ask)]
    lowest = min(int.from_bytes(each.id) for each in nodes.contacts)
    assert len(asked) == 5
    assert sweep.position == lowest >> 98
    for step in asked:
        sweep.failed(step, (), 0.0)
    assert sweep.position > lowest >> 98
    assert sweep.position << 98 <= KEY_SPACE


def test_without_nodes_it_searches_once_and_rests() -> None:
    nodes = Nodes(0, SEED)
    sweep = Sweep(0.0)
    nodes.run(sweep, 0.0, until=100.0)
    assert 5 <= nodes.searches <= 15
