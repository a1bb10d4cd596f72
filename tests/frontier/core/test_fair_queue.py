"""Whose turn it is (F8): the order of the ready, the bounds it keeps, and what the heaps hold."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lycosa.frontier.core.fair_queue import FAIR_TURN, SHORT_S, VOID_MAX, Entity, FairQueue


def unit(backlog: int = 1, pace_s: float = 1.0, rank: float = 0.0) -> Entity:
    return Entity(backlog=backlog, pace_s=pace_s, rank=rank)


def entered(*units: Entity) -> FairQueue[Entity]:
    turns: FairQueue[Entity] = FairQueue()
    for one in units:
        turns.enter(one)
    return turns


def first(turns: FairQueue[Entity]) -> Entity:
    lane = turns.lane()
    assert lane is not None
    return lane.first()


def test_nobody_there() -> None:
    turns: FairQueue[Entity] = FairQueue()
    assert turns.lane() is None
    assert turns.next_due() is None
    assert turns.due(10.0) is None


def test_those_with_little_work_take_turns_in_the_order_they_came() -> None:
    units = [unit(backlog) for backlog in (1, 9, 5)]
    turns = entered(*units)
    assert [first(turns) for _ in range(6)] == units * 2


def test_the_one_with_most_work_goes_before_but_not_always() -> None:
    small, large, larger = unit(), unit(100), unit(100, pace_s=2.0)
    turns = entered(small, large, larger)
    assert Counter(map(id, (first(turns) for _ in range(3 * FAIR_TURN)))) == {
        id(small): 1,
        id(large): 1,
        id(larger): 3 * FAIR_TURN - 2,
    }
    turns.leave(larger)
    assert {id(first(turns)) for _ in range(FAIR_TURN - 1)} == {id(large)}


def test_work_left_is_measured_again_when_an_eighth_is_done_or_when_it_has_doubled() -> None:
    one, other = unit(800), unit(790)
    turns = entered(one, other)
    one.backlog = 700
    assert first(turns) is one
    one.backlog = 699
    assert first(turns) is other
    one.backlog = 1397
    turns.enter(one)
    assert first(turns) is other
    one.backlog = 1398
    turns.enter(one)
    assert first(turns) is one
    one.backlog = int(SHORT_S)
    other.backlog = int(SHORT_S)
    assert [first(turns) is one for _ in range(4)] in ([True, False] * 2, [False, True] * 2)


@pytest.mark.parametrize("seed", range(5))
def test_whoever_is_last_has_its_turn_in_time(seed: int) -> None:
    """Whatever the others have, come with and leave for: 8 turns for each that was before it, and its own."""
    print(f"seed {seed}")
    chance = random.Random(seed)
    others = [unit(10**9), *(unit(chance.choice([1, 50, 10**6])) for _ in range(chance.randint(1, 60)))]
    turns = entered(*others)
    last = unit()
    turns.enter(last)
    for _ in range(8 * (len(others) + 1)):
        picked = first(turns)
        if picked is last:
            return
        if chance.random() < 0.5:
            turns.leave(picked)
            picked.backlog = chance.choice([1, 10**5, 10**7])
            turns.enter(picked)
        if chance.random() < 0.3:
            turns.enter(unit(10**8))
    pytest.fail("no turn in time")


def test_the_lowest_rank_first_and_a_rank_can_change() -> None:
    old, new = unit(rank=1.0), unit(10**6, rank=2.0)
    turns = entered(new, old)
    assert {id(first(turns)) for _ in range(20)} == {id(old)}
    old.rank = 3.0
    turns.enter(old)
    assert first(turns) is new
    new.rank = 4.0
    turns.enter(new)
    assert first(turns) is old
    turns.leave(old)
    turns.leave(new)
    assert turns.lane() is None
    turns.enter(old)
    assert first(turns) is old


def test_the_waiting_come_by_time_and_only_once() -> None:
    early, late, gone = unit(), unit(), unit()
    turns: FairQueue[Entity] = FairQueue()
    turns.wait(late, 5.0)
    turns.wait(early, 9.0)
    turns.wait(early, 3.0)
    turns.wait(gone, 1.0)
    turns.stop_waiting(gone)
    turns.stop_waiting(gone)
    assert turns.next_due() == 3.0
    assert turns.due(2.9) is None
    assert [turns.due(9.0), turns.due(9.0), turns.due(9.0)] == [early, late, None]


@pytest.mark.parametrize("seed", range(5))
def test_a_clock_that_is_set_back_keeps_the_order(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    turns: FairQueue[Entity] = FairQueue()
    times = {unit(): float(chance.randrange(1000)) for _ in range(40)}
    for one, at in times.items():
        turns.wait(one, at)
    for one in chance.sample(list(times), 15):
        turns.stop_waiting(one)
        del times[one]
    turns.set_back(500.0)
    assert turns.next_due() == 0.0
    turns.wait(one := unit(), 20.0)
    times[one] = 520.0
    came = [turns.due(1000.0) for _ in times]
    assert turns.due(1000.0) is None
    assert [max(times[one], 500.0) for one in came if one is not None] == sorted(
        max(at, 500.0) for at in times.values()
    )


def test_void_entries_are_bounded() -> None:
    units = [unit(100) for _ in range(10)]
    turns = entered(*units)
    lane = turns.lane()
    assert lane is not None
    for number in range(5000):
        one = units[number % 10]
        turns.wait(one, float(10_000 - number))
        turns.leave(one)
        turns.enter(one)
        assert len(turns.heap) <= 2 * 10 + VOID_MAX
        assert len(lane._largest) <= 2 * 10 + VOID_MAX
