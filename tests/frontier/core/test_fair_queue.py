"""The fair queue (F8): the order of ready entities, its guarantees, and the sizes of its heaps."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lycosa.frontier.core.fair_queue import FAIR_TURN, SHORT_S, STALE_MAX, Entity, FairQueue


def entity(backlog: int = 1, record_s: float = 1.0, rank: float = 0.0) -> Entity:
    return Entity(backlog=backlog, record_s=record_s, rank=rank)


def entered(*entities: Entity) -> FairQueue[Entity]:
    queue: FairQueue[Entity] = FairQueue()
    for one in entities:
        queue.add_ready(one)
    return queue


def first(queue: FairQueue[Entity]) -> Entity:
    lane = queue.first_lane()
    assert lane is not None
    return lane.pick()


def test_an_empty_queue() -> None:
    queue: FairQueue[Entity] = FairQueue()
    assert queue.first_lane() is None
    assert queue.next_due() is None
    assert queue.pop_due(10.0) is None


def test_entities_with_little_work_take_turns_in_the_order_of_arrival() -> None:
    entities = [entity(backlog) for backlog in (1, 9, 5)]
    queue = entered(*entities)
    assert [first(queue) for _ in range(6)] == entities * 2


def test_most_turns_go_to_the_entity_with_the_most_work() -> None:
    small, large, larger = entity(), entity(100), entity(100, record_s=2.0)
    queue = entered(small, large, larger)
    assert Counter(map(id, (first(queue) for _ in range(3 * FAIR_TURN)))) == {
        id(small): 1,
        id(large): 1,
        id(larger): 3 * FAIR_TURN - 2,
    }
    queue.remove_ready(larger)
    assert {id(first(queue)) for _ in range(FAIR_TURN - 1)} == {id(large)}


def test_an_entity_is_moved_when_over_an_eighth_of_its_work_is_done_or_its_work_has_doubled() -> None:
    one, other = entity(800), entity(790)
    queue = entered(one, other)
    one.backlog = 700
    assert first(queue) is one
    one.backlog = 699
    assert first(queue) is other
    one.backlog = 1397
    queue.add_ready(one)
    assert first(queue) is other
    one.backlog = 1398
    queue.add_ready(one)
    assert first(queue) is one
    one.backlog = int(SHORT_S)
    other.backlog = int(SHORT_S)
    assert [first(queue) is one for _ in range(4)] in ([True, False] * 2, [False, True] * 2)


@pytest.mark.parametrize("seed", range(5))
def test_the_last_entity_gets_a_turn_within_the_bound(seed: int) -> None:
    """The bound is 8 turns for each entity before it, and 8 for itself, whatever work the others have and get."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    others = [entity(10**9), *(entity(rng.choice([1, 50, 10**6])) for _ in range(rng.randint(1, 60)))]
    queue = entered(*others)
    last = entity()
    queue.add_ready(last)
    for _ in range(8 * (len(others) + 1)):
        picked = first(queue)
        if picked is last:
            return
        if rng.random() < 0.5:
            queue.remove_ready(picked)
            picked.backlog = rng.choice([1, 10**5, 10**7])
            queue.add_ready(picked)
        if rng.random() < 0.3:
            queue.add_ready(entity(10**8))
    pytest.fail("no turn within the bound")


def test_the_lowest_rank_goes_first_and_ranks_may_change() -> None:
    old, new = entity(rank=1.0), entity(10**6, rank=2.0)
    queue = entered(new, old)
    assert {id(first(queue)) for _ in range(20)} == {id(old)}
    old.rank = 3.0
    queue.add_ready(old)
    assert first(queue) is new
    new.rank = 4.0
    queue.add_ready(new)
    assert first(queue) is old
    queue.remove_ready(old)
    queue.remove_ready(new)
    assert queue.first_lane() is None
    queue.add_ready(old)
    assert first(queue) is old


def test_waiting_entities_are_due_by_time_and_only_once() -> None:
    early, late, removed = entity(), entity(), entity()
    queue: FairQueue[Entity] = FairQueue()
    queue.wait(late, 5.0)
    queue.wait(early, 9.0)
    queue.wait(early, 3.0)
    queue.wait(removed, 1.0)
    queue.stop_waiting(removed)
    queue.stop_waiting(removed)
    assert queue.next_due() == 3.0
    assert queue.pop_due(2.9) is None
    assert [queue.pop_due(9.0), queue.pop_due(9.0), queue.pop_due(9.0)] == [early, late, None]


@pytest.mark.parametrize("seed", range(5))
def test_setting_the_clock_back_keeps_the_order_of_waiting_entities(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    queue: FairQueue[Entity] = FairQueue()
    times = {entity(): float(rng.randrange(1000)) for _ in range(40)}
    for one, at in times.items():
        queue.wait(one, at)
    for one in rng.sample(list(times), 15):
        queue.stop_waiting(one)
        del times[one]
    queue.shift(500.0)
    assert queue.next_due() == 0.0
    queue.wait(one := entity(), 20.0)
    times[one] = 520.0
    due = [queue.pop_due(1000.0) for _ in times]
    assert queue.pop_due(1000.0) is None
    assert [max(times[one], 500.0) for one in due if one is not None] == sorted(max(at, 500.0) for at in times.values())


def test_void_entries_are_bounded() -> None:
    entities = [entity(100) for _ in range(10)]
    queue = entered(*entities)
    lane = queue.first_lane()
    assert lane is not None
    for number in range(5000):
        one = entities[number % 10]
        queue.wait(one, float(10_000 - number))
        queue.remove_ready(one)
        queue.add_ready(one)
        assert len(queue.heap) <= 2 * 10 + STALE_MAX
        assert len(lane._largest) <= 2 * 10 + STALE_MAX
