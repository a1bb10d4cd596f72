"""When an infohash is tried again."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.retries import JITTER, POSTPONED_MAX_S, POSTPONED_S, RETRY_DELAYS_S, last_failure, retry_at

FAILURE = CrawlOutcome.NO_PEERS


def test_the_delay_grows_with_each_failure_until_the_longest_delay_is_reached() -> None:
    delays = [retry_at(attempts, 1000.0, 0.0, FAILURE) - 1000.0 for attempts in range(len(RETRY_DELAYS_S) + 3)]
    assert delays[: len(RETRY_DELAYS_S)] == pytest.approx(RETRY_DELAYS_S, abs=1.0)
    assert delays[-1] == pytest.approx(RETRY_DELAYS_S[-1], abs=1.0)
    assert all(one < other * 1.0001 for one, other in pairwise(delays))


def test_retries_are_spread() -> None:
    assert retry_at(0, 0.0, 1.0, FAILURE) == pytest.approx(RETRY_DELAYS_S[0] * (1 + JITTER), abs=1.0)


@pytest.mark.parametrize("failure", CrawlOutcome)
def test_the_time_of_a_retry_encodes_why_the_last_try_failed(failure: CrawlOutcome) -> None:
    for attempts, now in ((0, 1_790_000_000.4999), (3, 1_790_000_000.9999), (20, 4_000_000_000.001)):
        at = retry_at(attempts, now, 0.123456, failure)
        assert at >= now + RETRY_DELAYS_S[0]
        assert last_failure(at) is failure


def tries(*failures: CrawlOutcome) -> list[float]:
    """Return the delays after successive tries, each of which fails for the next of these reasons."""
    at, delays = 0.0, []
    for attempts, failure in enumerate(failures):
        now = 1_790_000_000.0 + attempts
        at = retry_at(attempts, now, 0.0, failure, at)
        assert last_failure(at) is failure
        delays.append(at - now)
    return delays


@pytest.mark.parametrize("failure", [CrawlOutcome.POSTPONED, CrawlOutcome.NO_LOOKUP])
def test_a_try_postponed_by_our_limits_is_repeated_soon_and_then_less_often(failure: CrawlOutcome) -> None:
    delays = tries(*[failure] * 1100)
    expected = [POSTPONED_S, POSTPONED_S, 2 * POSTPONED_S, 3 * POSTPONED_S, POSTPONED_MAX_S]
    assert [delays[n] for n in (0, 9, 10, 11, 1099)] == pytest.approx(expected, abs=1.0)


def test_a_try_postponed_by_our_limits_does_not_count_as_a_failure() -> None:
    delays = tries(FAILURE, *[CrawlOutcome.POSTPONED] * 20, FAILURE, CrawlOutcome.NO_LOOKUP, FAILURE)
    assert [delays[0], delays[21], delays[23]] == pytest.approx(RETRY_DELAYS_S[:3], abs=1.0)


def test_no_reason_is_read_from_times_that_encode_none() -> None:
    assert last_failure(0.0) is None
    assert last_failure(1_790_000_000.999) is None
