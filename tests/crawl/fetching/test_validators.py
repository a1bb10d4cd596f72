"""Conditional requests from stored validators, valid or not (RFC 9110 §8.8, §13.1, §15.4.5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from lycosa.core.headers import Headers
from lycosa.crawl.engine.records import replacement_record, to_request
from lycosa.crawl.fetching.redirects import redirect_request
from lycosa.crawl.fetching.validators import make_conditional, update_validators, validators_of
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request

DATE = "Sat, 21 Nov 2026 10:00:00 GMT"
URL = "http://a.example/"
STORED = Validators('W/"1"', DATE, 100.0)
RECORD = UrlRecord(1, 1, URL, "http://a.example:80", validators=STORED)


def headers(request: Request) -> dict[str, str]:
    return dict(make_conditional(request, RECORD, {}).headers)


def test_both_validators_are_sent():
    assert headers(Request(URL)) == {"If-None-Match": 'W/"1"', "If-Modified-Since": DATE}
    assert headers(Request(URL, headers={"X": "1"}))["X"] == "1"


@pytest.mark.parametrize("known", [None, Validators(), Validators(fetched_at=5.0)])
def test_without_validators_a_request_is_unchanged(known):
    request = Request(URL)
    assert make_conditional(request, replace(RECORD, validators=known), {}) is request


@pytest.mark.parametrize(
    "request_",
    [
        Request(URL, method="POST"),
        Request(URL, method="HEAD"),
        Request(URL, body=b"x"),
        Request(URL, headers={"if-none-match": '"mine"'}),
        Request(URL, headers={"If-Modified-Since": DATE}),
        Request(URL, headers={"Range": "bytes=0-9"}),
    ],
)
def test_requests_other_than_plain_gets_are_unchanged(request_):
    assert make_conditional(request_, RECORD, {}) is request_


def test_conditions_of_the_user_are_not_overridden():
    request = Request(URL)
    assert make_conditional(request, RECORD, {"If-None-Match": "*"}) is request


@pytest.mark.parametrize("etag", ['"abc"', 'W/"abc"', '""', '"a,b;c\'"', '"' + "x" * 1000 + '"'])
def test_entity_tags_are_kept_unchanged(etag):
    assert validators_of(Headers.of([("ETag", etag)]), 5.0) == Validators(etag, "", 5.0)


@pytest.mark.parametrize("date", [DATE, "Saturday, 21-Nov-26 10:00:00 GMT", "Sat Nov 21 10:00:00 2026"])
def test_dates_are_kept_unchanged(date):
    assert validators_of(Headers.of([("Last-Modified", date)]), 5.0) == Validators("", date, 5.0)


@pytest.mark.parametrize(
    "value",
    [
        "abc", '"', '"a"b"', 'w/"a"', '"a b"', '"a\tb"', '"a\nX: 1"', '"a\x00"', '"\xe4"', '"' + "x" * 1001 + '"', "*",
        "", "yesterday", DATE + " ", DATE + "\rX: 1", "Sat, 21 Nov 2026 10:00:00 CET", "9" * 5000, "-1", "0",
    ],
)  # fmt: skip
def test_invalid_validators_are_dropped(value):
    for name in ("ETag", "Last-Modified"):
        fields = Headers(f"{name}: {value}".encode("latin-1"))
        kept = validators_of(fields, 5.0)
        assert kept is None or kept.modified == DATE == value.strip()


def test_a_304_updates_the_validators():
    assert update_validators(STORED, Headers(), 200.0) == Validators('W/"1"', DATE, 200.0)
    assert update_validators(STORED, Headers.of([("ETag", '"2"')]), 200.0) == Validators('"2"', DATE, 200.0)
    assert update_validators(STORED, Headers.of([("ETag", "evil")]), 200.0) == Validators('W/"1"', DATE, 200.0)


def test_validators_are_not_sent_to_a_redirect_target():
    assert (
        replacement_record(RECORD, redirect_request(to_request(RECORD), "http://a.example/b", 301), object()).validators
        is None
    )
