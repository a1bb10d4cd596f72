"""The proxy that a request selects, and its cookie jar."""

from __future__ import annotations

import pytest

from lycosa import Request
from lycosa.core.errors import BadSpider
from lycosa.crawl.fetching.proxying.selector import ProxySelector, jar_of, selector_of, target_of
from lycosa.proxies.core.pool.target import ANY, ProxyRequest


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://www.shop.example/a?b", "shop.example"),
        ("https://shop.example:8443/", "shop.example"),
        ("http://a.b.example.co.uk/", "example.co.uk"),
        ("http://co.uk/", "co.uk"),
        ("http://me.github.io/", "me.github.io"),
        ("http://WWW.Shop.example/", "shop.example"),
        ("http://127.0.0.1:80/", "127.0.0.1"),
        ("http://[2001:db8::1]:80/", "2001:db8::1"),
        ("http://localhost/", "localhost"),
        ("http://www.bücher.example/", "xn--bcher-kva.example"),
    ],
)
def test_the_target_is_the_registrable_domain(url: str, target: str) -> None:
    assert target_of(Request(url)) == target


def test_keys_of_meta_take_precedence_over_the_domain_of_the_url() -> None:
    request = Request(
        "http://a.example/", meta={"proxy_target": "api", "proxy_session": "s", "proxy_tags": {"c": "de"}}
    )
    assert selector_of(request) == ProxySelector("api", "s", {"c": "de"})
    assert selector_of(request).proxy_request(frozenset({"k"})) == ProxyRequest({"c": "de"}, "s", frozenset({"k"}))
    assert selector_of(Request("http://a.example/")).proxy_request() is ANY


@pytest.mark.parametrize(
    "meta",
    [
        {"proxy_target": ""},
        {"proxy_target": 7},
        {"proxy_target": None, "proxy_session": ""},
        {"proxy_session": "x" * 256},
        {"proxy_tags": "de"},
        {"proxy_tags": {"country": 1}},
        {"proxy_tags": {str(n): "x" for n in range(33)}},
    ],
)
def test_invalid_keys_of_meta_are_refused(meta: dict[str, object]) -> None:
    with pytest.raises(BadSpider, match=r"in meta is .*: write"):
        selector_of(Request("http://a.example/", meta=meta))


def test_a_session_has_its_own_cookie_jar_on_each_target() -> None:
    def jar(url: str, **meta: object) -> object:
        return jar_of(Request(url, meta=meta))

    assert jar("http://a.example/") is None
    assert jar("http://a.example/", cookiejar=0) == 0
    assert jar("http://a.example/", cookiejar=0, proxy_session="s") == 0
    jars = [
        jar("http://a.example/", proxy_session="s"),
        jar("http://a.example/", proxy_session="t"),
        jar("http://b.example/", proxy_session="s"),
    ]
    assert len({str(each) for each in jars}) == 3
    assert jar("http://www.a.example/", proxy_session="s") == jars[0]
