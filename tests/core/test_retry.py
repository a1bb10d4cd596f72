"""Retry decisions: back-off, Retry-After, blocked hosts, and bounds against hostile servers (C5)."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import (
    BadResponse,
    BodyTooLarge,
    ConnectFailed,
    ConnectionLost,
    FetchError,
    FetchTimeout,
    TlsFailed,
)
from lycosa.core.retry import RETRY_STATUSES, RetryDecision, RetryPolicy, decide_error, decide_status, parse_retry_after

NOW = 1_784_111_777.0  # Wed, 15 Jul 2026 10:36:17 GMT
POLICY = RetryPolicy()
LATER = NOW + 90


def test_retry_statuses_are_those_of_scrapy():
    assert {408, 429, 500, 502, 503, 504, 522, 524} == RETRY_STATUSES


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("  7 ", 7),
        ("999999999999", 3600),
        (formatdate(LATER, usegmt=True), 90),
        (formatdate(NOW - 90, usegmt=True), 0),
        ("Wed, 15 Jul 2026 10:37:47 GMT", 90),
        ("Wednesday, 15-Jul-26 10:37:47 GMT", 90),
        ("Wed Jul 15 10:37:47 2026", 90),
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Wed, 31 Dec 9999 23:59:59 GMT", 3600),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(value, seconds):
    assert parse_retry_after(value, NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "soon",
        "-1",
        "1.5",
        "1e3",
        "inf",
        "nan",
        "١٢",
        "²",
        "9" * 65,
        "Wed, 32 Jul 2026 10:37:47 GMT",
        "Wed, 15 Foo 2026 10:37:47 GMT",
        "Wed, 15 Jul 2026 25:37:47 GMT",
        "Wed, 15 Jul 0000 10:37:47 GMT",
        "Wed, 15 Jul 2026 10:37:47 GMT+1",
        "2026-07-15T10:37:47Z",
        "120, 240",
        "1\x00",
    ],
)
def test_invalid_retry_after_is_ignored(value):
    assert parse_retry_after(value, NOW) is None


@given(st.text(max_size=80) | st.from_regex(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", fullmatch=True))
def test_no_retry_after_raises_or_exceeds_its_bound(value):
    seconds = parse_retry_after(value, NOW, 100.0)
    assert seconds is None or 0 <= seconds <= 100


def backoffs(jitter: float, tries: int = 12) -> list[float]:
    policy = RetryPolicy(retries_max=tries, base_s=1.0, cap_s=60.0)
    times = [decide_status(policy, attempts, 500, "", NOW, jitter).retry_at for attempts in range(tries)]
    return [time - NOW for time in times if time is not None]


def test_back_off_doubles_up_to_the_cap():
    assert backoffs(1.0, 8) == [1, 2, 4, 8, 16, 32, 60, 60]


def test_half_of_the_back_off_is_jitter():
    assert backoffs(0.0, 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]
    assert backoffs(0.5, 2) == [0.75, 1.5]


def test_no_number_of_attempts_overflows():
    policy = RetryPolicy(retries_max=10**9)
    assert decide_status(policy, 10**6, 500, "", NOW, 1.0).retry_at == NOW + 60


def test_default_policy_makes_three_attempts():
    decisions = [decide_status(POLICY, attempts, 500, "", NOW, 1.0) for attempts in range(3)]
    assert [each.retry_at for each in decisions] == [NOW + 1, NOW + 2, None]
    assert {each.reason for each in decisions} == {"500"}


@pytest.mark.parametrize("status", [429, 503])
def test_overloaded_host_is_blocked_as_a_whole(status):
    assert decide_status(POLICY, 0, status, "", NOW, 1.0) == RetryDecision(NOW + 1, NOW + 1, str(status))
    assert decide_status(POLICY, 0, status, "90", NOW, 1.0) == RetryDecision(LATER, LATER, str(status))


def test_overloaded_host_is_blocked_even_if_the_page_is_dead():
    assert decide_status(POLICY, 2, 503, "90", NOW, 1.0) == RetryDecision(None, LATER, "503")


@pytest.mark.parametrize("status", [408, 500, 502, 504])
def test_page_that_fails_alone_does_not_block_its_host(status):
    assert decide_status(POLICY, 0, status, "", NOW, 1.0) == RetryDecision(NOW + 1, 0.0, str(status))


def test_retry_after_applies_to_every_status_and_never_shortens_the_back_off():
    assert decide_status(POLICY, 0, 500, "90", NOW, 0.0).retry_at == LATER
    assert decide_status(POLICY, 1, 429, "0", NOW, 1.0).retry_at == NOW + 2


def test_retry_after_is_bounded():
    policy = RetryPolicy(retry_after_max_s=10)
    assert decide_status(policy, 0, 503, "999999999", NOW, 0.0) == RetryDecision(NOW + 10, NOW + 10, "503")


@pytest.mark.parametrize("kind", [ConnectFailed, ConnectionLost, FetchTimeout, TlsFailed, FetchError])
def test_temporary_errors_are_retried(kind):
    rests = NOW + 1 if kind is ConnectFailed else 0.0
    assert decide_error(POLICY, 0, kind("went wrong"), NOW, 1.0) == RetryDecision(NOW + 1, rests, "went wrong")
    assert decide_error(POLICY, 2, kind("went wrong"), NOW, 1.0).retry_at is None


@pytest.mark.parametrize("error", [BadResponse("no HTTP"), BodyTooLarge("no HTTP"), TlsFailed("no HTTP", retry=False)])
def test_final_errors_are_not_retried(error):
    assert decide_error(POLICY, 0, error, NOW, 1.0) == RetryDecision(None, 0.0, "no HTTP")
