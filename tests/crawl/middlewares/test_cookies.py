"""Cookies in the engine: jars, the header, saved state (C2, C7), including the cases of Scrapy's tests."""

from __future__ import annotations

import asyncio
import logging
from urllib.parse import urlencode

import pytest

from lycosa.core.errors import BadSpider, StorageError
from lycosa.core.headers import Headers
from lycosa.core.retry import RetryPolicy
from lycosa.crawl.engine.verdict import Replace
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.download import Downloader
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.middlewares.chain import DownloaderChain, PlacedMiddleware
from lycosa.crawl.middlewares.cookies import TABLE, WARNINGS_MAX, Cookies
from lycosa.crawl.middlewares.redirect import COOKIES_CHANGED, Redirect
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.http.public_suffixes import is_suffix
from lycosa.infra.clock import Clock
from tests.servers.misbehaving import serving
from tests.storage.memory_keystore import MemoryKeyStore

SITE = "http://site.org/"


@pytest.fixture
def cookies():
    return Cookies(MemoryKeyStore(), Clock())


def sent(middleware: Cookies, url: str, **arguments) -> str | None:
    request = Request(url, **arguments)
    assert middleware.process_request(request) is None
    return request.headers.get("Cookie")


def receive(middleware: Cookies, url: str, *lines: str, **arguments) -> Response:
    request = Request(url, **arguments)
    response = Response(url, headers=[("Set-Cookie", line) for line in lines], request=request)
    assert middleware.process_response(request, response) is response
    return response


def test_a_site_gets_the_cookies_it_set(cookies):
    assert sent(cookies, SITE) is None
    receive(cookies, SITE, "C1=value1; path=/", "bad\x01=x", "other=x; Domain=elsewhere.org")
    assert sent(cookies, SITE + "sub/") == "C1=value1"
    assert sent(cookies, "http://site.org:1104/x") == "C1=value1"
    assert sent(cookies, "http://elsewhere.org/") is None
    assert sent(cookies, "file:///tmp/x") is None


def test_the_field_name_is_case_insensitive():
    for raw in (b"SET-COOKIE: a=b\r\n", b"set-cookie: a=b\r\n", b"X: y\r\nsEt-CoOkIe:a=b\r\n"):
        for headers in (Headers(raw), Headers(raw)):
            middleware = Cookies(MemoryKeyStore(), Clock())
            request = Request(SITE)
            response = Response(SITE, headers=headers)
            middleware.process_response(request, response)
            assert sent(middleware, SITE) == "a=b"
            assert "nothing" not in headers  # parses
    assert not Headers(b"X: cookie").may_have(b"set-cookie")
    assert Headers(b"X: set-cookie").may_have(b"set-cookie")


def test_cookies_that_are_not_utf8_are_sent_back(cookies):
    receive(cookies, SITE, "C1=in\xa3valid; path=/", "C2=\xc3\xa1; path=/")
    assert sent(cookies, SITE) == "C1=in\xa3valid; C2=\xe1"


def test_a_response_that_changed_a_jar_is_flagged(cookies):
    assert receive(cookies, SITE, "a=b").flags == [COOKIES_CHANGED]
    assert receive(cookies, SITE, "a=b").flags == []
    assert receive(cookies, SITE).flags == []


def test_cookies_of_a_request_are_also_sent_with_later_requests(cookies):
    assert sent(cookies, SITE, cookies={"galleta": "salada"}) == "galleta=salada"
    receive(cookies, SITE, "C1=value1; path=/")
    assert sent(cookies, SITE + "sub/") == "galleta=salada; C1=value1"
    assert sent(cookies, SITE, cookies=[{"name": "galleta", "value": "dulce"}]) == "galleta=dulce; C1=value1"


def test_cookies_of_a_request_with_path_and_domain(cookies):
    listed = [
        {"name": "C1", "value": "1", "path": "/foo", "domain": "site.org"},
        {"name": "C2", "value": "2", "path": "/bar", "domain": "site.org"},
        {"name": "C3", "value": "3", "path": "/foo", "domain": "site.org"},
        {"name": "C4", "value": "4", "path": "/foo", "domain": "other.org"},
    ]
    assert sent(cookies, SITE, cookies=listed) is None
    assert sent(cookies, SITE + "foo") == "C1=1; C3=3"
    assert sent(cookies, SITE + "bar") == "C2=2"
    assert sent(cookies, SITE + "baz") is None


@pytest.mark.parametrize(
    ("url", "next_url", "domain", "first", "second"),
    [
        ("https://books.toscrape.com/", "https://quotes.toscrape.com/", "toscrape.com", "a=b", "a=b"),
        ("https://foo.co.uk/", "https://bar.co.uk/", "co.uk", None, None),
        ("https://foo.blogspot.com/", "https://bar.blogspot.com/", "blogspot.com", None, None),
        ("https://foo.xn--55qx5d.cn/", "https://bar.xn--55qx5d.cn/", "xn--55qx5d.cn", None, None),
        ("https://co.uk/", "https://co.uk/", "co.uk", "a=b", "a=b"),
        ("http://example-host/", "http://example-host/", "example-host", "a=b", "a=b"),
        ("http://127.0.0.1/", "http://127.0.0.1/", "127.0.0.1", "a=b", "a=b"),
    ],
)
def test_cookies_for_a_public_suffix_are_rejected(cookies, url, next_url, domain, first, second):
    assert sent(cookies, url, cookies=[{"name": "a", "value": "b", "domain": domain}]) == first
    assert sent(cookies, next_url) == second
    other = Cookies(MemoryKeyStore(), Clock())
    receive(other, url, f"a=b; Domain={domain}")
    assert sent(other, next_url) == second


@pytest.mark.parametrize(
    ("domain", "suffix"),
    [
        ("com", True),
        ("example.com", False),
        ("github.io", True),
        ("kobe.jp", True),
        ("city.kobe.jp", False),
        ("xn--55qx5d.cn", True),
        ("x.xn--55qx5d.cn", False),
        ("co.uk.", True),
        ("unknown", True),
        ("", True),
    ],
)
def test_the_public_suffix_list(domain, suffix):
    assert is_suffix(domain) is suffix


def test_with_dont_merge_cookies_none_are_sent_or_stored(cookies):
    receive(cookies, SITE, "C1=value1; path=/")
    unmerged = {"dont_merge_cookies": 1}
    assert sent(cookies, SITE, meta=unmerged) is None
    assert sent(cookies, SITE, meta=unmerged, cookies={"a": "b"}) is None
    assert sent(cookies, SITE, meta=unmerged, headers={"Cookie": "by=hand"}) == "by=hand"
    receive(cookies, SITE, "dont=mergeme; path=/", meta=unmerged)
    assert sent(cookies, SITE) == "C1=value1"
    assert sent(cookies, SITE, meta={"dont_merge_cookies": 0}) == "C1=value1"


def test_a_cookie_header_of_a_request_is_not_sent(cookies):
    assert sent(cookies, SITE, headers={"Cookie": "by=hand"}) is None
    assert sent(cookies, SITE, headers={"cookie": "by=hand"}, cookies={"a": "b"}) == "a=b"


def test_requests_use_the_jar_that_they_name(cookies):
    assert sent(cookies, SITE, cookies={"g": "salada"}, cookiejar="store1") == "g=salada"
    receive(cookies, SITE, "C1=1; path=/", meta={"cookiejar": "store1"})
    assert sent(cookies, SITE, cookies={"g": "dulce"}, meta={"cookiejar": 1}) == "g=dulce"
    assert sent(cookies, SITE, meta={"cookiejar": "store1"}) == "g=salada; C1=1"
    assert sent(cookies, SITE, meta={"cookiejar": "1"}) is None
    assert sent(cookies, SITE, meta={"cookiejar": 0}) is None
    assert sent(cookies, SITE, meta={"cookiejar": None}) is None
    assert sent(cookies, SITE, meta={"cookiejar": ["a", 1]}, cookies={"x": "y"}) == "x=y"


def test_a_cookiejar_of_a_wrong_type_is_refused(cookies):
    with pytest.raises(BadSpider, match="cookiejar"):
        sent(cookies, SITE, meta={"cookiejar": object()})


def test_warnings_about_invalid_cookies_are_limited(cookies, caplog):
    bad = [{"value": "bar"}, {"name": "key", "value": None}, "text", {"name": "ok", "value": ""}]
    assert sent(cookies, SITE, cookies=bad) == "ok="
    assert [SITE in record.getMessage() for record in caplog.records] == [True] * 3
    for _ in range(WARNINGS_MAX):
        sent(cookies, SITE, cookies=bad)
    assert len(caplog.records) == WARNINGS_MAX
    assert "not logged" in caplog.records[-1].getMessage()


@pytest.mark.parametrize("debug", [True, False])
def test_cookies_debug_logs_received_and_sent_cookies(debug, caplog):
    middleware = Cookies(MemoryKeyStore(), Clock(), debug=debug)
    with caplog.at_level(logging.DEBUG, logger="lycosa"):
        sent(middleware, SITE)
        receive(middleware, SITE)
        receive(middleware, SITE, "a=b; path=/")
        sent(middleware, SITE)
    messages = [record.getMessage() for record in caplog.records]
    expected = [f"Received cookies from: <200 {SITE}>\nSet-Cookie: a=b; path=/\n"]
    assert messages == [*expected, f"Sending cookies to: <GET {SITE}>\nCookie: a=b\n"] * debug


# -------------------------------------------------------------------------------------------------------- saved state


def test_saved_cookies_are_restored_including_session_cookies():
    store, clock = MemoryKeyStore(), Clock()
    first = Cookies(store, clock)
    receive(first, SITE, "session=1; path=/")
    receive(first, SITE, "named=2; path=/; Max-Age=1000", meta={"cookiejar": "a"})
    unsaved = Cookies(store, clock)
    assert sent(unsaved, SITE) is None
    first.save()
    restored = Cookies(store, clock)
    assert sent(restored, SITE) == "session=1"
    assert sent(restored, SITE, meta={"cookiejar": "a"}) == "named=2"


def test_two_spiders_share_a_store_but_no_cookies():
    store, clock = MemoryKeyStore(), Clock()
    for round_ in ("=1", "=2"):
        for owner in ("a", "b"):
            middleware = Cookies(store, clock, owner=owner)
            if round_ == "=2":
                assert sent(middleware, SITE) == owner + "=1"
                assert sent(middleware, SITE, cookiejar="x") == owner + "=x"
            receive(middleware, SITE, owner + round_)
            receive(middleware, SITE, owner + "=x", cookiejar="x")
            middleware.save()


def test_only_changed_jars_are_saved():
    class Counting(MemoryKeyStore):
        puts = 0

        def put(self, table, key, value):
            self.puts += 1
            super().put(table, key, value)

    store = Counting()
    middleware = Cookies(store, Clock())
    middleware.save()
    assert store.puts == 0
    receive(middleware, SITE, "a=b")
    middleware.save()
    middleware.save()
    sent(middleware, SITE)
    receive(middleware, SITE, "a=b")
    middleware.save()
    assert store.puts == 1
    receive(middleware, SITE, "a=; Max-Age=0")
    middleware.save()
    assert list(store.items(TABLE)) == []


def test_an_evicted_jar_loses_nothing():
    middleware = Cookies(MemoryKeyStore(), Clock(), jars_max=2)
    for number in range(5):
        receive(middleware, SITE, f"n={number}; path=/", meta={"cookiejar": number})
    for number in range(5):
        assert sent(middleware, SITE, meta={"cookiejar": number}) == f"n={number}"


def test_unreadable_stored_cookies_are_reported():
    store = MemoryKeyStore()
    store.put(TABLE, '["",null]', b"\xff")
    with pytest.raises(StorageError, match="cookies"):
        Cookies(store, Clock())


# -------------------------------------------------------------------------------------------------------- a real server


def downloader(fetcher: CurlFetcher, middleware: Cookies) -> Downloader:
    retrying, statuses = RetryDecider(RetryPolicy(), Clock(), lambda: 0.5, StatsCollector()), HandledStatuses()
    placed = [PlacedMiddleware(700, middleware), PlacedMiddleware(600, Redirect(5, statuses))]
    return Downloader(fetcher, DownloaderChain(placed, None), retrying, Clock())


async def visit(download: Downloader, request: Request) -> Response:
    found = await download.download(request)
    while isinstance(found, Replace):
        found = await download.download(found.request)
    assert isinstance(found, Response)
    return found


def run(scenario):
    async def main():
        async with serving() as server:
            fetcher = CurlFetcher(FetchSettings())
            try:
                await scenario(server, fetcher)
            finally:
                await fetcher.close()

    asyncio.run(main())


def test_each_jar_has_its_own_session_on_a_server_that_sets_the_cookie_with_a_redirect():
    async def scenario(server, fetcher):
        download = downloader(fetcher, Cookies(MemoryKeyStore(), Clock()))
        for jar in ("a", "b", "a", None):
            request = Request(server.url("/identity"), meta={"cookiejar": jar})
            text = {"a": b"You are 1", "b": b"You are 2", None: b"You are 3"}[jar]
            assert text in (await visit(download, request)).body

    run(scenario)


def test_every_valid_cookie_is_sent_back():
    lines = ["a=1", "b=2; Path=/", "c=3; Path=/show-cookies; Secure", "d=4; Domain=example.com", "e=5; Max-Age=0"]

    async def scenario(server, fetcher):
        download = downloader(fetcher, Cookies(MemoryKeyStore(), Clock()))
        await visit(download, Request(server.url("/set-cookies?" + urlencode({"line": lines}, doseq=True))))
        shown = await visit(download, Request(server.url("/show-cookies"), cookies={"mine": "\xe9"}))
        assert shown.json() == {"a": "1", "b": "2", "c": "3"}  # this server reads ASCII only
        cookie = server.hits[-1].headers["cookie"]
        assert cookie.encode("latin-1").decode().split("; ")[-1] == "mine=\xe9"

    run(scenario)
