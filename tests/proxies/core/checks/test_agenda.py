"""When things are done again (P6): in their usual time, or after growing pauses; never twice at a time."""

from __future__ import annotations

import random

from lycosa.proxies.core.checks.agenda import JITTER, Agenda


def test_what_went_well_is_due_again_in_its_usual_time() -> None:
    agenda = Agenda(30, 3600)
    agenda.add("a", 100.0)
    assert agenda.due(99.0, 10) == []
    assert agenda.due(100.0, 10) == ["a"]
    assert agenda.due(9999.0, 10) == [], "it is under way"
    agenda.done("a", 200.0, 0.0, 600, well=True)
    assert agenda.next_at() == 200 + 600 * (1 - JITTER)


def test_pauses_grow_with_each_failure_and_are_bounded() -> None:
    agenda = Agenda(30, 3600)
    agenda.add("a", 0.0)
    now, pauses = 0.0, []
    for _ in range(12):
        assert agenda.due(now, 1) == ["a"]
        agenda.done("a", now, 1.0, 600, well=False)
        pauses.append((agenda.next_at() or 0) - now)
        now += pauses[-1]
    assert pauses[:4] == [30, 60, 120, 240]
    assert pauses[-1] == 3600
    assert agenda.failures("a") == 12
    agenda.due(now, 1)
    agenda.done("a", now, 0.5, 600, well=True)
    assert (agenda.failures("a"), agenda.next_at()) == (0, now + 600)


def test_half_of_a_pause_is_certain() -> None:
    agenda = Agenda(30, 3600)
    agenda.add("a", 0.0)
    agenda.due(0.0, 1)
    agenda.done("a", 0.0, 0.0, 600, well=False)
    assert agenda.next_at() == 15


def test_the_longest_overdue_come_first_and_not_all_at_once() -> None:
    agenda = Agenda(30, 3600)
    for name, at in (("c", 3.0), ("a", 1.0), ("b", 2.0), ("d", 9.0)):
        agenda.add(name, at)
    assert agenda.due(5.0, 2) == ["a", "b"]
    assert agenda.due(5.0, 2) == ["c"]
    assert agenda.next_at() == 9.0


def test_no_result_is_no_failure() -> None:
    agenda = Agenda(30, 3600)
    agenda.add("a", 0.0)
    agenda.due(0.0, 1)
    agenda.again("a", 50.0)
    assert (agenda.failures("a"), agenda.next_at()) == (0, 50.0)


def test_what_was_dropped_does_not_come_back() -> None:
    agenda = Agenda(30, 3600)
    agenda.add("a", 0.0)
    agenda.due(0.0, 1)
    agenda.drop("a")
    agenda.done("a", 1.0, 0.5, 600, well=True)
    assert (agenda.next_at(), len(agenda), "a" in agenda) == (None, 0, False)


def test_random_histories_end_each_turn_once_and_keep_few_entries() -> None:
    seed = random.randrange(1 << 32)
    chance, agenda, now = random.Random(seed), Agenda(5, 100), 0.0
    under_way: set[str] = set()
    for _ in range(5_000):
        now += chance.random()
        name = str(chance.randrange(20))
        agenda.add(name, now)
        begun = agenda.due(now, chance.randint(0, 4))
        assert under_way.isdisjoint(begun), seed
        under_way.update(begun)
        if under_way and chance.random() < 0.3:
            done = under_way.pop()
            agenda.done(done, now, chance.random(), 10, well=chance.random() < 0.5)
        if chance.random() < 0.3:  # leaves an outdated entry behind
            agenda.drop(name)
            under_way.discard(name)
            agenda.add(name, now + 1000 * chance.random())
    assert len(agenda._heap) <= 4 * 20 + 64 + 1, seed
