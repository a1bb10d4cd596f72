"""Reports of the gateway's clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadMessage
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.outcomes.reports import REASON_MAX, read_report


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ('{"lease": "a-1", "status": 200}', Outcome()),
        ('{"lease": "a-1", "status": 404}', Outcome(Blame.NOBODY, "404")),
        ('{"lease": "a-1", "status": 429, "retry_after": 60}', Outcome(Blame.SITE, "429", 60.0)),
        ('{"lease": "a-1", "outcome": "site", "reason": "soft ban"}', Outcome(Blame.SITE, "soft ban")),
        ('{"lease": "a-1", "outcome": "proxy"}', Outcome(Blame.PROXY, "reported: proxy")),
        ('{"session": "s", "site": "x", "outcome": "none"}', Outcome(Blame.NONE, "reported: none")),
    ],
)
def test_a_report_has_its_outcome(text: str, outcome: Outcome):
    assert read_report(text.encode()).to_outcome() == outcome


def test_a_reason_is_truncated_and_made_printable():
    report = read_report(b'{"lease": "a", "outcome": "site", "reason": "\\u001b[2J' + b"x" * 500 + b'"}')
    assert report.to_outcome().reason == "[2J" + "x" * (REASON_MAX - 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"lease": 5, "status": 200}', "cannot be read"),
        ('{"lease": "a", "status": 200, "more": 1}', "cannot be read"),
        ('{"lease": "a", "outcome": "ban"}', "cannot be read"),
        ('{"status": 200}', "names no lease"),
        ('{"session": "s", "status": 200}', "names no lease"),
        ('{"lease": "a"}', "has no result"),
        ('{"lease": "a", "status": 0}', "has no result"),
        ('{"lease": "a", "status": 600}', "has no result"),
        ('{"lease": "a", "outcome": "unfit"}', '"outcome": none, nobody, miss, site, proxy$'),
        ('{"lease": "a", "status": 429, "retry_after": -1}', "retry_after"),
        ('{"lease": "a", "status": 429, "retry_after": 1e99}', "retry_after"),
        ("[" * 4000, "report"),
    ],
)
def test_invalid_reports_are_refused(text: str, message: str):
    with pytest.raises(BadMessage, match=message) as raised:
        read_report(text.encode())
    assert raised.value.status == 400


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(data: bytes):
    with pytest.raises(BadMessage):
        read_report(b"\0" + data)
