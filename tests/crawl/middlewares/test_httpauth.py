"""User name and password are sent to one domain only (C2, C7), including the cases of Scrapy's tests."""

from __future__ import annotations

import pytest

from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.fetching.redirects import redirect_request
from lycosa.crawl.middlewares.httpauth import HttpAuth
from lycosa.crawl.spiders.spider import Spider
from lycosa.http.core.request import Request

FOO_BAR = "Basic Zm9vOmJhcg=="


def authorization(middleware: HttpAuth, url: str, **headers: str) -> str | None:
    request = Request(url, headers=headers)
    assert middleware.process_request(request) is None
    return request.headers.get("Authorization")


def spider(**attributes: object) -> Spider:
    return type("Some", (Spider,), {"name": "some", **attributes})()


@pytest.mark.parametrize(
    ("domain", "url", "is_sent"),
    [
        ("example.com", "http://example.com/", True),
        ("example.com", "https://example.com:8443/x?y", True),
        ("example.com", "http://example.com", True),
        ("example.com", "http://sub.example.com/", True),
        ("Example.COM", "http://example.com/", True),
        (".example.com", "http://example.com/", True),
        ("example.com", "http://other.com/", False),
        ("example.com", "http://badexample.com/", False),
        ("example.com", "http://example.com.evil.org/", False),
        ("example.com", "http://example.com@evil.org/", False),
        ("example.com", "file:///example.com", False),
        ("127.0.0.1", "http://127.0.0.1:8000/", True),
        (None, "http://anywhere.com/", True),
    ],
)
def test_the_password_is_sent_to_urls_of_the_domain_only(domain: str | None, url: str, is_sent: bool):
    middleware = HttpAuth.of(spider(http_user="foo", http_pass="bar", http_auth_domain=domain))
    assert middleware is not None
    assert [authorization(middleware, url) for _ in range(2)] == [FOO_BAR if is_sent else None] * 2


def test_hosts_of_urls_without_a_path_are_compared_whole():
    middleware = HttpAuth("foo", "bar", "example.co")
    assert authorization(middleware, "http://example.com") is None
    assert authorization(middleware, "http://example.co/") == FOO_BAR
    assert authorization(middleware, "http://example.com/") is None


def test_a_header_of_the_request_is_kept():
    assert authorization(HttpAuth("foo", "bar", None), "http://example.com/", authorization="Digest 1") == "Digest 1"


def test_a_redirect_to_another_host_drops_the_password():
    middleware = HttpAuth("foo", "bar", "example.com")
    request = Request("http://example.com/")
    middleware.process_request(request)
    for target, is_sent in (("http://evil.org/", None), ("http://sub.example.com/", FOO_BAR)):
        redirected = redirect_request(request, target, 302)
        assert "Authorization" not in redirected.headers
        middleware.process_request(redirected)
        assert redirected.headers.get("Authorization") == is_sent


@pytest.mark.parametrize("attributes", [{}, {"http_user": ""}, {"http_auth_domain": "example.com"}])
def test_without_user_and_password_there_is_no_middleware(attributes: dict[str, str]):
    assert HttpAuth.of(spider(**attributes)) is None


@pytest.mark.parametrize("attributes", [{"http_user": "foo"}, {"http_pass": "bar"}])
def test_a_missing_domain_is_refused(attributes: dict[str, str]):
    with pytest.raises(BadSpider, match="http_auth_domain"):
        HttpAuth.of(spider(**attributes), "u", "p", "example.com")
    with pytest.raises(BadSetting, match="http_auth_domain"):
        HttpAuth.of(spider(), "foo", "bar")


def test_attributes_of_the_spider_override_settings():
    middleware = HttpAuth.of(spider(), "foo", "bar", "example.com")
    assert middleware is not None
    assert authorization(middleware, "http://example.com/") == FOO_BAR
    own = HttpAuth.of(spider(http_user="me", http_auth_domain="mine.org"), "foo", "bar", "example.com")
    assert own is not None
    assert authorization(own, "http://example.com/") is None


@pytest.mark.parametrize(
    ("user", "password", "header"),
    [("", "x", "Basic Ong="), ("a", "b:c", "Basic YTpiOmM="), ("é", "", "Basic 6To="), ("☃", "", "Basic 4piDOg==")],
)
def test_the_header_encodes_user_and_password(user: str, password: str, header: str):
    assert authorization(HttpAuth(user, password, None), "http://example.com/") == header


def test_a_user_name_with_a_colon_is_refused():
    with pytest.raises(BadSpider, match="http_user"):
        HttpAuth("a:b", "c", None)
