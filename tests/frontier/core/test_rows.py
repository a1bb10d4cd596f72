"""Rows as lines of text and back (F2, F6), and selections of rows."""

from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import UsageError
from lycosa.core.url import fingerprint, host_key
from lycosa.frontier.core.model import Extras, Row, Selection, UrlRecord
from lycosa.frontier.core.rows import Matcher, from_line, from_text, to_line
from lycosa.http.core.model import Validators

URL = "https://a.example/x?b=1"
WHOLE = UrlRecord(
    1,
    fingerprint("POST", URL, b"\x00\xff"),
    URL,
    host_key(URL),
    segment="2026-11-21",
    depth=3,
    priority=-7,
    not_before=1e9,
    attempts=2,
    redirects=1,
    extras=Extras("POST", {"A": "b"}, b"\x00\xff", "parse_it", {"n": [1, "x", None]}, {"k": 1.5}),
    validators=Validators('"e"', "Mon", 5.0),
)


def test_a_plain_row_is_a_short_line():
    row = Row("queued", UrlRecord(1, 0xAB, "http://a.example/", "http://a.example:80"))
    assert to_line(row) == b'{"url":"http://a.example/","state":"queued","fingerprint":"00000000000000ab"}'


@pytest.mark.parametrize("state", ["queued", "delayed", "retry"])
def test_an_unfinished_row_is_restored_with_no_failed_attempts(state):
    back = from_line(to_line(Row(state, WHOLE, 1e9)))
    assert back == Row(state, msgspec.structs.replace(WHOLE, attempts=0), 1e9)


@pytest.mark.parametrize("state", ["leased", "done", "dead", "archived"])
def test_a_leased_or_ended_row_is_restored_as_due_at_once(state):
    back = from_line(to_line(Row(state, WHOLE, 7.0, "timeout")))
    assert back == Row(state, msgspec.structs.replace(WHOLE, attempts=0, not_before=0.0), 7.0, "timeout")


def test_duplicates_are_always_dropped_on_import():
    row = Row("queued", msgspec.structs.replace(WHOLE, dont_filter=True))
    assert json.loads(to_line(row))["dont_filter"] is True
    assert from_line(to_line(row)).record.dont_filter is False


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), plain, max_size=3), st.dictionaries(st.text(), plain, max_size=3), st.binary())
def test_any_plain_data_of_a_request_is_restored(meta, kwargs, body):
    record = msgspec.structs.replace(WHOLE, extras=Extras("PUT", {}, body, "", meta, kwargs), attempts=0)
    record = msgspec.structs.replace(record, fingerprint=fingerprint("PUT", URL, body))
    line = to_line(Row("queued", record))
    assert b"\n" not in line
    json.loads(line)
    assert from_line(line).record == record


def test_values_that_json_lacks_are_restored():
    meta = {"inf": math.inf, "nested": {"b": b"\x00"}}
    record = msgspec.structs.replace(WHOLE, extras=Extras(meta=meta))
    assert from_line(to_line(Row("queued", record))).record.extras == Extras(meta=meta)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"{", "not a row of an export"),
        (b"{}", "`url`"),
        (b'{"url": 5}', "$.url"),
        (b'{"url": "example.com"}', "write https://example.com"),
        (b'{"url": "mailto:x@y.example"}', "http"),
        (b'{"url": "http://u:p@a.example/"}', "user name or password"),
        (b'{"url": "http://a.example/", "sate": "dead"}', "sate"),
        (b'{"url": "http://a.example/", "state": "deaad"}', "deaad"),
        (b'{"url": "http://a.example/", "state": "new"}', "write queued"),
        (b'{"url": "http://a.example/", "not_before": -1}', "unix seconds"),
        (b'{"url": "http://a.example/", "not_before": 1e300}', "unix seconds"),
        (b'{"url": "http://a.example/", "not_before": 1e999}', "not a row"),
        (b'{"url": "http://a.example/", "priority": 99999999999}', "is out of range"),
        (b'{"url": "http://a.example/", "depth": -1}', "is out of range"),
        (b'{"url": "http://a.example/", "segment": "' + b"s" * 101 + b'"}', "at most 100"),
        (b'{"url": "http://a.example/", "body": "***"}', "not a row"),
        (b'{"url": "http://a.example/", "headers": {"a": 1}}', "$.headers"),
        (b'{"url": "http://a.example/", "meta_packed": "wQ=="}', "not a row"),
        (b'{"url": "http://a.example/", "meta": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", "not a row"),
        (b'{"url": "\xff"}', "not a row"),
        (b"\xff\xfe", "not UTF-8"),
        (b"just words", "write https://"),
        (b"http://a.example/ http://b.example/", ""),
        (b"[1]", ""),
        (b"\x00", ""),
    ],
)
def test_an_invalid_line_is_refused_with_a_message(line, message):
    try:
        row = from_text(line)
    except UsageError as error:
        assert message in str(error)
        assert "\n" not in str(error)
    else:
        assert message == ""
        assert row.record.url.startswith("http://a.example/")


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(line):
    for text in (line, b"{" + line, b'{"url":"http://a.example/",' + line):
        try:
            row = from_text(text)
        except UsageError:
            continue
        assert row.record.url.startswith("http")


def test_a_plain_url_is_a_start_url():
    (row,) = [from_text(b"HTTP://A.example:80/x#y", lambda method, url, body: len(method + url) + len(body))]
    assert row.record == UrlRecord(1, len("GEThttp://a.example/x"), "http://a.example/x", "http://a.example:80")


@pytest.mark.parametrize(
    ("selection", "matches"),
    [
        (Selection(), True),
        (Selection(("dead",)), True),
        (Selection(("done", "dead")), True),
        (Selection(("done",)), False),
        (Selection(segment="2026-11-21"), True),
        (Selection(segment=""), False),
        (Selection(host="https://a.example:443"), True),
        (Selection(host="https://a.example"), False),
        (Selection(url="https://*.example/*"), True),
        (Selection(url="*A.example*"), False),
        (Selection(url="a.example"), False),
        (Selection(reason="time*"), True),
        (Selection(reason="time"), False),
        (Selection(before=8.0), True),
        (Selection(before=7.0), False),
        (Selection(("dead",), reason="time*", url="*z"), False),
    ],
    ids=str,
)
def test_all_fields_of_a_selection_must_match(selection, matches):
    assert Matcher(selection).matches(Row("dead", WHOLE, 7.0, "timeout")) is matches


def test_an_age_selects_only_ended_urls():
    assert not Matcher(Selection(before=1e12)).matches(Row("delayed", WHOLE, 7.0))
