"""Limits: exact bounds per host, for bytes and for new addresses, in tables that stay small."""

from __future__ import annotations

import pytest

from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.limits import BandwidthCap, NewAddressCap, NodeLimits, QueryLimit, TokenBucket

HOST = pack("1.2.3.4", 1)


def endpoint(number: int) -> bytes:
    return number.to_bytes(4) + b"\x1a\xe1"


def test_the_bandwidth_is_capped_with_a_burst():
    cap = BandwidthCap(1000)
    sent = sum(100 for at in range(10_000) if cap.take(100, 5 + at / 1000))
    assert sent == 11_900
    assert cap.take(100, 15)
    assert cap.ready_at(100, 15) == pytest.approx(15.1)
    assert not cap.take(100, 15.09)
    assert cap.take(100, 15.1)


def test_an_amount_larger_than_the_burst_waits_for_a_full_bucket():
    bucket = TokenBucket(10, 20)
    assert bucket.take(50, 0)
    assert bucket.ready_at(50, 0) == 5
    assert not bucket.take(50, 4.9)
    assert bucket.take(50, 5)


def test_a_clock_that_goes_back_adds_nothing():
    bucket = TokenBucket(10, 20)
    assert bucket.take(20, 100)
    assert not any(bucket.take(1, now) for now in (99, 100, 50))


def test_new_addresses_are_capped_in_every_minute():
    cap = NewAddressCap(60)
    allowed = [at / 10 for at in range(6000) if cap.allow(endpoint(at), at / 10)]
    for start in allowed:
        assert sum(start <= at < start + 60 for at in allowed) <= 60
    assert len(allowed) >= 500


def test_an_address_is_new_again_a_minute_after_its_last_contact():
    cap = NewAddressCap(60)
    contacts: dict[bytes, float] = {}
    new: list[float] = []
    for step in range(6000):
        now = step / 10
        due = [each for each, at in contacts.items() if now - at >= 75]
        for each in [endpoint(step), *due]:
            if cap.allow(each, now):
                new += [now] if now - contacts.get(each, float("-inf")) > 60 else []
                contacts[each] = now
    assert max(sum(start <= at < start + 60 for at in new) for start in new) <= 60


def test_known_addresses_do_not_count_as_new_for_a_minute_after_their_last_contact():
    cap = NewAddressCap(6)
    assert cap.allow(endpoint(1), 0)
    assert not cap.allow(endpoint(2), 0)
    assert all(cap.allow(endpoint(1), at) for at in range(0, 600, 59))


def test_known_addresses_are_allowed_when_new_ones_are_not():
    cap = NewAddressCap(60)
    known = [endpoint(n) for n in range(10)]
    assert all(cap.allow(each, 0.0) for each in known)
    assert all(cap.allow(endpoint(100 + n), 59.0) for n in range(10))
    assert not cap.allow(endpoint(999), 59.0)
    assert all(cap.allow(each, 59.0) for each in known)
    assert sum(cap.allow(each, 1000.0) for each in [endpoint(2000), *known]) == 10, "forgotten, so new again"


def test_the_table_of_addresses_is_bounded():
    cap = NewAddressCap(10**9, addresses_max=100)
    assert all(cap.allow(endpoint(n), n / 100) for n in range(1000))
    assert len(cap) <= 100


def test_a_query_waits_for_its_host_for_bandwidth_and_for_new_addresses():
    limits = NodeLimits()
    assert [limits.query_wait_s(HOST, 10.0) for _ in range(4)] == [0.0] * 4
    assert limits.query_wait_s(HOST, 10.0) == pytest.approx(1.0)
    assert limits.query_wait_s(HOST, 10.0 + limits.query_wait_s(HOST, 10.0)) == 0.0

    slow = NodeLimits(bytes_per_s=120)
    assert [slow.query_wait_s(endpoint(n), 10.0) for n in range(3)] == [0.0, 0.0, pytest.approx(1.0)]

    few = NodeLimits(new_addresses_per_minute=6)
    assert few.query_wait_s(endpoint(1), 10.0) == 0.0
    assert few.query_wait_s(endpoint(2), 10.0) > 0.0
    assert few.query_wait_s(endpoint(1), 10.0) == 0.0

    reasons = [(limits, QueryLimit.HOST), (slow, QueryLimit.BANDWIDTH), (few, QueryLimit.NEW_ADDRESSES)]
    assert [each.waits.most_common(1)[0][0] for each, _ in reasons] == [reason for _, reason in reasons]


def test_connections_and_queries_share_the_new_addresses_of_a_minute():
    limits = NodeLimits(new_addresses_per_minute=600)
    contacted: list[float] = []
    for step in range(6000):
        now, address = step / 50, endpoint(step)
        if limits.may_connect(address, now) if step % 2 else limits.query_wait_s(address, now) == 0.0:
            contacted.append(now)
    busiest = max(sum(start <= at < start + 60 for at in contacted) for start in contacted[::50])
    assert 500 <= busiest <= 600


def test_connections_leave_queries_their_share_of_the_new_addresses():
    limits = NodeLimits(new_addresses_per_minute=600, connections_per_minute=280)
    connections, waits = 0, []
    for step in range(50 * 300):
        now = step / 50
        connections += limits.may_connect(endpoint(step), now)  # at each step there is one more peer
        if step % 25 == 0:
            waits.append(limits.query_wait_s(endpoint(100_000 + step), now))
    assert connections / 5 == pytest.approx(280, rel=0.05)
    assert waits.count(0.0) > 0.99 * len(waits)


def test_an_endpoint_counts_once_for_queries_and_once_for_connections():
    limits = NodeLimits(new_addresses_per_minute=12)
    assert limits.query_wait_s(HOST, 0.0) == 0.0
    assert [limits.may_connect(HOST, 0.0), limits.may_connect(HOST, 1.0)] == [True, True]
    assert not limits.may_connect(endpoint(9), 1.0)


def test_a_query_that_must_wait_is_not_counted():
    limits = NodeLimits(new_addresses_per_minute=6)
    assert limits.query_wait_s(endpoint(1), 0.0) == 0.0
    assert all(limits.query_wait_s(endpoint(2), n / 1000) > 0.0 for n in range(1000))
    assert [limits.query_wait_s(endpoint(2), 60.0) for _ in range(5)][:4] == [0.0] * 4


def test_answers_are_limited_per_host_and_by_bandwidth():
    limits = NodeLimits(answers_per_s=5, answers_burst=50, bytes_per_s=1000)
    assert sum(limits.admits(HOST, 1.0) for _ in range(200)) == 50
    assert sum(limits.admits(HOST, 2.0) for _ in range(200)) == 5
    assert limits.admits(endpoint(9), 2.0)
    assert sum(limits.may_send(500, 1.0) for _ in range(10)) == 3


def test_a_flood_of_answers_leaves_bandwidth_for_queries():
    limits = NodeLimits(bytes_per_s=10_000)
    answers = queries = 0
    for step in range(10_000):
        now = step / 1000
        answers += limits.may_send(300, now)
        if step % 50 == 0:
            queries += limits.query_wait_s(endpoint(step), now) == 0.0
    assert queries >= 150
    assert 200 <= answers <= 400


@pytest.mark.parametrize("start", [0.1, 1e3 / 3, 1e6 / 7])
def test_a_query_that_waited_long_enough_never_waits_again(start: float):
    limits = NodeLimits(bytes_per_s=700)
    for n in range(500):
        now, host = start, endpoint(n % 3)
        if wait_s := limits.query_wait_s(host, now):
            start = now + wait_s
            assert limits.query_wait_s(host, start) == 0.0


def test_ports_and_addresses_of_one_host_share_its_limits():
    limits = NodeLimits()
    assert sum(limits.query_wait_s(pack("1.2.3.4", port), 5) == 0 for port in range(1, 9)) == 4
    assert sum(limits.query_wait_s(pack(f"2001:db8::{n}", 1), 5) == 0 for n in range(1, 9)) == 4
    assert limits.query_wait_s(pack("1.2.3.5", 1), 5) == 0
    assert sum(limits.admits(pack("1.2.3.4", port), 5) for port in range(1, 99)) == 50
