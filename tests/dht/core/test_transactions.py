from __future__ import annotations

import random
from math import inf

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.krpc import PING
from lycosa.dht.core.transactions import (
    FAILED_S,
    SILENCES_MAX,
    SILENT_S,
    STALLED_INITIAL_S,
    STALLED_MIN_S,
    WAITING_MAX_S,
    OutgoingQueries,
    OutgoingQuery,
    SilentEndpoints,
    Transactions,
)

HERE, THERE = pack("20.0.0.1", 1), pack("20.0.0.2", 2)


def a_query(endpoint: bytes = HERE) -> OutgoingQuery:
    return OutgoingQuery(PING, b"", endpoint, b"i" * 20)


def transactions(**options: int) -> Transactions:
    return Transactions(random.Random(1).randbytes, **options)


def test_an_answer_matches_by_transaction_and_source_once():
    open_ones = transactions()
    query = a_query()
    transaction = open_ones.open(query, 0.0)
    assert open_ones.close(transaction, THERE, 0.1) is None
    assert open_ones.close(b"none", HERE, 0.1) is None
    assert open_ones.close(transaction, HERE, 0.1) is query
    assert open_ones.close(transaction, HERE, 0.1) is None
    assert query.contact() == Contact(b"i" * 20, HERE)


def test_a_query_is_stalled_once_and_then_fails():
    open_ones = transactions()
    query = a_query()
    transaction = open_ones.open(query, 0.0)
    assert open_ones.next_timer() == STALLED_INITIAL_S
    assert open_ones.overdue(STALLED_INITIAL_S) == [(query, False)]
    assert open_ones.next_timer() == FAILED_S
    assert open_ones.overdue(FAILED_S) == [(query, True)]
    assert open_ones.next_timer() == inf
    assert open_ones.close(transaction, HERE, FAILED_S) is None
    assert len(open_ones) == 0


def test_a_late_answer_still_counts():
    open_ones = transactions()
    query = a_query()
    transaction = open_ones.open(query, 0.0)
    open_ones.overdue(STALLED_INITIAL_S)
    assert open_ones.close(transaction, HERE, 5.0) is query
    assert open_ones.overdue(FAILED_S) == []


def test_the_first_deadline_follows_the_round_trips():
    open_ones = transactions()
    for number in range(50):
        open_ones.close(open_ones.open(a_query(), float(number)), HERE, number + 0.05)
    assert open_ones.stalled_s == STALLED_MIN_S
    for number in range(50, 100):
        open_ones.close(open_ones.open(a_query(), float(number)), HERE, number + 0.9)
    assert 0.9 < open_ones.stalled_s < 2.0
    assert open_ones.round_trip_s > 0.8


def test_outstanding_queries_are_bounded():
    open_ones = transactions(outstanding_max=3)
    assert all(open_ones.open(a_query(), 0.0) for _ in range(3))
    assert open_ones.open(a_query(), 0.0) is None
    open_ones.overdue(FAILED_S)
    assert open_ones.open(a_query(), FAILED_S)
    open_ones.validate()


class OneASecond:
    """Sends through limits that let one query a second pass."""

    def __init__(self, **options: int) -> None:
        self.sent: list[OutgoingQuery] = []
        self.free_at = 0.0
        self.outgoing = OutgoingQueries(
            transactions(**options), self.wait_s, lambda _, query, now: self.sent.append(query)
        )

    def wait_s(self, endpoint: bytes, now: float) -> float:
        if now < self.free_at:
            return self.free_at - now
        self.free_at = now + 1.0
        return 0.0


def test_queries_wait_for_the_limits():
    limited = OneASecond()
    first, second = a_query(), a_query()
    limited.outgoing.send(first, 0.0)
    limited.outgoing.send(second, 0.0)
    assert limited.sent == [first]
    assert limited.outgoing.next_timer() == 1.0
    limited.outgoing.flush(1.0)
    assert limited.sent == [first, second]
    assert limited.outgoing.next_timer() == inf


def test_a_query_that_would_wait_too_long_is_refused():
    limited = OneASecond()
    limited.free_at = WAITING_MAX_S + 1.0
    query = a_query()
    limited.outgoing.send(query, 0.0)
    assert limited.outgoing.next_timer() == -inf
    assert limited.outgoing.take_refused() == [query]
    assert limited.outgoing.take_refused() == []


def test_a_query_beyond_the_maximum_of_outstanding_queries_is_refused():
    limited = OneASecond(outstanding_max=0)
    query = a_query()
    limited.outgoing.send(query, 0.0)
    assert limited.outgoing.take_refused() == [query]


class Over:
    is_over = True


def test_a_waiting_query_of_an_operation_that_ended_is_dropped():
    limited = OneASecond()
    limited.outgoing.send(a_query(), 0.0)
    limited.outgoing.send(OutgoingQuery(PING, b"", HERE, None, Over()), 0.0)
    limited.outgoing.flush(2.0)
    assert len(limited.sent) == 1
    assert len(limited.outgoing) == 0


def test_an_endpoint_counts_as_silent_for_a_while_after_several_failures():
    silent = SilentEndpoints()
    for _ in range(SILENCES_MAX):
        assert not silent.contains(HERE, 0.0)
        silent.failed(HERE, 0.0)
    assert silent.contains(HERE, SILENT_S - 1)
    assert not silent.contains(THERE, 0.0)
    assert not silent.contains(HERE, SILENT_S)


def test_an_answer_ends_the_silence():
    silent = SilentEndpoints()
    for _ in range(SILENCES_MAX):
        silent.failed(HERE, 0.0)
    silent.answered(HERE)
    assert not silent.contains(HERE, 0.0)
