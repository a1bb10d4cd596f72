"""How often a request is sent through another proxy, and who is blamed (P2, P5)."""

from __future__ import annotations

from lycosa.proxies.core.attempts import FORBIDDEN_BLAMED, Attempts
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

DOWN = Outcome(Blame.PROXY, "connection refused")
FORBIDDEN = Outcome(Blame.SITE, "403", rest_s=9.0)
SLOW_DOWN = Outcome(Blame.SITE, "429")


def test_a_request_avoids_what_it_failed_through_and_has_enough_at_last() -> None:
    attempts = Attempts(3)
    assert attempts.avoided("page") == frozenset()
    assert attempts.failed("page", "a", DOWN) == 0
    assert attempts.failed("page", "b", SLOW_DOWN) == 0
    assert attempts.avoided("page") == {"a", "b"}
    assert attempts.avoided("another") == frozenset()
    assert attempts.failed("page", "c", DOWN) == 3
    assert (attempts.avoided("page"), len(attempts)) == (frozenset(), 0)


def test_the_same_proxy_again_counts_too() -> None:
    attempts = Attempts(2)
    assert [attempts.failed("page", "only", DOWN) for _ in range(4)] == [0, 2, 0, 2]


def test_an_answer_ends_it() -> None:
    attempts = Attempts(2)
    attempts.failed("page", "a", DOWN)
    attempts.over("page")
    attempts.over("page")
    assert attempts.failed("page", "a", DOWN) == 0


def test_a_403_of_one_page_blames_few() -> None:
    attempts = Attempts(9)
    told = []
    for proxy in range(5):
        told.append(attempts.judged("page", FORBIDDEN))
        attempts.failed("page", str(proxy), FORBIDDEN)
    blames = [each.blame for each in told]
    assert blames == [Blame.SITE] * FORBIDDEN_BLAMED + [Blame.MISS] * (5 - FORBIDDEN_BLAMED)
    assert (told[0].rest_s, told[-1].rest_s, told[-1].reason) == (9.0, None, "403")
    assert attempts.judged("page", SLOW_DOWN) is SLOW_DOWN
    assert attempts.judged("another", FORBIDDEN) is FORBIDDEN


def test_other_failures_do_not_excuse_a_403() -> None:
    attempts = Attempts(9)
    for proxy in range(5):
        attempts.failed("page", str(proxy), SLOW_DOWN)
    assert attempts.judged("page", FORBIDDEN) is FORBIDDEN


def test_the_one_that_failed_longest_ago_is_forgotten() -> None:
    attempts = Attempts(9, remembered=2)
    for page in ("first", "second", "first", "third"):
        attempts.failed(page, page, DOWN)
    assert [attempts.avoided(page) for page in ("first", "second", "third")] == [{"first"}, set(), {"third"}]
