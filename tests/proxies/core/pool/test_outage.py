"""A crawl without working proxies: one report, retries at growing intervals, and an end after a limit."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from lycosa.proxies.core.pool.outage import (
    IDLE_WAIT_S,
    QUEUE_MIN,
    QUEUE_S,
    RECENT_WAIT_S,
    RETRY_MAX_S,
    RETRY_MIN_S,
    TARGETS_MAX,
    Outage,
    OutageStatus,
    WaitQueueStats,
)


def test_an_outage_is_reported_once_and_has_a_limit() -> None:
    outage = Outage(100.0)
    assert outage.extend(1000.0, 1000.0) == OutageStatus(0.0, 100.0, new=True)
    assert outage.extend(1001.0, 1020.0) == OutageStatus(20.0, 80.0, new=False)
    assert outage.extend(1099.0, 1100.0) == OutageStatus(100.0, 0.0, new=False)


def test_a_working_proxy_ends_the_outage() -> None:
    outage = Outage(100.0)
    outage.extend(1000.0, 1010.0)
    assert outage.end(1040.0) == 40.0
    assert outage.end(1041.0) == 0.0, "no other outage was reported"
    assert outage.extend(1005.0, 1090.0) == OutageStatus(49.0, 51.0, new=False), "the outage starts at the last success"
    assert outage.extend(1060.0, 1091.0) == OutageStatus(50.0, 50.0, new=True)


def test_a_pause_without_requests_is_not_an_outage() -> None:
    outage = Outage(100.0)
    outage.end(1000.0)
    assert outage.extend(5000.0, 5010.0).for_s == 10.0


def test_without_a_limit_an_outage_never_ends_the_crawl() -> None:
    outage = Outage(None)
    outage.extend(1.0, 1.0)
    assert outage.extend(1.0, 1e6) == OutageStatus(pytest.approx(1e6 - 1), None, new=False)


def test_a_limit_of_zero_ends_the_crawl_at_once() -> None:
    assert Outage(0.0).extend(10.0, 10.0).left_s == 0


def test_requests_wait_longer_for_targets_with_recent_leases() -> None:
    stats = WaitQueueStats()
    assert stats.wait_s("shop", 100.0) == IDLE_WAIT_S
    stats.lease_granted("shop", 100.0)
    assert stats.wait_s("shop", 100.0 + RECENT_WAIT_S) == RECENT_WAIT_S
    assert stats.wait_s("shop", 100.1 + RECENT_WAIT_S) == IDLE_WAIT_S
    assert stats.wait_s("other", 100.0) == IDLE_WAIT_S


def test_the_length_of_the_queue_follows_the_rate_of_leases() -> None:
    stats = WaitQueueStats()
    with ExitStack() as waiting:
        for _ in range(QUEUE_MIN):
            assert stats.has_room("shop", "any", 100.0)
            waiting.enter_context(stats.waiting("shop", "any", 100.0))
        assert not stats.has_room("shop", "any", 100.0)
        assert stats.has_room("shop", "a session", 100.0), "a session has its own queue"
        assert stats.has_room("other", "any", 100.0)
        for number in range(1, 501):
            stats.lease_granted("shop", 100.0 + number / 500)
        for _ in range(round(500 * QUEUE_S) - QUEUE_MIN):
            assert stats.has_room("shop", "any", 101.0), "a higher rate allows a longer queue"
            waiting.enter_context(stats.waiting("shop", "any", 101.0))
        assert not stats.has_room("shop", "any", 101.0)
    for _ in range(QUEUE_MIN):
        waiting.enter_context(stats.waiting("shop", "any", 200.0))
    assert not stats.has_room("shop", "any", 200.0), "no recent leases"
    waiting.close()
    assert stats.has_room("shop", "any", 200.0)


def test_retry_intervals_grow() -> None:
    stats = WaitQueueStats()
    assert stats.retry_s("shop", 100.0, 101.0) == RETRY_MIN_S
    assert stats.retry_s("shop", 119.0, 120.0) == 5.0, "the interval grows with the time since the first request"
    assert stats.retry_s("shop", 999.0, 1000.0) == RETRY_MAX_S
    assert stats.wait_s("shop", 1000.0) == IDLE_WAIT_S, "a request alone changes nothing"
    stats.lease_granted("shop", 1000.0)
    assert stats.retry_s("shop", 1000.0, 1008.0) == 2.0


def test_the_least_recently_used_target_is_forgotten() -> None:
    stats = WaitQueueStats()
    for number in range(TARGETS_MAX + 1):
        stats.lease_granted(str(number), 100.0)
        stats.lease_granted("0", 100.0)
    assert [stats.wait_s(target, 100.0) for target in ("0", "1", "2")] == [RECENT_WAIT_S, IDLE_WAIT_S, RECENT_WAIT_S]
    stats.retry_s("unknown", 100.0, 100.0)
    assert [stats.wait_s(target, 100.0) for target in ("0", "2", "3")] == [RECENT_WAIT_S, IDLE_WAIT_S, RECENT_WAIT_S]
