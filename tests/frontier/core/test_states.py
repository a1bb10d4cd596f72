"""The life of a URL (C6, F6): the table and the functions that follow it."""

from __future__ import annotations

import pytest

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import (
    EXPIRIES_MAX,
    TRANSITIONS,
    Event,
    IllegalTransition,
    State,
    expire,
    fail,
    requeue,
    step,
)

RECORD = UrlRecord(1, 7, "http://a.example/", "http://a.example:80")


def test_what_is_archived_stays() -> None:
    assert not [state for state, _ in TRANSITIONS if state is State.ARCHIVED]


def test_a_step_that_is_not_in_the_table_is_refused() -> None:
    assert step(State.QUEUED, Event.LEASE) is State.LEASED
    with pytest.raises(IllegalTransition, match="ack cannot happen to a URL that is done"):
        step(State.DONE, Event.ACK)


def test_every_state_but_new_is_reached_and_every_event_means_something() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.NEW}
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_only_a_leased_record_can_be_settled() -> None:
    settling = {Event.ACK, Event.NACK, Event.GIVE_UP, Event.RELEASE, Event.EXPIRE, Event.EXPIRE_LAST}
    assert {state for state, event in TRANSITIONS if event in settling} == {State.LEASED}


def test_from_every_state_an_end_can_be_reached() -> None:
    ends = {State.ARCHIVED}
    for _ in State:
        ends |= {state for (state, _), target in TRANSITIONS.items() if target in ends}
    assert ends == set(State)


def test_fail_counts_and_sleeps() -> None:
    failed = fail(RECORD, 99.5)
    assert (failed.attempts, failed.not_before) == (1, 99.5)


def test_a_requeued_record_has_all_its_attempts() -> None:
    assert requeue(fail(RECORD, 99.5)) == RECORD


def test_expire_gives_up_in_the_end() -> None:
    record, events = RECORD, []
    for _ in range(EXPIRIES_MAX):
        record, event = expire(record)
        events.append(event)
    assert events == [Event.EXPIRE] * (EXPIRIES_MAX - 1) + [Event.EXPIRE_LAST]
    assert record.attempts == EXPIRIES_MAX
