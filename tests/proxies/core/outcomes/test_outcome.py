"""The outcome of a response: the table in the docstring of the module `outcome`, and the rules of users."""

from __future__ import annotations

import pytest

from lycosa.core.errors import (
    BadProxy,
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    TlsFailed,
)
from lycosa.proxies.core.outcomes.outcome import (
    SEARCHED_MAX,
    Blame,
    Outcome,
    OutcomeRule,
    checked_rules,
    judge,
    judge_error,
    measured,
)


def reached(error: FetchError) -> FetchError:
    error.reached = True
    return error


@pytest.mark.parametrize(
    ("status", "blame"),
    [
        (200, Blame.NONE),
        (301, Blame.NONE),
        (304, Blame.NONE),
        (401, Blame.NOBODY),
        (403, Blame.SITE),
        (404, Blame.NOBODY),
        (407, Blame.PROXY),
        (410, Blame.NOBODY),
        (429, Blame.SITE),
        (500, Blame.NOBODY),
        (503, Blame.NOBODY),
    ],
)
def test_each_status_has_its_blame(status: int, blame: Blame) -> None:
    assert judge(status, {}, b"<html>").blame is blame


@pytest.mark.parametrize(
    ("error", "blame"),
    [
        (ConnectFailed("connection refused"), Blame.PROXY),
        (ConnectFailed("proxy not found"), Blame.PROXY),
        (ConnectFailed("proxy answered 407"), Blame.PROXY),
        (ConnectFailed("proxy answered 401"), Blame.PROXY),
        (ConnectFailed("proxy refused the login"), Blame.PROXY),
        (reached(ConnectFailed("proxy refused the login")), Blame.PROXY),
        (reached(ConnectFailed("proxy could not connect (connection refused)")), Blame.MISS),
        (ConnectFailed("no connection after 10 s"), Blame.PROXY),
        (reached(ConnectFailed("no connection after 10 s")), Blame.MISS),
        (reached(ConnectFailed("host not found")), Blame.NOBODY),
        (ConnectFailed("proxy answered 503"), Blame.MISS),
        (ConnectFailed("proxy answered 403"), Blame.MISS),
        (FetchTimeout("timed out after 10 s"), Blame.PROXY),
        (reached(FetchTimeout("timed out after 10 s")), Blame.MISS),
        (ConnectionLost("connection closed without an answer"), Blame.MISS),
        (TlsFailed("certificate expired"), Blame.MISS),
        (BadResponse("not HTTP"), Blame.MISS),
        (BadResponse("cannot be decompressed"), Blame.NOBODY),
        (BodyTooLarge("body too large"), Blame.NOBODY),
        (FetchError("not a URL that can be fetched"), Blame.NOBODY),
    ],
)
def test_each_error_has_its_blame(error: FetchError, blame: Blame) -> None:
    outcome = judge_error(error, 0.25)
    assert (outcome.blame, outcome.reason, outcome.latency_s) == (blame, str(error), 0.25)


def test_a_captcha_is_a_ban_only_with_the_status_of_a_challenge() -> None:
    page = b"<div class=G-Recaptcha>"
    assert judge(503, {}, page).blame is Blame.SITE
    assert judge(200, {}, page).blame is Blame.NONE, "the page may have a form with a captcha"
    assert judge(503, {}, b" " * SEARCHED_MAX + page).blame is Blame.NOBODY, "only the start of a body is searched"


def test_retry_after_counts_only_with_a_ban() -> None:
    headers = {"retry-after": "120"}
    assert judge(429, headers, b"").rest_s == 120.0
    assert judge(503, headers, b"").rest_s is None
    assert judge(429, {"retry-after": "nonsense"}, b"").rest_s is None


def test_the_first_rule_that_matches_decides() -> None:
    rules = checked_rules(
        [
            OutcomeRule(Blame.NONE, "no results", statuses=frozenset({403}), body="no results"),
            OutcomeRule(Blame.SITE, "soft ban", statuses=frozenset({200}), body="(?i)unusual traffic"),
            OutcomeRule(Blame.SITE, "redirected to the captcha", location="/captcha"),
            OutcomeRule(Blame.SITE, "stub", statuses=frozenset({200}), shorter=10),
        ]
    )

    def outcome_of(status: int, body: bytes, *locations: str) -> tuple[Blame, str]:
        outcome = judge(status, {}, body, locations=locations, rules=rules)
        return outcome.blame, outcome.reason

    assert outcome_of(403, b"sorry, no results") == (Blame.NONE, "no results")
    assert outcome_of(403, b"go away, you") == (Blame.SITE, "403")
    assert outcome_of(200, b"We see Unusual Traffic") == (Blame.SITE, "soft ban")
    assert outcome_of(302, b"", "http://a.example/", "/captcha?x") == (Blame.SITE, "redirected to the captcha")
    assert outcome_of(200, b"ok") == (Blame.SITE, "stub")
    assert outcome_of(200, b"a long page of text") == (Blame.NONE, "")


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([OutcomeRule(Blame.SITE, "all")], "has no condition"),
        ([OutcomeRule(Blame.SITE, "x", body="(")], "is not a valid pattern"),
        ([OutcomeRule(Blame.SITE, "x", shorter=1)] * 101, "at most 100"),
    ],
)
def test_invalid_rules_are_refused(rules: list[OutcomeRule], message: str) -> None:
    with pytest.raises(BadProxy, match=message):
        checked_rules(rules)


@pytest.mark.parametrize(
    ("outcomes", "held_s", "latencies"),
    [
        ([Outcome()], 0.5, [0.5]),
        ([Outcome(Blame.SITE, "403")], 0.5, [0.5]),
        ([Outcome(Blame.MISS), Outcome()], 0.5, [None, 0.25]),  # the time per use
        ([Outcome(latency_s=0.1), Outcome()], 0.5, [0.1, None]),
        ([Outcome(Blame.PROXY)], 0.5, [None]),
        ([Outcome(Blame.NOBODY, "ValueError")], 0.5, [None]),
        ([Outcome()], 60.1, [None]),
        ([Outcome()], 0.0, [None]),
        ([], 0.5, []),
    ],
)
def test_a_latency_is_measured_from_the_lease(outcomes: list[Outcome], held_s: float, latencies: list[float | None]):
    assert [each.latency_s for each in measured(outcomes, held_s)] == latencies
    assert [each.blame for each in measured(outcomes, held_s)] == [each.blame for each in outcomes]
