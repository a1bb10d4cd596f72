"""The life of a URL (C6, F6): the transition table and its functions."""

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


def test_archived_is_final() -> None:
    assert not [state for state, _ in TRANSITIONS if state is State.ARCHIVED]


def test_a_transition_that_is_not_in_the_table_is_refused() -> None:
    assert step(State.QUEUED, Event.LEASE) is State.LEASED
    with pytest.raises(IllegalTransition, match="ack cannot happen to a URL that is done"):
        step(State.DONE, Event.ACK)


def test_every_state_but_new_is_reached_and_every_event_is_used() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.NEW}
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_only_a_lease_can_end() -> None:
    ending = {Event.ACK, Event.NACK, Event.GIVE_UP, Event.RELEASE, Event.EXPIRE, Event.EXPIRE_LAST}
    assert {state for state, event in TRANSITIONS if event in ending} == {State.LEASED}


def test_the_final_state_can_be_reached_from_every_state() -> None:
    ends = {State.ARCHIVED}
    for _ in State:
        ends |= {state for (state, _), target in TRANSITIONS.items() if target in ends}
    assert ends == set(State)


def test_a_failure_counts_as_an_attempt_and_delays_the_record() -> None:
    failed = fail(RECORD, 99.5)
    assert (failed.attempts, failed.not_before) == (1, 99.5)


def test_a_requeued_record_has_no_failed_attempts() -> None:
    assert requeue(fail(RECORD, 99.5)) == RECORD


def test_a_record_is_dead_after_the_last_allowed_expiry() -> None:
    record, events = RECORD, []
    for _ in range(EXPIRIES_MAX):
        record, event = expire(record)
        events.append(event)
    assert events == [Event.EXPIRE] * (EXPIRIES_MAX - 1) + [Event.EXPIRE_LAST]
    assert record.attempts == EXPIRIES_MAX
