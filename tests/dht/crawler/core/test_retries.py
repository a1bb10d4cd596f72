"""When an infohash is tried again."""

from __future__ import annotations

from itertools import pairwise

from lycosa.dht.crawler.core.retries import JITTER, RETRY_DELAYS_S, retry_at


def test_each_failure_waits_longer_and_the_last_delay_stays() -> None:
    delays = [retry_at(attempts, 1000.0, 0.0) - 1000.0 for attempts in range(len(RETRY_DELAYS_S) + 3)]
    assert delays[: len(RETRY_DELAYS_S)] == list(RETRY_DELAYS_S)
    assert delays[-1] == RETRY_DELAYS_S[-1]
    assert all(one < other * 1.0001 for one, other in pairwise(delays))


def test_retries_are_spread() -> None:
    assert retry_at(0, 0.0, 1.0) == RETRY_DELAYS_S[0] * (1 + JITTER)
