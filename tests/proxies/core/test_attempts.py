"""How often a request is retried through another proxy, and which proxies are blamed."""

from __future__ import annotations

from lycosa.proxies.core.attempts import FORBIDDEN_MAX, Attempts
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

DOWN = Outcome(Blame.PROXY, "connection refused")
FORBIDDEN = Outcome(Blame.SITE, "403", rest_s=9.0)
SLOW_DOWN = Outcome(Blame.SITE, "429")


def test_a_request_avoids_its_failed_proxies_and_fails_after_enough_of_them() -> None:
    attempts = Attempts(3)
    assert attempts.failed_proxies("page") == frozenset()
    assert attempts.add_failure("page", "a", DOWN) == 0
    assert attempts.add_failure("page", "b", SLOW_DOWN) == 0
    assert attempts.failed_proxies("page") == {"a", "b"}
    assert attempts.failed_proxies("another") == frozenset()
    assert attempts.add_failure("page", "c", DOWN) == 3
    assert (attempts.failed_proxies("page"), len(attempts._failed)) == (frozenset(), 0)


def test_a_second_failure_of_the_same_proxy_counts() -> None:
    attempts = Attempts(2)
    assert [attempts.add_failure("page", "only", DOWN) for _ in range(4)] == [0, 2, 0, 2]


def test_a_response_resets_the_failures() -> None:
    attempts = Attempts(2)
    attempts.add_failure("page", "a", DOWN)
    attempts.forget("page")
    attempts.forget("page")
    assert attempts.add_failure("page", "a", DOWN) == 0


def test_a_403_of_one_page_blames_only_a_few_proxies() -> None:
    attempts = Attempts(9)
    reported = []
    for proxy in range(5):
        reported.append(attempts.judge("page", FORBIDDEN))
        attempts.add_failure("page", str(proxy), FORBIDDEN)
    blames = [each.blame for each in reported]
    assert blames == [Blame.SITE] * FORBIDDEN_MAX + [Blame.MISS] * (5 - FORBIDDEN_MAX)
    assert (reported[0].rest_s, reported[-1].rest_s, reported[-1].reason) == (9.0, None, "403")
    assert attempts.judge("page", SLOW_DOWN) is SLOW_DOWN
    assert attempts.judge("another", FORBIDDEN) is FORBIDDEN


def test_other_failures_do_not_count_towards_the_limit_of_403s() -> None:
    attempts = Attempts(9)
    for proxy in range(5):
        attempts.add_failure("page", str(proxy), SLOW_DOWN)
    assert attempts.judge("page", FORBIDDEN) is FORBIDDEN


def test_the_request_that_failed_longest_ago_is_forgotten() -> None:
    attempts = Attempts(9, requests_max=2)
    for page in ("first", "second", "first", "third"):
        attempts.add_failure(page, page, DOWN)
    assert [attempts.failed_proxies(page) for page in ("first", "second", "third")] == [{"first"}, set(), {"third"}]
