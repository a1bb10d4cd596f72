"""The times at which items are due: after their interval, or after growing pauses; an item never runs twice at once."""

from __future__ import annotations

import random

from lycosa.proxies.core.checks.schedule import JITTER, Schedule


def test_an_item_is_due_at_its_interval_after_a_success() -> None:
    schedule = Schedule(30, 3600)
    schedule.add("a", 100.0)
    assert schedule.start_due(99.0, 10) == []
    assert schedule.start_due(100.0, 10) == ["a"]
    assert schedule.start_due(9999.0, 10) == [], "the item is running"
    schedule.finish("a", 200.0, 0.0, 600, success=True)
    assert schedule.next_at() == 200 + 600 * (1 - JITTER)


def test_pauses_grow_with_each_failure_up_to_a_limit() -> None:
    schedule = Schedule(30, 3600)
    schedule.add("a", 0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        assert schedule.start_due(now, 1) == ["a"]
        schedule.finish("a", now, 1.0, 600, success=False)
        pauses.append((schedule.next_at() or 0) - now)
        now += pauses[-1]
    assert pauses[:4] == [30, 60, 120, 240]
    assert pauses[-1] == 3600
    assert schedule.failures("a") == 12
    schedule.start_due(now, 1)
    schedule.finish("a", now, 0.5, 600, success=True)
    assert (schedule.failures("a"), schedule.next_at()) == (0, now + 600)


def test_a_pause_lasts_at_least_half_of_its_maximum() -> None:
    schedule = Schedule(30, 3600)
    schedule.add("a", 0.0)
    schedule.start_due(0.0, 1)
    schedule.finish("a", 0.0, 0.0, 600, success=False)
    assert schedule.next_at() == 15


def test_the_longest_overdue_items_start_first_up_to_the_limit() -> None:
    schedule = Schedule(30, 3600)
    for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("d", 9.0)):
        schedule.add(name, at)
    assert schedule.start_due(5.0, 2) == ["a", "b"]
    assert schedule.start_due(5.0, 2) == ["c"]
    assert schedule.next_at() == 9.0


def test_rescheduling_is_not_a_failure() -> None:
    schedule = Schedule(30, 3600)
    schedule.add("a", 0.0)
    schedule.start_due(0.0, 1)
    schedule.reschedule("a", 50.0)
    assert (schedule.failures("a"), schedule.next_at()) == (0, 50.0)


def test_a_removed_item_does_not_come_back() -> None:
    schedule = Schedule(30, 3600)
    schedule.add("a", 0.0)
    schedule.start_due(0.0, 1)
    schedule.remove("a")
    schedule.finish("a", 1.0, 0.5, 600, success=True)
    assert (schedule.next_at(), len(schedule), "a" in schedule) == (None, 0, False)


def test_random_histories_run_each_item_once_at_a_time_and_keep_the_heap_small() -> None:
    seed = random.randrange(1 << 32)
    rng, schedule, now = random.Random(seed), Schedule(5, 100), 0.0
    running: set[str] = set()
    for _ in range(5_000):
        now += rng.random()
        name = str(rng.randrange(20))
        schedule.add(name, now)
        started = schedule.start_due(now, rng.randint(0, 4))
        assert running.isdisjoint(started), seed
        running.update(started)
        if running and rng.random() < 0.3:
            done = running.pop()
            schedule.finish(done, now, rng.random(), 10, success=rng.random() < 0.5)
        if rng.random() < 0.3:  # leaves an outdated entry in the heap
            schedule.remove(name)
            running.discard(name)
            schedule.add(name, now + 1000 * rng.random())
    assert len(schedule._heap) <= 4 * 20 + 64 + 1, seed
