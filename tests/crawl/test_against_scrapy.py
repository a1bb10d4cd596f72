"""The same input to Scrapy and to Lycosa, decision by decision (C2; issue 4, "Scrapy's own test suite as a checklist").

Where the two differ stands in a list with the reason, and nowhere else: a difference that is not listed fails, and so
does one that is listed and is gone. docs/scrapy.md tells the same in words.
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
    warnings.simplefilter("ignore")  # of Twisted's
    from scrapy import exceptions as theirs
    from scrapy import http
    from scrapy.downloadermiddlewares.offsite import OffsiteMiddleware
    from scrapy.downloadermiddlewares.redirect import RedirectMiddleware
    from scrapy.downloadermiddlewares.retry import RetryMiddleware
    from scrapy.robotstxt import ProtegoRobotParser
    from scrapy.spidermiddlewares.depth import DepthMiddleware
    from scrapy.spidermiddlewares.httperror import HttpErrorMiddleware
    from scrapy.utils.misc import build_from_crawler
    from scrapy.utils.request import fingerprint as their_fingerprint
    from scrapy.utils.test import get_crawler


class Page(Spider):
    """A spider with a name."""

    name = "page"


def differences(cases: Iterable[Any], both: Callable[[Any], tuple[Any, Any]]) -> dict[Any, tuple[Any, Any]]:
    """Return the cases whose two answers differ, with the answers: Scrapy's, ours."""
    answers = {case: both(case) for case in cases}
    return {case: found for case, found in answers.items() if found[0] != found[1]}


def assert_listed(found: dict[Any, tuple[Any, Any]], listed: dict[Any, str]) -> None:
    """Assert that exactly the listed cases differ."""
    assert {case: found[case] for case in found if case not in listed} == {}, "these differ too"
    assert set(listed) - set(found) == set(), "these do not differ any more"


@cache
def usual(middleware: type) -> Any:
    """Return a middleware of Scrapy's as it is by default."""
    return build_from_crawler(middleware, crawler_of())


def crawler_of(settings: dict[str, Any] | None = None, **attributes: Any) -> Any:
    crawler = get_crawler(scrapy.Spider, settings)
    crawler.spider = crawler._create_spider("page", **attributes)
    return crawler


def answered(request: Request, status: int, **headers: bytes) -> Response:
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
PLACES = (
    b"/x", b"x", b"../y", b"?z", b"#top", b"//b.example/y", b"///b.example/y", b"http://b.example/", b"  /x  ", b"/a b",
    b"https://a.example/q", b"https://A.example/q", b"https://www.a.example/", b"http://a.example/q", b"/x#part",
    b"https://a.example:8443/q", b"ftp://a.example/q", b"mailto:x@y.example", b"javascript:1", b"http://", b"",
    "/ação".encode(), "/ação".encode("latin-1"), b"/%E4", b"/%zz", b"http://[bad", b"\\\\b.example\\x",
    b"https://u:p@a.example/",
)  # fmt: skip
NOWHERE = "a redirect to nowhere is done with that reason, the errback sees the response"
REDIRECTS_DIFFER = {
    b"#top": "a redirect to itself is a loop, where Scrapy asks again",
    b"": NOWHERE + "; an empty Location would be the page itself",
    b"ftp://a.example/q": NOWHERE + ", where Scrapy hands the response on, which `httperror` turns down",
    b"mailto:x@y.example": NOWHERE + ", where Scrapy raises",
    b"javascript:1": NOWHERE + ", where Scrapy raises",
    b"http://": NOWHERE + ", where Scrapy fails to connect to no host",
    b"http://[bad": NOWHERE + ", where Scrapy raises",
    b"https://u:p@a.example/": "URLs hold no passwords: they are stored and logged",
    b"https://a.example:8443/q": "another port is another origin: neither credentials nor cookies written by hand",
    b"\\\\b.example\\x": "backslashes are slashes, as browsers read them (WHATWG URL)",
}


class Hop(NamedTuple):
    """The target of a redirect; a word instead of the URL if it leads nowhere."""

    url: str
    method: str = ""
    body: bytes = b""
    headers: frozenset[tuple[str, str]] = frozenset()


def redirect_both(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Any:
    return redirect_theirs(method, status, location, headers, meta), redirect_ours(
        method, status, location, headers, meta
    )


def redirect_theirs(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Hop:
    request = http.Request(HERE, method=method, headers=headers, body=b"body", meta=meta)
    try:
        found = usual(RedirectMiddleware).process_response(
            request, http.Response(HERE, status=status, headers={"Location": location})
        )
    except ValueError:
        return Hop("raises")
    if not isinstance(found, http.Request):
        return Hop("kept")
    fields = frozenset(found.headers.to_unicode_dict().items())
    return Hop(found.url.partition("#")[0], found.method, found.body, fields)


def redirect_ours(method: str, status: int, location: bytes, headers: dict[str, str], meta: dict[str, Any]) -> Hop:
    request = Request(HERE, method=method, headers=headers, body=b"body", meta=meta)
    found = Redirect(20, HandledStatuses()).process_response(request, answered(request, status, Location=location))
    if not isinstance(found, Replace):
        return Hop("kept" if isinstance(found, Response) else "nowhere")
    to = found.request
    return Hop(to.url, to.method, to.body, frozenset(to.headers.items()))


def test_what_is_sent_after_a_redirect() -> None:
    cases = list(product(METHODS, range(300, 309)))
    assert_listed(differences(cases, lambda case: redirect_both(*case, b"/x", HEADERS, {})), {})


def test_where_a_redirect_leads() -> None:
    assert_listed(differences(PLACES, lambda place: redirect_both("GET", 302, place, HEADERS, {})), REDIRECTS_DIFFER)


@pytest.mark.parametrize("meta", [{"dont_redirect": True}, {"handle_httpstatus_list": [302]}, {"redirect_ttl": 1}, {}])
def test_meta_keys_that_stop_redirects(meta: dict[str, Any]) -> None:
    both = redirect_both("GET", 302, b"/x", {}, meta)
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
    "too slow": (theirs.DownloadTimeoutError(), errors.FetchTimeout()),
    "no address": (theirs.CannotResolveHostError(), errors.ConnectFailed()),
    "no connection": (theirs.DownloadConnectionRefusedError(), errors.ConnectFailed()),
    "connection lost": (theirs.DownloadFailedError(), errors.ConnectionLost()),
    "cut off": (theirs.ResponseDataLossError(), errors.ConnectionLost()),
    "TLS": (theirs.DownloadFailedError(), errors.TlsFailed()),
    "too large": (theirs.DownloadCancelledError(), errors.BodyTooLarge()),
    "a bug": (TypeError(), errors.BadResponse()),
}


def again_both(meta: str, attempts: int, status: int = 0, error: str = "") -> tuple[bool, bool]:
    """Return whether each retries after this many failed attempts."""
    asked = {**RETRY_METAS[meta], **({"retry_times": attempts} if attempts else {})}
    request = http.Request(HERE, meta=asked)
    retry = usual(RetryMiddleware)
    if error:
        again = retry.process_exception(request, ERRORS[error][0])
    else:
        again = retry.process_response(request, http.Response(HERE, status=status))
    record = to_record(Request(HERE, meta=RETRY_METAS[meta]), Page())
    ours = to_request(replace(record, attempts=attempts))
    middleware = Retry(RetryDecider(RetryPolicy(), Clock(), lambda: 0.5, StatsCollector()), HandledStatuses())
    if error:
        found: Any = middleware.process_exception(ours, ERRORS[error][1])
    else:
        found = middleware.process_response(ours, answered(ours, status))
    return isinstance(again, http.Request), isinstance(found, Failed) and found.retry_at is not None


def test_which_statuses_are_retried_and_how_often() -> None:
    cases = product(RETRY_METAS, ATTEMPTS, STATUSES)
    assert_listed(differences(cases, lambda case: again_both(*case)), {})


def test_which_errors_are_retried_and_how_often() -> None:
    cases = product(RETRY_METAS, ATTEMPTS, ERRORS)
    assert_listed(differences(cases, lambda case: again_both(*case[:2], error=case[2])), {})


LISTS: tuple[dict[str, Any], ...] = (
    {},
    {"handle_httpstatus_list": [404]},
    {"handle_httpstatus_list": []},
    {"handle_httpstatus_all": True},
    {"handle_httpstatus_all": False},
)
WANTED = list(product(range(len(LISTS)), (None, (404,), (403,)), ((), (404,), (500,)), (False, True)))


def passes_both(case: Any) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Return for each whether the callback receives a 404, and whether it receives a 500."""
    number, of_spider, allowed, everything = case
    attributes = {} if of_spider is None else {"handle_httpstatus_list": of_spider}
    crawler = crawler_of({"HTTPERROR_ALLOWED_CODES": allowed, "HTTPERROR_ALLOW_ALL": everything}, **attributes)
    theirs_is = build_from_crawler(HttpErrorMiddleware, crawler)
    ours_is = HttpErrors(HandledStatuses(of_spider, allowed, everything), StatsCollector())
    meta = LISTS[number]
    return (
        (passes_theirs(theirs_is, meta, 404), passes_theirs(theirs_is, meta, 500)),
        (passes_ours(ours_is, meta, 404), passes_ours(ours_is, meta, 500)),
    )


def passes_theirs(middleware: Any, meta: dict[str, Any], status: int) -> bool:
    response = http.Response(HERE, status=status, request=http.Request(HERE, meta=meta))
    try:
        middleware.process_spider_input(response)
    except theirs.IgnoreRequest:
        return False
    return True


def passes_ours(middleware: HttpErrors, meta: dict[str, Any], status: int) -> bool:
    try:
        middleware.process_spider_input(answered(Request(HERE, meta=meta), status))
    except HttpError:
        return False
    return True


def test_which_statuses_reach_the_callback() -> None:
    assert_listed(differences(WANTED, passes_both), {})


@pytest.mark.parametrize(("meta", "of_spider"), list(product(range(len(LISTS)), (None, (302,)))))
def test_a_handled_status_is_not_followed_as_a_redirect(meta: int, of_spider: Any) -> None:
    asked = {key: [302] if value == [404] else value for key, value in LISTS[meta].items()}
    crawler = crawler_of({"HTTPERROR_ALLOW_ALL": True}, **({"handle_httpstatus_list": of_spider} if of_spider else {}))
    middleware = build_from_crawler(RedirectMiddleware, crawler)
    response = http.Response(HERE, status=302, headers={"Location": "/x"})
    kept = isinstance(middleware.process_response(http.Request(HERE, meta=asked), response), http.Response)
    request = Request(HERE, meta=asked)
    found = Redirect(20, HandledStatuses(of_spider, all=True)).process_response(
        request, answered(request, 302, Location=b"/x")
    )
    assert isinstance(found, Response) == kept


# ------------------------------------------------------------------------------------ offsite, depth, identity, robots

DOMAINS = ((), ("example.com",), ("www.example.com",), ("sub.example.com", "b.example"), ("127.0.0.1",))
URLS = (
    "http://example.com/1", "https://example.com:8443/1", "http://www.example.com/1", "http://sub.example.com/1",
    "http://example.org/example.com", "http://example.com.example/", "http://notexample.com/", "http://b.example/",
    "http://x.b.example/", "http://127.0.0.1:8000/", "http://1.127.0.0.1/", "http://EXAMPLE.com/", "http://xn--bcher-kva.example/",
)  # fmt: skip
NO_URL = "http://1.127.0.0.1/"
"""By the rules of browsers: the name of a host does not end in a number."""


@cache
def their_offsite(domains: tuple[str, ...]) -> Any:
    crawler = crawler_of(allowed_domains=list(domains))
    middleware = build_from_crawler(OffsiteMiddleware, crawler)
    middleware.spider_opened(crawler.spider)
    return middleware


def onsite_both(domains: tuple[str, ...], url: str, allowed: bool) -> tuple[bool, bool]:
    meta = {"allow_offsite": True} if allowed else {}
    try:
        their_offsite(domains).process_request(http.Request(url, meta=meta))
        theirs_says = True
    except theirs.IgnoreRequest:
        theirs_says = False
    try:
        record = replace(to_record(Request(url, meta=meta), Page()), depth=1)
    except LycosaError:
        return theirs_says, False
    scope = scope_of("", [], domains_as_urls(domains), Settings())
    return theirs_says, Offsite(scope).process_request(to_request(record)) is None


def test_which_hosts_are_allowed_for_a_spider() -> None:
    found = differences(product(DOMAINS, URLS, (False, True)), lambda case: onsite_both(*case))
    assert {url for _, url, _ in found} == {NO_URL}


@pytest.mark.parametrize("priority", [-1, 0, 1, 5])
@pytest.mark.parametrize("depth", [0, 1, 7])
def test_how_depth_changes_priority(priority: int, depth: int) -> None:
    crawler = crawler_of({"DEPTH_PRIORITY": priority})
    page = http.Response(HERE, request=http.Request(HERE, meta={"depth": depth}))
    middleware = build_from_crawler(DepthMiddleware, crawler)
    (theirs_made,) = middleware.process_spider_output(page, [http.Request(HERE, priority=3)])
    record = replace(to_record(Request(HERE), Page()), depth=depth)
    results = Results([], [Request(HERE, priority=3)], [])
    found = Depth(priority, StatsCollector()).process_results(Response(HERE, request=to_request(record)), results)
    assert found.requests[0].priority == theirs_made.priority


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
    "query order": "order means something to some sites; `fingerprint_rules = sort` makes them one",
    "value without =": "as above",
    "default port": "the URL parser of browsers drops it: one page, not two",
    "case of escapes": "the URL parser of browsers leaves escapes as they are",
    "escaped letter": "as above",
}


def same_both(case: str) -> tuple[bool, bool]:
    one, other = SAME_AS[case]
    theirs_say = [
        their_fingerprint(http.Request(url, method=method, body=body, headers=headers))
        for method, url, body, headers in (one, other)
    ]
    ours_say = [
        to_record(Request(url, method=method, body=body, headers=headers), Page()).fingerprint
        for method, url, body, headers in (one, other)
    ]
    return theirs_say[0] == theirs_say[1], ours_say[0] == ours_say[1]


def test_which_requests_have_the_same_fingerprint() -> None:
    assert_listed(differences(SAME_AS, same_both), IDENTITY_DIFFERS)


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
    "part of the name /a": "product tokens compare whole (RFC 9309 §2.2.1)",
    "part of the name /a/b": "as above",
}


def test_what_a_robots_txt_allows() -> None:
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
    COMMANDS[5]: "curl itself sends it as a form: the Content-Type says so",
    COMMANDS[6]: "as above, and the second -d counts",
    COMMANDS[8]: "--data-urlencode is understood",
    COMMANDS[9]: "-G is understood",
    COMMANDS[10]: "-I is understood",
}


def curl_both(command: str) -> tuple[Any, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        request = http.Request.from_curl(command)
    ours = Request(**from_curl(command))
    return (
        (request.url, request.method, request.body, request.headers.to_unicode_dict(), dict(request.cookies or {})),
        (ours.url, ours.method, ours.body, dict(ours.headers), dict(ours.cookies or {})),
    )


def test_curl_commands() -> None:
    assert_listed(differences(COMMANDS, curl_both), CURL_DIFFERS)
