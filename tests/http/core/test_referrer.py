"""Referrer policies of the W3C: every policy against same origin, another origin and plain http (C2, C7)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.http.core.referrer import POLICIES, REFERRER_MAX, Referrer, policy_of, referrer

TLS = "https://example.com/page?q=1#part"
PLAIN = "http://example.com/page?q=1"
WHOLE, ALONE = "https://example.com/page?q=1", "https://example.com/"
PLAIN_ALONE = "http://example.com/"


@pytest.mark.parametrize(
    ("policy", "same", "other_tls", "other_plain"),
    [
        ("no-referrer", "", "", ""),
        ("no-referrer-when-downgrade", WHOLE, WHOLE, ""),
        ("same-origin", WHOLE, "", ""),
        ("origin", ALONE, ALONE, ALONE),
        ("strict-origin", ALONE, ALONE, ""),
        ("origin-when-cross-origin", WHOLE, ALONE, ALONE),
        ("strict-origin-when-cross-origin", WHOLE, ALONE, ""),
        ("unsafe-url", WHOLE, WHOLE, WHOLE),
        ("scrapy-default", WHOLE, WHOLE, ""),
        ("", WHOLE, WHOLE, ""),
    ],
)
def test_referrers_of_an_https_page(policy: str, same: str, other_tls: str, other_plain: str):
    targets = ["https://example.com/x", "https://other.org/", "http://other.org/"]
    assert [referrer(policy, TLS, target) for target in targets] == [same, other_tls, other_plain]
    assert referrer(policy, TLS, "http://example.com/x") == other_plain  # another scheme is another origin
    assert referrer(policy, TLS, "https://sub.example.com/x") == other_tls
    assert referrer(policy, TLS, "https://example.com:8443/x") == other_tls
    assert referrer(policy, TLS, "https://EXAMPLE.com:443") == same


@pytest.mark.parametrize(
    ("policy", "same", "other"),
    [
        ("no-referrer", "", ""),
        ("no-referrer-when-downgrade", PLAIN, PLAIN),
        ("same-origin", PLAIN, ""),
        ("origin", PLAIN_ALONE, PLAIN_ALONE),
        ("strict-origin", PLAIN_ALONE, PLAIN_ALONE),
        ("origin-when-cross-origin", PLAIN, PLAIN_ALONE),
        ("strict-origin-when-cross-origin", PLAIN, PLAIN_ALONE),
        ("unsafe-url", PLAIN, PLAIN),
        ("scrapy-default", PLAIN, PLAIN),
    ],
)
def test_referrers_of_an_http_page(policy: str, same: str, other: str):
    targets = ["http://example.com/x", "http://other.org/", "https://other.org/", "https://example.com/"]
    assert [referrer(policy, PLAIN, target) for target in targets] == [same, other, other, other]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("http://user:password@example.com/page#x", "http://example.com/page"),
        ("https://example.com:443/a", "https://example.com/a"),
        ("https://example.com:444/a", "https://example.com:444/a"),
        ("http://example.com:80", "http://example.com/"),
        ("http://Example.com/A", "http://example.com/A"),
        ("https://example.com/" + "x" * (REFERRER_MAX - 20), "https://example.com/" + "x" * (REFERRER_MAX - 20)),
        ("https://example.com/" + "x" * REFERRER_MAX, "https://example.com/"),
        ("file:///pages/a.html", ""),
        ("data:text/html,x", ""),
        ("about:blank", ""),
        ("s3://bucket/key", ""),
        ("nonsense", ""),
        ("", ""),
    ],
)
def test_credentials_and_fragments_are_not_sent(source: str, expected: str):
    assert referrer("unsafe-url", source, "https://other.org/") == expected


def test_no_referrer_for_an_invalid_url():
    assert referrer("unsafe-url", TLS, "nonsense") == ""


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("no-referrer", "no-referrer"),
        ("ORIGIN", "origin"),
        ("same-origin, strict-origin", "strict-origin"),
        ("unsafe-url,future-policy", "unsafe-url"),
        ("  same-origin\t,x ", "same-origin"),
        ("", ""),
        ("future-policy", None),
        ("no referrer", None),
    ],
)
def test_last_known_policy_counts(text: str, policy: str | None):
    assert policy_of(text) == policy


@given(st.sampled_from(sorted(POLICIES)), st.text() | st.text().map("https://a.b/".__add__), st.text())
def test_any_text_is_accepted_and_no_fragment_or_password_is_sent(policy: str, source: str, target: str):
    sent = Referrer(policy, source).to(target)
    assert "#" not in sent
    assert sent == "" or sent.startswith(("http://", "https://"))
    assert len(sent) <= REFERRER_MAX
