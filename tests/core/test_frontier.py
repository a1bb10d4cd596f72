"""The life of a URL (C6, F6): the table and the functions that follow it."""

from __future__ import annotations

from lycosa.core.frontier import EXPIRIES_MAX, TRANSITIONS, Event, State, expire, fail, lend, take_back
from lycosa.core.model import UrlRecord

RECORD = UrlRecord(1, 7, "http://a.example/", "http://a.example:80")


def test_done_and_dead_are_ends() -> None:
    assert not [state for state, _ in TRANSITIONS if state in {State.DONE, State.DEAD}]


def test_every_state_but_new_is_reached_and_every_event_means_something() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.NEW}
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_only_a_leased_record_can_be_settled() -> None:
    settling = {Event.ACK, Event.NACK, Event.GIVE_UP, Event.RELEASE, Event.EXPIRE, Event.EXPIRE_LAST}
    assert {state for state, event in TRANSITIONS if event in settling} == {State.LEASED}


def test_from_every_state_an_end_can_be_reached() -> None:
    ends = {State.DONE, State.DEAD}
    for _ in State:
        ends |= {state for (state, _), target in TRANSITIONS.items() if target in ends}
    assert ends == set(State)


def test_lend_and_take_back_leave_no_trace() -> None:
    lent = lend(RECORD, 42)
    assert lent.token == 42
    assert take_back(lent) == RECORD


def test_fail_counts_and_sleeps() -> None:
    failed = fail(lend(RECORD, 42), 99.5)
    assert (failed.token, failed.attempts, failed.not_before) == (0, 1, 99.5)


def test_expire_gives_up_in_the_end() -> None:
    record, events = RECORD, []
    for token in range(1, EXPIRIES_MAX + 1):
        record, event = expire(lend(record, token))
        events.append(event)
    assert events == [Event.EXPIRE] * (EXPIRIES_MAX - 1) + [Event.EXPIRE_LAST]
    assert (record.token, record.attempts) == (0, EXPIRIES_MAX)
