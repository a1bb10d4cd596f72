"""The decisions of Scrapy and Lycosa for the same input (C2).

Each difference is listed with its reason: an unlisted difference fails, and so does a listed one that does not exist.
docs/scrapy.md describes the same in words.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from lycosa.app.request_rules import scope_of
from lycosa.config import Settings
from lycosa.core import errors
from lycosa.core.errors import FetchError, HttpError, LycosaError
from lycosa.core.headers import Headers
from lycosa.core.retry import RetryPolicy
from lycosa.core.url import canonicalize
from lycosa.crawl.engine.records import to_record, to_request
from lycosa.crawl.engine.verdict import Failed, Replace
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.middlewares.depth import Depth
from lycosa.crawl.middlewares.httperror import HttpErrors
from lycosa.crawl.middlewares.offsite import Offsite
from lycosa.crawl.middlewares.redirect import Redirect
from lycosa.crawl.middlewares.retry import Retry
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.crawl.spiders.spider import Spider, domains_as_urls
from lycosa.http.core.curl_command import from_curl
from lycosa.http.core.request import Request
from lycosa.http.core.robots import Robots
from lycosa.infra.clock import Clock

scrapy = pytest.importorskip("scrapy", reason="needs Scrapy: pip install 'lycosa[dev]'")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # from Twisted
    from scrapy import exceptions as scrapy_exceptions
    from scrapy import http
    from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
    from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
    from scrapy.downloadermiddlewares.retry import RetryMiddleware
    from scrapy.robotstxt import ProtegoRobotParser
    from scrapy.spidermiddlewares.depth import DepthMiddleware
    from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware
    from scrapy.utils.misc import build_from_crawler
    from scrapy.utils.request import fingerprint as scrapy_fingerprint
    from scrapy.utils.test import get_crawler


class Page(Spider):
    """A spider with a name."""

    name = "page"


def differences(cases: Iterable[Any], both: Callable[[Any], tuple[Any, Any]]) -> dict[Any, tuple[Any, Any]]:
    """Return the cases whose two results differ, each with its results: first Scrapy's, then ours."""
    results = {case: both(case) for case in cases}
    return {case: pair for case, pair in results.items() if pair[0] != pair[1]}


def assert_listed(found: dict[Any, tuple[Any, Any]], listed: dict[Any, str]) -> None:
    """Assert that exactly the listed cases differ."""
    assert {case: found[case] for case in found if case not in listed} == {}, "these differ too"
    assert set(listed) - set(found) == set(), "these do not differ any more"


@cache
def default_middleware(middleware: type) -> Any:
    """Return a middleware of Scrapy with default settings."""
    return build_from_crawler(middleware, crawler_of())


def crawler_of(settings: dict[str, Any] | None = None, **attributes: Any) -> Any:
    crawler = get_crawler(scrapy.Spider, settings)
    crawler.spider = crawler._create_spider("page", **attributes)
    return crawler


def response_to(request: Request, status: int, **headers: bytes) -> Response:
    raw = b"".join(name.encode() + b": " + value + b"\r\n" for name, value in headers.items())
    return Response(request.url, status, Headers(raw), request=request)


# ----------------------------------------------------------------------------------------------------------- redirects

HERE = "https://a.example/d/p?q=1"
HEADERS = {
    "Accept": "x",
    "Content-Type": "text/plain",
    "Content-Language": "de",
    "Authorization": "Basic eA==",
    "Cookie": "a=b",
    "Proxy-Authorization": "Basic eQ==",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS")
LOCATIONS = (
    b"/x", b"x", b"../y", b"?z", b"#top", b"//b.example/y", b"///b.example/y", b"http://b.example/", b"  /x  ", b"/a b",
    b"https://a.example/q", b"https://A.example/q", b"https://www.a.example/", b"http://a.example/q", b"/x#part",
    b"https://a.example:8443/q", b"ftp://a.example/q", b"mailto:x@y.example", b"javascript:1", b"http://", b"",
    "/ação".encode(), "/ação".encode("latin-1"), b"/%E4", b"/%zz", b"http://[bad", b"\\\\b.example\\x",
    b"https://u:p@a.example/",
)  # fmt: skip
NOWHERE = "a redirect without a valid Location is done with that reason, the errback sees the response"
REDIRECTS_DIFFER = {
    b"#top": "a redirect to itself is a loop, where Scrapy fetches it again",
    b"": NOWHERE + "; an empty Location would be the page itself",
    b"ftp://a.example/q": NOWHERE + ", where Scrapy passes the response on and `httperror` rejects it",
    b"mailto:x@y.example": NOWHERE + ", where Scrapy raises",
    b"javascript:1": NOWHERE + ", where Scrapy raises",
    b"http://": NOWHERE + ", where Scrapy fails to connect to no host",
    b"http://[bad": NOWHERE + ", where Scrapy raises",
    b"https://u:p@a.example/": "URLs hold no passwords: they are stored and logged",
    b"https://a.example:8443/q": "another port is another origin: neither credentials nor a Cookie header are sent",
    b"\\\\b.example\\x": "backslashes are slashes, as browsers read them (WHATWG URL)",
}


class Hop(NamedTuple):
    """The target of a redirect. If there is no target, `url` is a word for the outcome."""

    url: str
    method: str = ""
    body: bytes = b""
    headers: frozenset[tuple[str, str]] = frozenset()


def both_redirects(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Any:
    return scrapy_redirect(method, status, location, headers, meta), lycosa_redirect(
        method, status, location, headers, meta
    )


def scrapy_redirect(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Hop:
    request = http.Request(HERE, method=method, headers=headers, body=b"body", meta=meta)
    try:
        found = default_middleware(RedirectMiddleware).process_response(
            request, http.Response(HERE, status=status, headers={"Location": location})
        )
    except ValueError:
        return Hop("raises")
    if not isinstance(found, http.Request):
        return Hop("kept")
    fields = frozenset(found.headers.to_unicode_dict().items())
    return Hop(found.url.partition("#")[0], found.method, found.body, fields)


def lycosa_redirect(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Hop:
    request = Request(HERE, method=method, headers=headers, body=b"body", meta=meta)
    found = Redirect(20, HandledStatuses()).process_response(request, response_to(request, status, Location=location))
    if not isinstance(found, Replace):
        return Hop("kept" if isinstance(found, Response) else "nowhere")
    target = found.request
    return Hop(target.url, target.method, target.body, frozenset(target.headers.items()))


def test_method_body_and_headers_after_a_redirect_equal_scrapys() -> None:
    cases = list(product(METHODS, range(300, 309)))
    assert_listed(differences(cases, lambda case: both_redirects(*case, b"/x", HEADERS, {})), {})


def test_targets_of_redirects_equal_scrapys() -> None:
    assert_listed(
        differences(LOCATIONS, lambda location: both_redirects("GET", 302, location, HEADERS, {})), REDIRECTS_DIFFER
    )


@pytest.mark.parametrize("meta", [{"dont_redirect": True}, {"handle_httpstatus_list": [302]}, {"redirect_ttl": 1}, {}])
def test_meta_keys_stop_redirects_as_in_scrapy(meta: dict[str, Any]) -> None:
    both = both_redirects("GET", 302, b"/x", {}, meta)
    assert (both[0].url, both[0].method) == (both[1].url, both[1].method)


# ------------------------------------------------------------------------------------------------ retries and statuses

STATUSES = (200, 301, 304, 400, 403, 404, 408, 421, 425, 429, 500, 501, 502, 503, 504, 520, 522, 524, 599)
ATTEMPTS = range(4)
RETRY_METAS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "dont_retry": {"dont_retry": True},
    "no times": {"max_retry_times": 0},
    "one time": {"max_retry_times": 1},
    "more times": {"max_retry_times": 3},
}
ERRORS: dict[str, tuple[Exception, FetchError]] = {
    "too slow": (scrapy_exceptions.DownloadTimeoutError(), errors.FetchTimeout()),
    "no address": (scrapy_exceptions.CannotResolveHostError(), errors.ConnectFailed()),
    "no connection": (scrapy_exceptions.DownloadConnectionRefusedError(), errors.ConnectFailed()),
    "connection lost": (scrapy_exceptions.DownloadFailedError(), errors.ConnectionLost()),
    "cut off": (scrapy_exceptions.ResponseDataLossError(), errors.ConnectionLost()),
    "TLS": (scrapy_exceptions.DownloadFailedError(), errors.TlsFailed()),
    "too large": (scrapy_exceptions.DownloadCancelledError(), errors.BodyTooLarge()),
    "a bug": (TypeError(), errors.BadResponse()),
}


def both_retry(meta: str, attempts: int, status: int = 0, error: str = "") -> tuple[bool, bool]:
    """Return whether Scrapy and whether Lycosa retries after this many failed attempts."""
    values = {**RETRY_METAS[meta], **({"retry_times": attempts} if attempts else {})}
    request = http.Request(HERE, meta=values)
    retry = default_middleware(RetryMiddleware)
    if error:
        scrapys = retry.process_exception(request, ERRORS[error][0])
    else:
        scrapys = retry.process_response(request, http.Response(HERE, status=status))
    record = to_record(Request(HERE, meta=RETRY_METAS[meta]), Page())
    ours = to_request(replace(record, attempts=attempts))
    middleware = Retry(RetryDecider(RetryPolicy(), Clock(), lambda: 0.5, StatsCollector()), HandledStatuses())
    if error:
        found: Any = middleware.process_exception(ours, ERRORS[error][1])
    else:
        found = middleware.process_response(ours, response_to(ours, status))
    return isinstance(scrapys, http.Request), isinstance(found, Failed) and found.retry_at is not None


def test_retries_of_statuses_equal_scrapys() -> None:
    cases = product(RETRY_METAS, ATTEMPTS, STATUSES)
    assert_listed(differences(cases, lambda case: both_retry(*case)), {})


def test_retries_of_errors_equal_scrapys() -> None:
    cases = product(RETRY_METAS, ATTEMPTS, ERRORS)
    assert_listed(differences(cases, lambda case: both_retry(*case[:2], error=case[2])), {})


LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"handle_httpstatus_list": [404]},
    {"handle_httpstatus_list": []},
    {"handle_httpstatus_all": True},
    {"handle_httpstatus_all": False},
)
HTTPERROR_CASES = list(product(range(len(LISTS)), (None, (404,), (403,)), ((), (404,), (500,)), (False, True)))


def both_pass(case: Any) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Return for Scrapy and for Lycosa whether the callback receives a 404, and whether it receives a 500."""
    number, spider_list, allowed, allow_all = case
    attributes = {} if spider_list is None else {"handle_httpstatus_list": spider_list}
    crawler = crawler_of({"HTTPERROR_ALLOWED_CODES": allowed, "HTTPERROR_ALLOW_ALL": allow_all}, **attributes)
    scrapys = build_from_crawler(HttpErrorMiddleware, crawler)
    ours = HttpErrors(HandledStatuses(spider_list, allowed, allow_all), StatsCollector())
    meta = LISTS[number]
    return (
        (passes_scrapy(scrapys, meta, 404), passes_scrapy(scrapys, meta, 500)),
        (passes_lycosa(ours, meta, 404), passes_lycosa(ours, meta, 500)),
    )


def passes_scrapy(middleware: Any, meta: dict[str, Any], status: int) -> bool:
    response = http.Response(HERE, status=status, request=http.Request(HERE, meta=meta))
    try:
        middleware.process_spider_input(response)
    except scrapy_exceptions.IgnoreRequest:
        return False
    return True


def passes_lycosa(middleware: HttpErrors, meta: dict[str, Any], status: int) -> bool:
    try:
        middleware.process_spider_input(response_to(Request(HERE, meta=meta), status))
    except HttpError:
        return False
    return True


def test_statuses_that_reach_the_callback_equal_scrapys() -> None:
    assert_listed(differences(HTTPERROR_CASES, both_pass), {})


@pytest.mark.parametrize(("meta", "spider_list"), list(product(range(len(LISTS)), (None, (302,)))))
def test_a_handled_status_is_not_followed_as_a_redirect(meta: int, spider_list: Any) -> None:
    values = {key: [302] if value == [404] else value for key, value in LISTS[meta].items()}
    crawler = crawler_of(
        {"HTTPERROR_ALLOW_ALL": True}, **({"handle_httpstatus_list": spider_list} if spider_list else {})
    )
    middleware = build_from_crawler(RedirectMiddleware, crawler)
    response = http.Response(HERE, status=302, headers={"Location": "/x"})
    is_kept = isinstance(middleware.process_response(http.Request(HERE, meta=values), response), http.Response)
    request = Request(HERE, meta=values)
    found = Redirect(20, HandledStatuses(spider_list, all=True)).process_response(
        request, response_to(request, 302, Location=b"/x")
    )
    assert isinstance(found, Response) == is_kept


# ------------------------------------------------------------------------------------ offsite, depth, identity, robots

DOMAINS = ((), ("example.com",), ("www.example.com",), ("sub.example.com", "b.example"), ("127.0.0.1",))
URLS = (
    "http://example.com/1", "https://example.com:8443/1", "http://www.example.com/1", "http://sub.example.com/1",
    "http://example.org/example.com", "http://example.com.example/", "http://notexample.com/", "http://b.example/",
    "http://x.b.example/", "http://127.0.0.1:8000/", "http://1.127.0.0.1/", "http://EXAMPLE.com/", "http://xn--bcher-kva.example/",
)  # fmt: skip
INVALID_URL = "http://1.127.0.0.1/"
"""Invalid in browsers: the name of a host must not end in a number."""


@cache
def scrapy_offsite(domains: tuple[str, ...]) -> Any:
    crawler = crawler_of(allowed_domains=list(domains))
    middleware = build_from_crawler(OffsiteMiddleware, crawler)
    middleware.spider_opened(crawler.spider)
    return middleware


def both_onsite(domains: tuple[str, ...], url: str, allowed: bool) -> tuple[bool, bool]:
    meta = {"allow_offsite": True} if allowed else {}
    try:
        scrapy_offsite(domains).process_request(http.Request(url, meta=meta))
        scrapys = True
    except scrapy_exceptions.IgnoreRequest:
        scrapys = False
    try:
        record = replace(to_record(Request(url, meta=meta), Page()), depth=1)
    except LycosaError:
        return scrapys, False
    scope = scope_of("", [], domains_as_urls(domains), Settings())
    return scrapys, Offsite(scope).process_request(to_request(record)) is None


def test_hosts_allowed_for_a_spider_equal_scrapys() -> None:
    found = differences(product(DOMAINS, URLS, (False, True)), lambda case: both_onsite(*case))
    assert {url for _, url, _ in found} == {INVALID_URL}


@pytest.mark.parametrize("priority", [-1, 0, 1, 5])
@pytest.mark.parametrize("depth", [0, 1, 7])
def test_depth_changes_the_priority_as_in_scrapy(priority: int, depth: int) -> None:
    crawler = crawler_of({"DEPTH_PRIORITY": priority})
    page = http.Response(HERE, request=http.Request(HERE, meta={"depth": depth}))
    middleware = build_from_crawler(DepthMiddleware, crawler)
    (request,) = middleware.process_spider_output(page, [http.Request(HERE, priority=3)])
    record = replace(to_record(Request(HERE), Page()), depth=depth)
    results = Results([], [Request(HERE, priority=3)], [])
    found = Depth(priority, StatsCollector()).process_results(Response(HERE, request=to_request(record)), results)
    assert found.requests[0].priority == request.priority


SAME_AS: dict[str, tuple[tuple[Any, ...], tuple[Any, ...]]] = {
    "the same": (("GET", HERE, b"", {}), ("GET", HERE, b"", {})),
    "method": (("GET", HERE, b"", {}), ("POST", HERE, b"", {})),
    "case of the method": (("post", HERE, b"", {}), ("POST", HERE, b"", {})),
    "body": (("POST", HERE, b"a", {}), ("POST", HERE, b"b", {})),
    "headers": (("GET", HERE, b"", {"A": "b"}), ("GET", HERE, b"", {})),
    "fragment": (("GET", HERE + "#a", b"", {}), ("GET", HERE + "#b", b"", {})),
    "case of the host": (("GET", "http://A.example/", b"", {}), ("GET", "http://a.example/", b"", {})),
    "case of the path": (("GET", "http://a.example/A", b"", {}), ("GET", "http://a.example/a", b"", {})),
    "no path": (("GET", "http://a.example", b"", {}), ("GET", "http://a.example/", b"", {})),
    "scheme": (("GET", "http://a.example/", b"", {}), ("GET", "https://a.example/", b"", {})),
    "blank value": (("GET", "http://a.example/?a", b"", {}), ("GET", "http://a.example/", b"", {})),
    "escapes that need not be": (("GET", "http://a.example/ä", b"", {}), ("GET", "http://a.example/%C3%A4", b"", {})),
    "query order": (("GET", "http://a.example/?a=1&b=2", b"", {}), ("GET", "http://a.example/?b=2&a=1", b"", {})),
    "value without =": (("GET", "http://a.example/?a", b"", {}), ("GET", "http://a.example/?a=", b"", {})),
    "default port": (("GET", "http://a.example:80/", b"", {}), ("GET", "http://a.example/", b"", {})),
    "dots": (("GET", "http://a.example/b/../c", b"", {}), ("GET", "http://a.example/c", b"", {})),
    "case of escapes": (("GET", "http://a.example/%c3%a4", b"", {}), ("GET", "http://a.example/%C3%A4", b"", {})),
    "escaped letter": (("GET", "http://a.example/%61", b"", {}), ("GET", "http://a.example/a", b"", {})),
}
IDENTITY_DIFFERS = {
    "query order": "the order matters on some sites; `fingerprint_rules = sort` makes them one",
    "value without =": "as above",
    "default port": "the URL parser of browsers drops it: one page, not two",
    "case of escapes": "the URL parser of browsers leaves escapes as they are",
    "escaped letter": "as above",
}


def both_same(case: str) -> tuple[bool, bool]:
    one, other = SAME_AS[case]
    scrapys = [
        scrapy_fingerprint(http.Request(url, method=method, body=body, headers=headers))
        for method, url, body, headers in (one, other)
    ]
    ours = [
        to_record(Request(url, method=method, body=body, headers=headers), Page()).fingerprint
        for method, url, body, headers in (one, other)
    ]
    return scrapys[0] == scrapys[1], ours[0] == ours[1]


def test_requests_with_the_same_fingerprint_equal_scrapys() -> None:
    assert_listed(differences(SAME_AS, both_same), IDENTITY_DIFFERS)


ROBOTS: dict[str, bytes] = {
    "groups": b"User-agent: *\nDisallow: /a\n\nUser-agent: lycosa\nDisallow: /b\nAllow: /b/c\n",
    "patterns": b"User-agent: *\nDisallow: /*.gif$\nDisallow: /p*l/\nAllow: /p*l/x\nDisallow: /q?x=\n",
    "longest": b"User-agent: *\nAllow: /f/ok\nDisallow: /f\nDisallow: /f/ok/not\n",
    "empty": b"User-agent: *\nDisallow:\n",
    "everything": b"User-agent: *\nDisallow: /\n",
    "none": b"",
    "garbage": b"\xd3GIF89a\n<html>\x00Disallow: /\n",
    "bom": b"\xef\xbb\xbfUser-agent: *\nDisallow: /a\n",
    "utf-8": "User-agent: *\nDisallow: /ä\nDisallow: /%E2%82%AC\n".encode(),
    "several names": b"User-agent: other\nUser-agent: Lycosa\nDisallow: /a\n\nUser-agent: *\nDisallow: /\n",
    "longer name": b"User-agent: lycosabot\nDisallow: /a\n",
    "part of the name": b"User-agent: lyc\nDisallow: /a\n",
    "comments": b"# x\nUser-agent: * # all\nDisallow: /a # not\n",
    "cr": b"User-agent: *\rDisallow: /a\r",
    "rules before": b"Disallow: /a\nUser-agent: *\nDisallow: /b\n",
    "twice": b"User-agent: *\nDisallow: /a\n\nUser-agent: x\nDisallow: /c\n\nUser-agent: *\nDisallow: /b\n",
}
PATHS = ("/", "/a", "/a/b", "/b", "/b/c", "/x.gif", "/x.gif?y", "/pool/", "/pool/x", "/q?x=1", "/f", "/f/ok",
         "/f/ok/not", "/ä", "/€", "/%C3%A4", "/robots.txt")  # fmt: skip
ROBOTS_DIFFER = {
    "part of the name /a": "product tokens are compared whole (RFC 9309 §2.2.1)",
    "part of the name /a/b": "as above",
}


def test_urls_allowed_by_a_robots_txt_equal_scrapys() -> None:
    def both(case: str) -> tuple[bool, bool]:
        name, _, path = case.rpartition(" ")
        url = canonicalize("http://a.example" + path)
        parser = ProtegoRobotParser(ROBOTS[name], None)
        return bool(parser.allowed(url, "Lycosa/1.0")), Robots.parse(ROBOTS[name], "Lycosa/1.0").allowed(url)

    cases = [f"{name} {path}" for name, path in product(ROBOTS, PATHS)]
    assert_listed(differences(cases, both), ROBOTS_DIFFER)


# ---------------------------------------------------------------------------------------------------------------- curl

COMMANDS = (
    "curl https://a.example/",
    "curl a.example/x?y=1",
    "curl 'https://a.example/' -X PUT -H 'A: b' -H 'Content-Type: application/json' --data-raw '{\"a\": 1}'",
    "curl https://a.example/ -H 'Cookie: a=1; b=2' --compressed",
    "curl https://a.example/ -b 'a=1; b=2'",
    "curl https://a.example/ -d a=1",
    "curl https://a.example/ -d a=1 -d b=2",
    "curl -X POST https://a.example/ -u user:secret",
    "curl https://a.example/ --data-urlencode 'a=b c'",
    "curl -G https://a.example/ -d a=1",
    "curl -I https://a.example/",
)
CURL_DIFFERS = {
    COMMANDS[5]: "curl itself sends it as a form, with its Content-Type",
    COMMANDS[6]: "as above, and both -d are used",
    COMMANDS[8]: "--data-urlencode is supported",
    COMMANDS[9]: "-G is supported",
    COMMANDS[10]: "-I is supported",
}


def both_curl(command: str) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = http.Request.from_curl(command)
    ours = Request(**from_curl(command))
    return (
        (request.url, request.method, request.body, request.headers.to_unicode_dict(), dict(request.cookies or {})),
        (ours.url, ours.method, ours.body, dict(ours.headers), dict(ours.cookies or {})),
    )


def test_requests_of_curl_commands_equal_scrapys() -> None:
    assert_listed(differences(COMMANDS, both_curl), CURL_DIFFERS)
