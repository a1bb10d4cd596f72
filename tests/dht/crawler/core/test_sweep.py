"""The sweep over simulated nodes, each of which returns its neighbours."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.limits import QUERIES_BURST
from lycosa.dht.crawler.core.lane import KEY_BITS, KEY_SPACE, lanes
from lycosa.dht.crawler.core.sweep import (
    AGAIN_MIN_S,
    CLOSER_MAX,
    LANES_BITS,
    POSITION_BITS,
    PROGRESS_BITS,
    RETRY_S,
    SWEEP_MIN_S,
    Ask,
    Rest,
    Search,
    Sweep,
)

SEED = random.randrange(10**6)


class Nodes:
    """Answers the steps of a sweep at once. With nodes at equal distances, no gap needs a lookup."""

    def __init__(self, count: int, seed: int, interval_s: int = 600, *, equal_distances: bool = False) -> None:
        print(f"seed {seed}")
        chance = random.Random(seed)
        self.interval_s = interval_s
        self.contacts = []
        for n in range(count):
            key = n * (KEY_SPACE // count) if equal_distances else chance.randrange(KEY_SPACE)
            endpoint = pack(f"20.{n >> 16}.{n >> 8 & 255}.{n & 255}", 6881)
            self.contacts.append(Contact(key.to_bytes(ID_BYTES), endpoint))
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
                sweep.searched(step.target, self.closest(step.target))
            else:
                assert isinstance(step, Rest)
                assert step.until > now
                now = step.until
                if now >= until:
                    return now
        return now


def sweep_at_start(nodes: Nodes) -> Sweep:
    """Return a sweep that knows all nodes and their mean distance."""
    sweep = Sweep(0.0)
    step = sweep.next_step(0.0)
    assert isinstance(step, Search)
    sweep.searched(step.target, nodes.closest(step.target))
    sweep.add(nodes.contacts)
    return sweep


def asks(sweep: Sweep, count: int, now: float) -> list[Ask]:
    """Return the queries among this many steps."""
    return [step for _ in range(count) if isinstance(step := sweep.next_step(now), Ask)]


def answer(sweep: Sweep, ask: Ask, now: float, num: int = 20) -> None:
    sweep.answered(ask, (), now, interval_s=600, num=num, sampled=20, new=20)


@pytest.mark.parametrize("count", [1, 3, 30, 500])
def test_a_sweep_queries_nearly_every_node_once_and_rests_for_its_interval(count: int) -> None:
    nodes = Nodes(count, SEED)
    sweep = Sweep(0.0)
    assert nodes.run(sweep, 0.0, until=600.0) == 600.0
    assert sweep.sweeps == 1
    assert {*nodes.asked.values()} == {1}
    assert len(nodes.asked) >= 0.95 * count
    nodes.run(sweep, 601.0, until=1200.0)
    assert {*nodes.asked.values()} <= {1, 2}
    assert len(nodes.asked) >= 0.97 * count


def test_a_node_with_more_infohashes_is_queried_again_in_the_same_sweep_after_its_interval() -> None:
    nodes = Nodes(20, SEED, interval_s=30)
    sweep = Sweep(0.0)
    nodes.run(sweep, 0.0, until=299.0, has_more=True)
    assert min(nodes.asked.values()) >= 9


def test_a_new_sweep_goes_on_at_the_position_of_an_earlier_one() -> None:
    nodes = Nodes(100, SEED)
    first = Sweep(0.0)
    nodes.run(first, 0.0, until=0.0, steps_max=50)
    before = set(nodes.asked)
    assert 0.2 < first.coverage < 0.8
    second = Sweep(0.0, first.position)
    assert abs(second.coverage - first.coverage) < 1e-9
    nodes.asked_at.clear()
    nodes.run(second, 0.0, until=600.0)
    assert len(before | set(nodes.asked)) >= 98  # a sweep without an interruption misses a few nodes, too


def test_the_position_does_not_pass_a_node_that_has_not_answered() -> None:
    nodes = Nodes(50, SEED, equal_distances=True)
    sweep = sweep_at_start(nodes)
    asked = asks(sweep, 5, 0.0)
    lowest = min(int.from_bytes(each.id) for each in nodes.contacts)
    assert len(asked) == 5
    assert sweep.position >> LANES_BITS == lowest >> KEY_BITS - PROGRESS_BITS
    for step in asked[1:]:
        sweep.failed(step, (), 0.0)
    assert sweep.position >> LANES_BITS == lowest >> KEY_BITS - PROGRESS_BITS
    sweep.failed(asked[0], (), 0.0)
    assert sweep.position >> LANES_BITS > lowest >> KEY_BITS - PROGRESS_BITS
    assert sweep.position < 1 << POSITION_BITS


def test_many_nodes_are_swept_in_lanes_and_the_position_is_that_of_the_slowest_lane() -> None:
    nodes = Nodes(3000, SEED, equal_distances=True)
    sweep = sweep_at_start(nodes)
    count = len(sweep._lanes)
    asked = asks(sweep, count, 0.0)
    assert count > 1
    assert len({int.from_bytes(each.contact.id) * count >> KEY_BITS for each in asked}) == len(asked) >= count - 2
    answer(sweep, asked[0], 0.0)
    low = sweep.position
    for step in asked[1:]:
        answer(sweep, step, 0.0)
    assert sweep.position >= low
    assert Sweep(0.0, sweep.position).position == sweep.position


@pytest.mark.parametrize("position", [-1, 1 << 62, 15, (1 << 62) - 1, (1 << 10) + 4])
def test_a_sweep_can_begin_at_any_stored_position(position: int) -> None:
    nodes = Nodes(30, SEED)
    sweep = Sweep(0.0, position)
    nodes.run(sweep, 0.0, until=1200.0)
    assert len(nodes.asked) == 30


def test_repeated_queries_do_not_hold_the_position_back() -> None:
    nodes = Nodes(50, SEED, equal_distances=True)
    sweep = sweep_at_start(nodes)
    first, second = asks(sweep, 2, 0.0)
    answer(sweep, first, 0.0, num=1000)
    answer(sweep, second, 0.0)
    passed = sweep.position
    steps = [sweep.next_step(600.0) for _ in range(2)]
    assert first.contact in [step.contact for step in steps if isinstance(step, Ask)]
    assert sweep.position >= passed


def test_nodes_with_more_infohashes_get_every_other_query() -> None:
    nodes = Nodes(60, SEED, equal_distances=True)
    sweep = sweep_at_start(nodes)
    first = asks(sweep, 20, 0.0)
    for ask in first:
        answer(sweep, ask, 0.0, num=1000)
    before = {ask.contact for ask in first}
    order = [ask.contact in before for ask in asks(sweep, 20, 600.0)]
    assert order in ([True, False] * 10, [False, True] * 10)


def test_a_node_without_new_infohashes_is_queried_four_times_and_then_once_a_sweep() -> None:
    nodes = Nodes(1, SEED)
    sweep, now = sweep_at_start(nodes), 0.0
    times = []
    while now < 3000.0:
        step = sweep.next_step(now)
        if isinstance(step, Ask):
            times.append(now)
            sweep.answered(step, (), now, interval_s=0, num=10**9, sampled=20, new=0)
        elif isinstance(step, Search):
            sweep.searched(step.target, nodes.contacts)
        else:
            now = step.until
    assert times[:4] == [0.0, AGAIN_MIN_S, 2 * AGAIN_MIN_S, 3 * AGAIN_MIN_S]
    assert min(late - early for early, late in pairwise(times[4:])) >= SWEEP_MIN_S


def test_a_node_that_used_to_answer_is_queried_again_a_minute_after_a_time_out() -> None:
    nodes = Nodes(1, SEED)
    sweep = sweep_at_start(nodes)
    (ask,) = asks(sweep, 1, 0.0)
    answer(sweep, ask, 0.0, num=1000)
    (again,) = asks(sweep, 5, 600.0)
    sweep.failed(again, (), 600.0)
    assert not asks(sweep, 5, 600.0 + RETRY_S - 1.0)
    assert len(asks(sweep, 5, 600.0 + RETRY_S)) == 1


def test_silent_nodes_get_one_more_chance_while_the_sweep_rests() -> None:
    nodes = Nodes(10, SEED)
    sweep, now = sweep_at_start(nodes), 0.0
    asked: Counter[bytes] = Counter()
    while not sweep.sweeps or now < 60.0:
        step = sweep.next_step(now)
        if isinstance(step, Ask):
            asked[step.contact.endpoint] += 1
            if len(asked) == 1:
                answer(sweep, step, now)
            else:
                sweep.failed(step, (), now)
        elif isinstance(step, Search):
            sweep.searched(step.target, nodes.closest(step.target))
        else:
            now = step.until
    assert sorted(asked.values()) == [1] + [2] * 9


def test_one_host_with_many_nodes_is_queried_once_a_second() -> None:
    nodes = Nodes(100, SEED, equal_distances=True)
    nodes.contacts = [each._replace(endpoint=b"host" + bytes([1, n])) for n, each in enumerate(nodes.contacts)]
    nodes.interval_s = 3600
    sweep = sweep_at_start(nodes)
    assert len(asks(sweep, 100, 0.0)) == QUERIES_BURST
    assert len(asks(sweep, 100, 1.0)) == 1
    assert len(asks(sweep, 100, 11.0)) <= 10


def test_an_answer_with_many_contacts_is_cut_to_those_near_the_target() -> None:
    nodes = Nodes(2000, SEED)
    sweep = sweep_at_start(Nodes(1, SEED))
    (ask,) = asks(sweep, 1, 0.0)
    sweep.answered(ask, nodes.contacts, 0.0, interval_s=600, num=0, sampled=0, new=0)
    steps = [sweep.next_step(5.0) for _ in range(100)]
    named = {each.contact for each in steps if isinstance(each, Ask)}
    assert len(named) <= CLOSER_MAX


def test_the_nearest_of_too_many_nodes_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lycosa.dht.crawler.core.lane.CANDIDATES_MAX", 100)
    lane = lanes(1)[0]
    nodes = Nodes(500, SEED)
    for each in nodes.contacts:
        lane.add(int.from_bytes(each.id), each, 1)
    assert len(lane.ahead) <= 200
    nearest = lane.pop()
    assert nearest is not None
    assert nearest[1] == min(nodes.contacts)


def test_a_query_that_our_node_was_too_busy_for_is_repeated_soon() -> None:
    nodes = Nodes(1, SEED)
    sweep = sweep_at_start(nodes)
    (ask,) = asks(sweep, 1, 0.0)
    sweep.postponed(ask, 0.0)
    assert [each.contact for each in asks(sweep, 3, AGAIN_MIN_S)] == nodes.contacts


def test_a_sweep_without_nodes_searches_and_rests_in_turn() -> None:
    nodes = Nodes(0, SEED)
    sweep = Sweep(0.0)
    nodes.run(sweep, 0.0, until=100.0)
    assert 5 <= nodes.searches <= 15
