"""A rate and a burst for each key: exact bounds, in a table that stays small."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from lycosa.core.rate_limit import RateLimit

HOST = 1


def outgoing() -> RateLimit[int]:
    return RateLimit(1.0, 4, keys_max=131_072, refuse_when_full=True)


@pytest.mark.parametrize("start", [0.0, 1.5, 1e6 / 3, 1e9 / 7])
def test_a_host_gets_its_burst_and_then_its_rate(start: float):
    limit = outgoing()
    assert [limit.allow(HOST, start) for _ in range(5)] == [True] * 4 + [False]
    assert not limit.allow(HOST, start + 0.99)
    assert limit.allow(HOST, start + 1)
    assert not limit.allow(HOST, start + 1)
    assert [limit.allow(HOST, start + 100) for _ in range(5)] == [True] * 4 + [False]


def test_refused_events_do_not_count():
    limit = outgoing()
    sent = [at for at in range(1000) if limit.allow(HOST, at / 100)]
    assert sent == [0, 1, 2, 3, *range(100, 1000, 100)]


def test_the_time_at_which_a_host_is_ready_is_exact():
    limit = outgoing()
    assert limit.ready_at(HOST, 7) == 7
    for _ in range(4):
        limit.allow(HOST, 7)
    ready = limit.ready_at(HOST, 7)
    assert not limit.allow(HOST, ready - 0.001)
    assert limit.allow(HOST, ready)


@pytest.mark.parametrize("seed", range(5))
def test_no_window_of_time_has_more_events_than_rate_and_burst_allow(seed: int):
    print("seed", seed)
    chance, limit, sent, now = random.Random(seed), outgoing(), defaultdict(list), 0.0
    for _ in range(3000):
        now += chance.expovariate(8)
        host = chance.randrange(3)
        if limit.allow(host, now):
            sent[host].append(now)
    for times in sent.values():
        assert len(times) > 100
        for first, start in enumerate(times):
            in_window = sum(start <= at <= start + 20 for at in times[first:])
            assert in_window <= 24 + 1e-6


def test_a_full_table_of_outgoing_queries_refuses_new_hosts_and_keeps_the_limits_of_known_ones():
    limit = RateLimit(1.0, 4, keys_max=100, refuse_when_full=True)
    assert sum(limit.allow(n, 1) for n in range(200)) == 50
    assert sum(limit.allow(0, 1) for _ in range(10)) == 3
    assert limit.allow(199, 6)


def test_a_flood_of_addresses_locks_no_host_out_and_the_table_stays_bounded():
    limit = RateLimit(5.0, 50, keys_max=100)
    assert all(limit.allow(n, 1 + n / 1e6) for n in range(10_000))
    assert len(limit) <= 100


def test_old_hosts_are_forgotten():
    limit = outgoing()
    for second in range(100):
        for n in range(10):
            assert limit.allow(1000 * second + n, second)
    assert len(limit) <= 80


def test_an_event_that_does_not_count_is_put_back():
    limit = outgoing()
    for _ in range(100):
        assert limit.allow(HOST, 7)
        limit.put_back(HOST)
    assert [limit.allow(HOST, 7) for _ in range(5)] == [True] * 4 + [False]
    limit.put_back(2)
