"""Meta refreshes (C10): which are followed, and what the new request keeps of the old one."""

from __future__ import annotations

import pytest

from lycosa.crawl.engine.verdict import Replace
from lycosa.crawl.middlewares.meta_refresh import MetaRefresh
from lycosa.crawl.middlewares.redirect import COOKIES_CHANGED
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

URL = "http://a.example/"
TARGET = "http://a.example/there"


def refresh_response(
    request: Request, content: str = "5; url=/there", status: int = 200, kind: str = "text/html", **more
):
    body = f"<meta http-equiv=refresh content='{content}'>".encode()
    return Response(request.url, status, {"Content-Type": kind}, body, request=request, **more)


def follow(request: Request, content: str = "5; url=/there", middleware: MetaRefresh | None = None, **more):
    """Return the request that follows the refresh, or None."""
    response = refresh_response(request, content, **more)
    found = (middleware or MetaRefresh(20)).process_response(request, response)
    if isinstance(found, Replace):
        assert found.reason == "redirect"
        return found.request
    assert found is response
    return None


def test_a_meta_refresh_is_followed_like_a_redirect():
    request = Request(URL, "parse_it", meta={"mine": 1}, cb_kwargs={"a": 1}, priority=3, headers={"X": "1"})
    refreshed = follow(request)
    assert (refreshed.url, refreshed.callback, refreshed.cb_kwargs, refreshed.priority) == (
        TARGET,
        "parse_it",
        {"a": 1},
        3,
    )
    assert refreshed.meta == {"mine": 1, "redirect_urls": [URL], "redirect_reasons": ["meta refresh"]}
    assert (refreshed.dont_filter, dict(refreshed.headers), request.meta) == (False, {"X": "1"}, {"mine": 1})


def test_a_post_becomes_a_get_without_its_body():
    request = Request(URL, method="POST", body=b"x", headers={"Content-Type": "text/plain", "Content-Length": "1"})
    refreshed = follow(request)
    assert (refreshed.method, refreshed.body, dict(refreshed.headers)) == ("GET", b"", {})


def test_secrets_are_not_sent_to_another_host():
    request = Request(URL, headers={"Authorization": "x", "Cookie": "y", "X": "z"}, cookies={"a": "b"})
    refreshed = follow(request, "0;url=http://b.example/")
    assert (dict(refreshed.headers), refreshed.cookies) == ({"X": "z"}, None)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/xhtml+xml", "TEXT/HTML", ""])
def test_pages_with_an_html_type_or_without_a_type_are_searched(kind):
    assert follow(Request(URL), kind=kind)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "image/svg+xml", "application/xml"])
def test_other_content_types_are_passed_on(kind):
    assert not follow(Request(URL), kind=kind)


def test_refreshes_that_are_not_followed():
    assert follow(Request(URL), "100; url=/there")
    assert not follow(Request(URL), "101; url=/there")
    assert not follow(Request(URL), "5; url=/there", MetaRefresh(20, 4))
    assert not follow(Request(URL, meta={"dont_redirect": True}))
    assert not follow(Request(URL), status=404)
    assert not follow(Request(URL), status=503)
    assert not follow(Request(URL), "0;url=javascript:x")


def test_a_page_that_reloads_itself_is_passed_on():
    for content in ("30", "30; url=", f"30; url={URL}", "30; url=/", "30; url=#top"):
        assert not follow(Request(URL), content)


def test_a_page_that_checks_for_its_cookie_is_followed():
    changed = {"flags": [COOKIES_CHANGED]}
    refreshed = follow(Request(URL), "0; url=/", **changed)
    assert (refreshed.url, refreshed.dont_filter) == (URL, True)
    assert not follow(Request(URL), "30; url=/", **changed)
    assert not follow(refreshed, "0; url=/", **changed)  # only once


def test_pages_that_refresh_to_each_other_and_long_chains_are_passed_on():
    second = Request(TARGET, meta={"redirect_urls": [URL]})
    assert not follow(second, "5; url=/")
    assert follow(Request(TARGET, meta={"redirect_urls": ["x"] * 19}), "5; url=/")
    assert not follow(Request(TARGET, meta={"redirect_urls": ["x"] * 20}), "5; url=/")
