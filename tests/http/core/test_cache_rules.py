"""The rules of the HTTP cache (C10): RFC 9111 section by section, and replay.

The list of behaviours follows the public cache tests (cache-tests.fyi) for a private cache.
"""

from __future__ import annotations

from email.utils import formatdate

import pytest

from lycosa.core.headers import Headers
from lycosa.http.core.cache_rules import (
    HEURISTIC_MAX_S,
    SECONDS_MAX,
    CacheAction,
    CacheDecision,
    CacheQuery,
    PrivateRules,
    ReplayRules,
    StoredResponse,
    cache_key,
    directives,
    freshen,
    headers_to_serve,
    to_stored,
    urls_to_invalidate,
)
from lycosa.http.core.model import HttpResponse, Timings

NOW = 1_800_000_000.0
RULES = PrivateRules()
URL = "http://a.example/x"
GET = CacheQuery("GET", URL)
HOUR = 3600


def date(offset_s: float = 0.0) -> str:
    return formatdate(NOW + offset_s, usegmt=True)


def response(*fields: tuple[str, str], status: int = 200, **more) -> HttpResponse:
    return HttpResponse(URL, status, Headers.of(fields), b"body", **more)


def cached(*fields: tuple[str, str], status: int = 200, query: CacheQuery = GET, took_s: float = 0.0) -> StoredResponse:
    return to_stored(query, response(*fields, status=status, timings=Timings(total_s=took_s)), NOW)


def cc(value: str) -> tuple[str, str]:
    return "Cache-Control", value


def action(stored: StoredResponse | None, after_s: float = 0.0, rules=RULES, **query: str) -> CacheAction:
    fields = {name.replace("_", "-"): value for name, value in query.items()}
    return rules.decide(CacheQuery("GET", URL, fields), stored, NOW + after_s).action


def fresh_for(stored: StoredResponse) -> int:
    """Return for how many whole seconds the response is served."""
    low, high = -1, 1 << 40
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if action(stored, middle) is CacheAction.SERVE else (low, middle)
    return low + 1


# ------------------------------------------------------------------------------------------------ §3: storing responses


@pytest.mark.parametrize(
    ("fields", "status", "storable"),
    [
        ([cc("max-age=60")], 200, True),
        ([cc("private, max-age=60")], 200, True),
        ([cc("max-age=60"), ("Set-Cookie", "a=b")], 200, True),
        ([("Expires", date(60))], 200, True),
        ([("ETag", '"1"')], 200, True),
        ([cc("no-cache"), ("ETag", '"1"')], 200, True),
        ([("Last-Modified", date(-HOUR))], 200, True),
        ([("Last-Modified", date(-HOUR))], 404, True),
        ([("Last-Modified", date(-HOUR))], 403, False),
        ([cc("public"), ("Last-Modified", date(-HOUR))], 403, True),
        ([cc("max-age=60")], 503, True),
        ([cc("max-age=60")], 302, True),
        ([], 301, True),
        ([], 200, False),
        ([cc("max-age=0")], 200, False),
        ([("Expires", "0")], 200, False),
        ([cc("no-store, max-age=60"), ("Expires", date(60))], 200, False),
        ([cc("nO-StOrE")], 200, False),
        ([cc("max-age=60"), cc("no-store")], 200, False),
        ([cc("no-store, must-understand, max-age=60")], 200, True),
        ([cc("no-store, must-understand, max-age=60")], 299, False),
        ([cc("must-understand, max-age=60")], 299, False),
        ([cc("max-age=60")], 599, True),
        ([cc("max-age=60")], 202, True),
        ([cc("max-age=60")], 103, False),
        ([("ETag", '"1"')], 202, False),
        ([cc("max-age=60")], 206, False),
        ([cc("max-age=60")], 304, False),
        ([cc("max-age=60")], 412, False),
        *(
            ([cc("max-age=60"), *(("Vary", each) for each in vary)], 200, False)
            for vary in (["*"], ["*, *"], ["*", "*"], [", *"], ["", "*"], ["*, Foo"], ["Foo, *"])
        ),
        ([cc("max-age=60"), ("Vary", "Foo")], 200, True),
        ([("ETag", "not an entity tag")], 200, False),
    ],
)
def test_responses_that_may_be_stored(fields, status, storable):
    assert RULES.storable(GET, response(*fields, status=status), NOW) is storable


def test_requests_that_forbid_storing():
    good = response(cc("max-age=60"))
    assert RULES.storable(
        CacheQuery("GET", URL, {"authorization": "Basic x"}), good, NOW
    )  # a private cache has a single user
    assert RULES.storable(CacheQuery("HEAD", URL), good, NOW)
    assert not RULES.storable(CacheQuery("POST", URL), good, NOW)
    assert not RULES.storable(CacheQuery("GET", URL, {"cache-control": "no-store"}), good, NOW)
    assert not RULES.storable(GET, response(cc("max-age=60"), skipped=True), NOW)
    assert not RULES.storable(GET, response(cc("max-age=60"), partial=True), NOW)
    assert [RULES.applies_to(CacheQuery(method, URL)) for method in ("GET", "HEAD", "POST", "OPTIONS")] == [
        True,
        True,
        False,
        False,
    ]
    assert not RULES.applies_to(CacheQuery("GET", URL, {"cache-control": "No-Store"}))


def test_connection_fields_and_cookies_are_not_stored():
    fields = [
        ("Connection", "close, X-Hop"),
        ("X-Hop", "1"),
        ("Keep-Alive", "1"),
        ("Transfer-Encoding", "chunked"),
        ("TE", "x"),
        ("Upgrade", "h2c"),
        ("Proxy-Authenticate", "Basic"),
        ("Proxy-Connection", "close"),
        ("Set-Cookie", "a=b"),
        ("X-Kept", "1"),
        ("X-Kept", "2"),
        ("Content-Type", "text/html"),
    ]
    assert cached(*fields).headers == [("x-kept", "1"), ("x-kept", "2"), ("content-type", "text/html")]


# ------------------------------------------------------------------------------------------- §4.2.1: freshness lifetime


@pytest.mark.parametrize(
    ("fields", "fresh_s"),
    [
        ([cc("max-age=60")], 60),
        ([cc("MaX-AgE=60")], 60),
        ([cc('max-age="60"')], 60),
        ([cc("max-age=000060")], 60),
        ([cc("a=1, max-age=60, b")], 60),
        ([cc("max-age=60"), ("Expires", date(-HOUR))], 60),
        ([cc("max-age=60"), ("Expires", "nonsense")], 60),
        ([cc("max-age=0"), ("Expires", date(HOUR)), ("ETag", '"1"')], 0),
        ([cc("max-age=60, s-maxage=3600")], 60),
        ([cc("s-maxage=1"), cc("max-age=60")], 60),
        ([cc("max-age=60, max-age=3600")], 60),
        ([cc("max-age=2147483648")], SECONDS_MAX),
        ([cc("max-age=99999999999999999999")], SECONDS_MAX),
        ([cc("immutable, max-age=60")], 60),
        ([cc("must-revalidate, max-age=60")], 60),
        *(
            ([cc(f"max-age={value}"), ("ETag", '"1"')], 0)
            for value in ("-60", "'60'", "60.0", "60.5", "a60", "60a", "", "\xb2", "+60", "6 0")
        ),
        ([cc('x="max-age=3600", max-age=60')], 60),
        ([cc('max-age=60, x="max-age=3600"')], 60),
        ([cc('"max-age=3600", max-age=60')], 60),
        ([("Expires", date(60)), ("Date", date())], 60),
        ([("Expires", date(60))], 60),
        ([("Expires", date(60)), ("Date", "nonsense")], 60),
        ([("Expires", date(120)), ("Date", date(60))], 60),
        ([("Expires", date())], 0),
        ([("Expires", date(-60)), ("Date", date(60))], 0),
        ([("Expires", "0")], 0),
        ([("Expires", date(60)), ("Expires", date(60))], 0),
        ([("Expires", "Fri, 01 Jan 2038 00:00:00 UTC")], 0),
        ([("Expires", "Fri, 01 Jan 38 00:00:00 GMT")], 0),
        ([("Expires", "Fri 01 Jan 2038 00:00:00 GMT")], 0),
        ([("Expires", "Fri,  01  Jan  2038 00:00:00 GMT")], 0),
        ([("Expires", "Fri, 01 Jan 2038 0:00:00 GMT")], 0),
        ([("Expires", "Friday, 15-Jan-27 08:01:00 GMT")], 60),
        ([("Expires", "Fri Jan 15 08:01:00 2027")], 60),
        ([("Last-Modified", date(-1000)), ("Date", date())], 100),
        ([("Last-Modified", date(-1000))], 100),
        ([("Last-Modified", date(1000))], 0),
        ([("Last-Modified", date(-(10**9)))], HEURISTIC_MAX_S),
        ([("ETag", '"1"')], 0),
        ([cc("no-cache, max-age=60")], 0),
        ([cc("No-CaChE")], 0),
        ([cc('no-cache="set-cookie", max-age=60')], 0),
        ([cc("max-age=60"), ("Pragma", "no-cache")], 60),
    ],
)
def test_freshness_lifetime(fields, fresh_s):
    assert fresh_for(cached(*fields)) == fresh_s


def test_dates_of_these_tests_are_valid():
    assert date() == "Fri, 15 Jan 2027 08:00:00 GMT"


def test_heuristic_lifetime_is_for_cacheable_statuses_only():
    old = ("Last-Modified", date(-1000))
    assert [fresh_for(cached(old, status=status)) for status in (200, 203, 404, 410, 403, 500)] == [100] * 4 + [0, 0]
    assert fresh_for(cached(old, cc("public"), status=403)) == 100
    assert fresh_for(cached(status=301)) == fresh_for(cached(status=308)) == HEURISTIC_MAX_S
    assert fresh_for(cached(status=302)) == 0


# ---------------------------------------------------------------------------------------------------------- §4.2.3: age


@pytest.mark.parametrize(
    ("fields", "fresh_s"),
    [
        ([("Age", "10")], 50),
        ([("Age", "60")], 0),
        ([("Age", "2147483648")], 0),
        ([("Age", "10, 0")], 50),
        ([("Age", "0, 10")], 60),
        ([("Age", "10"), ("Age", "0")], 50),
        ([("Age", "0"), ("Age", "10")], 60),
        ([("Age", "abc")], 60),
        ([("Age", "-10")], 60),
        ([("Age", "10.0")], 60),
        ([("Age", "10;x=1")], 60),
        ([("Date", date(-20))], 40),
        ([("Date", date(20))], 60),
        ([("Date", date(-20)), ("Age", "10")], 40),
        ([("Date", date(-20)), ("Age", "30")], 30),
        ([("Date", "nonsense")], 60),
    ],
)
def test_age_is_subtracted_from_the_lifetime(fields, fresh_s):
    assert fresh_for(cached(cc("max-age=60"), *fields)) == fresh_s


def test_age_includes_the_time_of_the_transfer():
    assert fresh_for(cached(cc("max-age=60"), ("Age", "10"), took_s=5.0)) == 45
    assert fresh_for(cached(cc("max-age=60"), ("Date", date(-8)), took_s=5.0)) == 52


def test_clock_that_is_set_back_makes_no_response_younger():
    stored = cached(cc("max-age=60"), ("Age", "10"))
    assert headers_to_serve(stored, NOW - 1000)["age"] == "10"
    assert action(stored, -1000) is CacheAction.SERVE


def test_stored_response_is_served_with_its_age():
    headers = headers_to_serve(cached(cc("max-age=60"), ("Age", "10"), ("Date", date(-5))), NOW + 7)
    assert (headers.getlist("age"), headers["date"]) == (["17"], date(-5))
    assert headers_to_serve(cached(cc("max-age=60")), NOW + 7)["age"] == "7"


# ----------------------------------------------------------------------------------------------- §4: choosing an action


def test_stale_response_is_revalidated():
    etag, modified = ("ETag", 'W/"1"'), ("Last-Modified", date(-HOUR))
    assert RULES.decide(GET, cached(cc("max-age=60"), etag, modified), NOW + 61) == CacheDecision(
        CacheAction.REVALIDATE, {"If-None-Match": 'W/"1"', "If-Modified-Since": date(-HOUR)}, serve_on_error=True
    )
    assert RULES.decide(GET, cached(cc("max-age=60"), modified), NOW + 61).conditions == {
        "If-Modified-Since": date(-HOUR)
    }
    assert RULES.decide(GET, cached(cc("max-age=60")), NOW + 61) == CacheDecision(
        CacheAction.FETCH, serve_on_error=True
    )
    assert RULES.decide(GET, None, NOW) == CacheDecision(CacheAction.FETCH)


@pytest.mark.parametrize("value", ['"\n"', '"a" x', "a", '"' + "a" * 2000 + '"', '"\xff"'])
def test_hostile_entity_tag_is_not_sent_back(value):
    assert RULES.decide(GET, cached(cc("max-age=60"), ("ETag", value)), NOW + 61).conditions == {}


@pytest.mark.parametrize("name", ["if-none-match", "if-modified-since", "range", "if-match", "if-range"])
def test_request_with_its_own_condition_is_not_served_from_the_cache(name):
    assert RULES.decide(CacheQuery("GET", URL, {name: "x"}), cached(cc("max-age=60")), NOW) == CacheDecision(
        CacheAction.FETCH
    )


@pytest.mark.parametrize(
    ("response_cc", "request_cc", "after_s", "expected"),
    [
        ("max-age=60", "max-age=0", 1, CacheAction.FETCH),
        ("max-age=60", "max-age=10", 10, CacheAction.SERVE),
        ("max-age=60", "max-age=10", 11, CacheAction.FETCH),
        ("max-age=60", "max-age=nonsense", 1, CacheAction.FETCH),
        ("max-age=60", "min-fresh=10", 50, CacheAction.SERVE),
        ("max-age=60", "min-fresh=10", 51, CacheAction.FETCH),
        ("max-age=60", "min-fresh=10, max-stale", 61, CacheAction.FETCH),
        ("max-age=60", "max-stale=10", 70, CacheAction.SERVE),
        ("max-age=60", "max-stale=10", 71, CacheAction.FETCH),
        ("max-age=60", "max-stale", 10**6, CacheAction.SERVE),
        ("max-age=60, must-revalidate", "max-stale", 61, CacheAction.FETCH),
        ("max-age=60, no-cache", "max-stale", 1, CacheAction.FETCH),
        ("max-age=60", "no-cache", 1, CacheAction.FETCH),
        ("max-age=60", "only-if-cached", 1, CacheAction.SERVE),
        ("max-age=60", "only-if-cached", 61, CacheAction.NOT_CACHED),
        ("max-age=60", "only-if-cached, max-stale=10", 61, CacheAction.SERVE),
        ("max-age=60, stale-while-revalidate=10", "", 70, CacheAction.SERVE),
        ("max-age=60, stale-while-revalidate=10", "", 71, CacheAction.FETCH),
        ("max-age=60, stale-while-revalidate=10, must-revalidate", "", 65, CacheAction.FETCH),
        ("max-age=60, immutable", "", 61, CacheAction.FETCH),
    ],
)
def test_directives_of_request_and_response(response_cc, request_cc, after_s, expected):
    assert action(cached(cc(response_cc)), after_s, cache_control=request_cc) is expected


def test_only_if_cached_without_a_stored_response_fetches_nothing():
    assert action(None, cache_control="only-if-cached") is CacheAction.NOT_CACHED
    assert action(None, rules=PrivateRules(ignore_missing=True)) is CacheAction.NOT_CACHED
    stale = cached(cc("max-age=60"), ("ETag", '"1"'))
    assert action(stale, 61, rules=PrivateRules(ignore_missing=True)) is CacheAction.REVALIDATE


def test_pragma_applies_without_cache_control():
    stored = cached(cc("max-age=60"))
    assert action(stored, pragma="no-cache") is CacheAction.FETCH
    assert action(stored, pragma="unknown") is CacheAction.SERVE
    assert action(stored, pragma="no-cache", cache_control="max-age=10") is CacheAction.SERVE


@pytest.mark.parametrize(
    ("response_cc", "request_cc", "after_s", "stands_in"),
    [
        ("max-age=60", "", 10**6, True),
        ("max-age=60, must-revalidate", "", 61, False),
        ("max-age=60, no-cache", "", 61, False),
        ("max-age=60, stale-if-error=10", "", 70, True),
        ("max-age=60, stale-if-error=10", "", 71, False),
        ("max-age=60", "stale-if-error=10", 71, False),
        ("max-age=60, stale-if-error=10", "stale-if-error=100", 150, True),
        ("max-age=60", "no-cache", 61, False),
        ("max-age=60, stale-if-error=10, must-revalidate", "", 65, False),
    ],
)
def test_stale_response_is_served_if_the_host_fails(response_cc, request_cc, after_s, stands_in):
    query = CacheQuery("GET", URL, {"cache-control": request_cc} if request_cc else {})
    assert RULES.decide(query, cached(cc(response_cc), ("ETag", '"1"')), NOW + after_s).serve_on_error is stands_in


# ----------------------------------------------------------------------------------------------------------- §4.1: Vary


@pytest.mark.parametrize(
    ("vary", "before", "now", "same"),
    [
        ("Foo", {"foo": "1"}, {"foo": "1"}, True),
        ("Foo", {"foo": "1"}, {"foo": "2"}, False),
        ("Foo", {}, {"foo": "1"}, False),
        ("Foo", {"foo": "1"}, {}, False),
        ("Foo", {}, {}, True),
        ("Foo", {"foo": "1", "bar": "1"}, {"foo": "1", "bar": "2"}, True),
        ("foo, BAR", {"foo": "1", "bar": "1"}, {"foo": "1", "bar": "1"}, True),
        ("foo, BAR", {"foo": "1", "bar": "1"}, {"foo": "1", "bar": "2"}, False),
        ("foo, bar, baz", {"foo": "1"}, {"foo": "1", "baz": ""}, True),
        ("Foo", {"foo": "1, 2"}, {"foo": "1,2"}, True),
        ("Foo", {"foo": "a  b"}, {"foo": " a b"}, True),
        ("Foo", {"foo": "1, 2"}, {"foo": "2, 1"}, False),
    ],
)
def test_vary_compares_the_fields_it_names(vary, before, now, same):
    stored = cached(cc("max-age=60"), ("Vary", vary), query=CacheQuery("GET", URL, before))
    assert action(stored, **now) is (CacheAction.SERVE if same else CacheAction.FETCH)


def test_users_do_not_share_a_key():
    keys = {
        cache_key(GET),
        cache_key(CacheQuery("HEAD", URL)),
        cache_key(CacheQuery("GET", URL + "?a")),
        cache_key(GET, b"body"),
        cache_key(GET, jar="1"),
        cache_key(CacheQuery("GET", URL, {"authorization": "Basic x"})),
        cache_key(CacheQuery("GET", URL, {"authorization": "Basic y"})),
    }
    assert len(keys) == 7
    assert cache_key(GET) == cache_key(CacheQuery("GET", URL, {"accept": "x"}))


# -------------------------------------------------------------------------------------------------- §4.3.4: after a 304


def test_304_updates_the_stored_response():
    stored = cached(
        cc("max-age=60"), ("ETag", '"1"'), ("X-A", "1"), ("X-B", "1"), ("Age", "50"), ("Content-Type", "text/html")
    )
    again = response(
        cc("max-age=100"),
        ("X-A", "2"),
        ("X-A", "3"),
        ("X-New", "1"),
        ("Content-Length", "0"),
        ("Content-Type", "text/plain"),
        ("Content-Encoding", "gzip"),
        ("Connection", "x-hop"),
        ("X-Hop", "1"),
        ("Set-Cookie", "a=b"),
        status=304,
    )
    fresh = freshen(stored, again, NOW + 500)
    assert dict(fresh.headers) == {
        "etag": '"1"',
        "x-b": "1",
        "content-type": "text/html",
        "cache-control": "max-age=100",
        "x-a": "3",
        "x-new": "1",
    }
    assert [value for name, value in fresh.headers if name == "x-a"] == ["2", "3"]
    assert (fresh.body, fresh.status) == (b"body", 200)
    assert action(fresh, 599) is CacheAction.SERVE
    assert action(fresh, 601) is CacheAction.REVALIDATE


def test_304_of_another_entity_changes_nothing():
    stored = cached(cc("max-age=60"), ("ETag", '"1"'))
    assert freshen(stored, response(("ETag", '"2"'), cc("max-age=100"), status=304), NOW) is stored
    assert freshen(stored, response(("ETag", 'W/"1"'), status=304), NOW + 5).received_at == NOW + 5


# --------------------------------------------------------------------------------------------------- §4.4: invalidation


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "M-SEARCH"])
def test_unsafe_methods_invalidate_stored_responses(method):
    query = CacheQuery(method, URL)
    assert urls_to_invalidate(query, response()) == [URL]
    assert urls_to_invalidate(query, response(status=302)) == [URL]
    assert urls_to_invalidate(query, response(status=404)) == urls_to_invalidate(query, response(status=500)) == []
    created = response(("Location", "/a"), ("Content-Location", "http://a.example/b"), status=201)
    assert urls_to_invalidate(query, created) == [URL, "http://a.example/a", "http://a.example/b"]
    elsewhere = response(("Location", "http://b.example/"), ("Content-Location", "https://a.example/"), status=201)
    assert urls_to_invalidate(query, elsewhere) == [URL]


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "TRACE"])
def test_safe_methods_invalidate_nothing(method):
    assert urls_to_invalidate(CacheQuery(method, URL), response(("Location", "/a"))) == []


# -------------------------------------------------------------------------------------------------- parsing, and replay


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", {}),
        (" a , B = c ", {"a": "", "b": "c"}),
        ('a="x, y", b', {"a": "x, y", "b": ""}),
        ('a="x\\", y", b', {"a": 'x\\", y', "b": ""}),
        ('a="x, b', {"a": "x, b"}),
        ("a=1, a=2", {"a": "1"}),
    ],
)
def test_cache_control_directives_are_parsed(value, expected):
    found = directives([value])
    found.pop("", None)
    assert found == expected


@pytest.mark.parametrize("text", ['"' * 5000, '"a\\"' * 2000, "," * 5000, "a=" * 3000, '\\"' * 3000])
def test_hostile_directives_are_parsed_in_linear_time(text):
    for _ in range(100):
        directives([text])  # in quadratic time it would take minutes


def test_replay_serves_everything_forever():
    rules = ReplayRules()
    stored = cached(cc("no-store"), ("Vary", "*"), status=404)
    assert rules.storable(GET, response(cc("no-store"), status=404), NOW)
    assert rules.storable(CacheQuery("POST", URL), response(), NOW)
    assert not rules.storable(GET, response(skipped=True), NOW)
    assert not rules.storable(GET, response(partial=True), NOW)
    assert action(stored, 10**9, rules, cache_control="no-cache") is CacheAction.SERVE
    assert action(None, rules=rules) is CacheAction.FETCH


def test_replay_with_expiration_and_ignored_statuses():
    rules = ReplayRules(expiration_s=60, ignore_http_codes=frozenset({404}))
    assert [rules.storable(GET, response(status=status), NOW) for status in (200, 404, 503, 304)] == [
        True,
        False,
        True,
        False,
    ]
    assert [action(cached(), after_s, rules) for after_s in (60, 61)] == [CacheAction.SERVE, CacheAction.FETCH]
    assert [ReplayRules().storable(GET, response(status=status), NOW) for status in (404, 429, 503)] == [
        True,
        False,
        False,
    ]
    offline = ReplayRules(expiration_s=60, ignore_missing=True)
    assert [action(stored, 61, offline) for stored in (None, cached())] == [CacheAction.NOT_CACHED] * 2
