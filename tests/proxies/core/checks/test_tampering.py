"""Changes that a proxy has made to a message."""

from __future__ import annotations

from lycosa.core.headers import Headers
from lycosa.proxies.core.checks.anonymity import SeenRequest
from lycosa.proxies.core.checks.tampering import FOUND_MAX, answer_changes, request_changes

DIRECT = SeenRequest("198.51.100.7", (("host", "judge"), ("user-agent", "Lycosa"), ("accept", "*/*")))
SENT = {"content-type": "text/html", "cache-control": "no-store"}


def test_the_usual_headers_of_proxies_are_ignored() -> None:
    fields = (("via", "1.1 squid"), ("x-forwarded-for", "1.2.3.4"), ("cache-control", "max-age=259200"))
    assert request_changes(SeenRequest("203.0.113.9", DIRECT.fields + fields), DIRECT) == []
    usual = [("Content-Type", "text/html"), ("X-Cache", "MISS from a"), ("Via", "1.1 a"), ("Age", "1"), ("Date", "now")]
    assert answer_changes(Headers.of([*usual, ("Cache-Control", "no-store")]), SENT) == []


def test_added_changed_and_dropped_headers_of_a_request_are_found() -> None:
    seen = SeenRequest("203.0.113.9", (("host", "judge"), ("user-agent", "Mozilla"), ("cookie", "id=1")))
    assert request_changes(seen, DIRECT) == [
        "request adds cookie", "request changes user-agent", "request drops accept",
    ]  # fmt: skip


def test_added_and_changed_headers_of_a_response_are_found() -> None:
    headers = Headers.of([("Content-Type", "text/plain"), ("Set-Cookie", "track=1"), ("X-Ad-Server", "yes")])
    assert answer_changes(headers, SENT) == [
        "answer adds set-cookie", "answer adds x-ad-server", "answer changes content-type",
    ]  # fmt: skip


def test_reported_changes_are_limited_and_printable() -> None:
    many = Headers.of([(f"X-Made-Up-{number}", "1") for number in range(500)] + [("X-\x1b[31m" + "y" * 999, "1")])
    found = answer_changes(many, SENT)
    assert len(found) == FOUND_MAX
    assert answer_changes(Headers.of([("X-\x1b" + "y" * 999, "1")]), {}) == ["answer adds x-?" + "y" * 37]
