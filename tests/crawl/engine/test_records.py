"""Requests to records and back (C2): all attributes are stored; requests that cannot be stored are refused.

The naming of the crawl determines fingerprint and segment (F1, F2, F3).
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from lycosa.core.errors import BadSpider, BadUrl
from lycosa.core.url import fingerprint
from lycosa.crawl.engine.records import (
    DEFAULT_NAMING,
    NOT_BEFORE_MAX,
    Naming,
    replacement_record,
    resolve_callback,
    to_record,
    to_request,
)
from lycosa.crawl.fetching.redirects import REDIRECT_URLS, redirect_request
from lycosa.frontier.core.keys import parse_rules
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.segments import by_period, parse_segments
from lycosa.http.core.request import Request


class Shop:
    def parse(self, response: Any) -> None: ...

    def parse_item(self, response: Any) -> None: ...

    number = 5


SHOP = Shop()


def redirected(record: UrlRecord, target: str, status: int, naming: Naming = DEFAULT_NAMING) -> UrlRecord:
    return replacement_record(record, redirect_request(to_request(record), target, status), SHOP, naming)


def test_a_plain_link_stores_no_extras() -> None:
    record = to_record(Request("http://a.example/x#frag"), SHOP)
    assert (record.url, record.host, record.depth, record.extras) == (
        "http://a.example/x",
        "http://a.example:80",
        0,
        None,
    )
    assert to_request(record) == Request("http://a.example/x")


def test_every_attribute_of_a_request_is_restored() -> None:
    request = Request(
        "http://a.example/x",
        SHOP.parse_item,
        "POST",
        {"X-A": "1"},
        b"body",
        meta={"k": [1, "zwei", b"3"]},
        cb_kwargs={"page": 2},
        priority=7,
        dont_filter=True,
    )
    record = to_record(request, SHOP)
    assert to_request(record) == request.replace(callback="parse_item")
    assert resolve_callback(SHOP, to_request(record).callback) == SHOP.parse_item


def test_depth_and_segment_come_from_the_parent() -> None:
    parent = to_record(Request("http://a.example/"), SHOP, segment="2026-11-21")
    child = to_record(Request("http://a.example/b", not_before=99.0), SHOP, parent, segment="ignored")
    assert (parent.depth, child.depth, child.not_before) == (0, 1, 99.0)
    assert (parent.segment, child.segment) == ("2026-11-21", "2026-11-21")


@pytest.mark.parametrize(
    ("url", "params", "expected"),
    [
        ("http://a.example/s", {"q": "a b&c"}, "http://a.example/s?q=a+b%26c"),
        ("http://a.example/s?x=1#f", {"q": "ä"}, "http://a.example/s?x=1&q=%C3%A4"),
    ],
)
def test_params_go_into_the_url(url: str, params: dict[str, str], expected: str) -> None:
    assert to_record(Request(url, params=params), SHOP).url == expected


def test_method_and_body_change_the_fingerprint() -> None:
    url = "http://a.example/"
    requests = [Request(url), Request(url, method="POST"), Request(url, method="POST", body=b"x")]
    assert len({to_record(request, SHOP).fingerprint for request in requests}) == 3


@pytest.mark.parametrize("callback", ["parse", None, SHOP.parse])
def test_parse_is_the_default_callback_and_is_not_stored(callback: Any) -> None:
    assert to_record(Request("http://a.example/", callback), SHOP).extras is None


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ("parse_itme", "Shop has no method 'parse_itme' for the callback: did you mean 'parse_item'?"),
        (lambda response: None, "a lambda: it could not be found again after a restart"),
        ("number", "Shop has no method 'number'"),
    ],
)
def test_a_callback_that_is_no_method_is_refused(callback: Any, message: str) -> None:
    with pytest.raises(BadSpider, match=re.escape(message)):
        to_record(Request("http://a.example/", callback), SHOP)


@pytest.mark.parametrize("field", ["meta", "cb_kwargs"])
def test_data_that_cannot_be_stored_is_refused_with_its_key(field: str) -> None:
    with pytest.raises(BadSpider, match=rf"http://a.example/: {field}\['where'\] is an object"):
        to_record(Request("http://a.example/", **{field: {"where": object()}}), SHOP)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"not_before": "soon"}, "not_before='soon': write unix seconds"),
        ({"not_before": -1.0}, "not_before=-1.0: write unix seconds"),
        ({"priority": "high"}, "priority='high': write a whole number"),
        ({"cookies": "a=b"}, "cookies='a=b': write a dict"),
    ],
)
def test_attributes_of_a_wrong_type_are_refused_with_their_name(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSpider, match=re.escape(f"the request for http://a.example/ has {message}")):
        to_record(Request("http://a.example/", **attributes), SHOP)


def test_a_bad_url_is_refused() -> None:
    with pytest.raises(BadUrl):
        to_record(Request("not a url"), SHOP)


def test_a_stored_callback_that_no_longer_exists_is_refused() -> None:
    record = to_record(Request("http://a.example/", "parse_item"), SHOP)
    with pytest.raises(BadSpider, match="parse_item"):
        resolve_callback(object(), to_request(record).callback)


@pytest.mark.parametrize(
    ("method", "status", "after"),
    [
        ("GET", 301, ("GET", b"")),
        ("HEAD", 303, ("HEAD", b"")),
        ("POST", 301, ("GET", b"")),
        ("POST", 302, ("GET", b"")),
        ("POST", 303, ("GET", b"")),
        ("PUT", 303, ("GET", b"")),
        ("PUT", 302, ("PUT", b"body")),
        ("POST", 307, ("POST", b"body")),
        ("POST", 308, ("POST", b"body")),
    ],
)
def test_redirects_change_the_method_as_in_rfc_9110(method: str, status: int, after: tuple[str, bytes]) -> None:
    body = b"body" if method in {"POST", "PUT"} else b""
    parent = to_record(Request("http://a.example/"), SHOP)
    record = to_record(Request("http://a.example/old", "parse_item", method, body=body, priority=3), SHOP, parent)
    target = redirected(record, "https://b.example/new", status)
    request = to_request(target)
    assert (request.method, request.body) == after
    assert (target.url, target.host) == ("https://b.example/new", "https://b.example:443")
    assert (target.depth, target.priority, target.redirects, request.callback) == (1, 3, 1, "parse_item")
    assert request.meta[REDIRECT_URLS] == ["http://a.example/old"]
    assert (
        target.fingerprint
        == to_record(Request("https://b.example/new", None, *after[:1], body=after[1]), SHOP).fingerprint
    )


def test_a_redirect_drops_secrets_for_another_host_and_content_fields_of_a_dropped_body() -> None:
    headers = {"Authorization": "Bearer x", "cookie": "a=b", "X-A": "1", "Content-Type": "text/plain"}
    record = to_record(Request("http://a.example/old", method="POST", body=b"body", headers=headers), SHOP)
    assert to_request(redirected(record, "http://b.example/new", 307)).headers == {
        "X-A": "1",
        "Content-Type": "text/plain",
    }
    assert set(to_request(redirected(record, "http://a.example/new", 303)).headers) == {
        "Authorization",
        "cookie",
        "X-A",
    }


@pytest.mark.parametrize(
    ("referer", "target", "sent"),
    [
        ("http://a.example/account?token=1", "http://a.example/new", "http://a.example/account?token=1"),
        ("http://a.example/account?token=1", "http://b.example/", "http://a.example/"),
        ("https://a.example/account?token=1", "http://b.example/", None),
        ("http://b.example/page", "http://b.example/new", "http://b.example/page"),
        ("nonsense", "http://b.example/", None),
    ],
)
def test_a_redirect_to_another_host_shortens_the_referer(referer: str, target: str, sent: str) -> None:
    record = to_record(Request("http://a.example/old", headers={"Referer": referer}), SHOP)
    assert to_request(redirected(record, target, 302)).headers.get("Referer") == sent


BY_DAY = Naming(segments=parse_segments("day", "shop"))
DAY_S = 86_400.0
NOON = 20_778.5 * DAY_S  # on 2026-11-21


@pytest.mark.parametrize(
    ("not_before", "segment"),
    [
        (0.0, "2026-11-21"),
        (NOON - DAY_S, "2026-11-21"),
        (NOON + 60, "2026-11-21"),
        (NOON + DAY_S / 2, "2026-11-22"),
        (NOON + 3 * DAY_S, "2026-11-24"),
        (NOT_BEFORE_MAX, "5138-11-16"),
    ],
)
def test_a_delayed_request_goes_into_the_segment_of_its_due_time(not_before: float, segment: str) -> None:
    request = Request("http://a.example/", not_before=not_before)
    seed = to_record(request, SHOP, naming=BY_DAY, segment="2026-11-21")
    parent = to_record(Request("http://a.example/p"), SHOP, segment="2026-11-21")
    child = to_record(request, SHOP, parent, BY_DAY)
    assert (seed.segment, child.segment) == (segment, segment)
    assert to_record(request, SHOP, parent).segment == "2026-11-21"
    assert redirected(child, "http://a.example/q", 302, BY_DAY).segment == segment


def test_a_child_has_the_segment_of_its_period_and_a_redirect_keeps_the_segment_of_its_page() -> None:
    segments = by_period(lambda request: "3d" if "comments" in request.url else "day", "shop:period")
    segments.begin_run(NOON)
    naming = Naming(segments=segments)
    page = to_record(Request("http://a.example/"), SHOP, naming=naming)
    comments = to_record(Request("http://a.example/comments"), SHOP, page, naming)
    assert (page.segment, comments.segment) == ("2026-11-21+day", "2026-11-21+3d")
    assert to_record(Request("http://a.example/"), SHOP, comments, naming).segment == "2026-11-21+day"
    assert redirected(comments, "http://a.example/moved", 302, naming).segment == "2026-11-21+3d"


@pytest.mark.parametrize("not_before", [float("nan"), float("inf"), -1.0, NOT_BEFORE_MAX * 2, "noon"])
def test_a_bad_time_is_refused_before_it_selects_a_segment(not_before: Any) -> None:
    with pytest.raises(BadSpider, match=r"http://a\.example/"):
        to_record(Request("http://a.example/", not_before=not_before), SHOP, naming=BY_DAY)


def test_fingerprint_rules_change_the_fingerprint_but_not_the_url() -> None:
    naming = Naming(parse_rules(["tracking"]).fingerprint)
    record = to_record(Request("http://a.example/?id=1&gclid=2"), SHOP, naming=naming)
    assert record.url == "http://a.example/?id=1&gclid=2"
    assert record.fingerprint == fingerprint("GET", "http://a.example/?id=1")
    posted = to_record(Request("http://a.example/?id=1&gclid=2", method="POST", body=b"x"), SHOP, naming=naming)
    assert posted.fingerprint == fingerprint("POST", "http://a.example/?id=1", b"x")
    target = redirected(record, "http://a.example/?id=3&gclid=2", 302, naming)
    assert target.fingerprint == fingerprint("GET", "http://a.example/?id=3")


def test_a_redirect_to_a_url_with_the_same_fingerprint_is_fetched() -> None:
    naming = Naming(parse_rules(["tracking", "slash"]).fingerprint)
    record = to_record(Request("http://a.example/x?gclid=2"), SHOP, naming=naming)
    same = redirected(record, "http://a.example/x/", 302, naming)
    assert (same.fingerprint, same.dont_filter) == (record.fingerprint, True)
    login = redirected(record, "http://a.example/login", 302, naming)
    assert (login.fingerprint == record.fingerprint, login.dont_filter) == (False, False)
    assert redirected(login, "http://a.example/x?gclid=3", 302, naming).dont_filter
    assert not redirected(record, record.url, 302, naming).dont_filter


def test_without_fingerprint_rules_a_redirect_is_deduplicated_like_a_link() -> None:
    record = to_record(Request("http://a.example/x", method="POST", body=b"1"), SHOP)
    for target in ("http://a.example/x", "http://a.example/y"):
        assert not redirected(record, target, 303).dont_filter


def test_the_error_of_a_key_resolver_is_reported() -> None:
    naming = Naming(parse_rules([], lambda *_: None, "shop:key").fingerprint)  # type: ignore[arg-type,return-value]
    with pytest.raises(BadSpider, match=r"the key resolver shop:key returned a NoneType for http://a\.example/"):
        to_record(Request("http://a.example/"), SHOP, naming=naming)
    with pytest.raises(BadSpider, match=r"for http://a\.example/y"):
        redirected(to_record(Request("http://a.example/"), SHOP), "http://a.example/y", 302, naming)
