"""Meta refreshes (C10): which ones are followed, and what the replacement request keeps."""

from __future__ import annotations

import pytest

from lycosa.crawl.engine.verdict import Replace
from lycosa.crawl.middlewares.meta_refresh import MetaRefresh
from lycosa.crawl.middlewares.redirect import COOKIES_CHANGED
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

URL = "http://a.example/"
THERE = "http://a.example/there"


def answered(request: Request, content: str = "5; url=/there", status: int = 200, kind: str = "text/html", **more):
    body = f"<meta http-equiv=refresh content='{content}'>".encode()
    return Response(request.url, status, {"Content-Type": kind}, body, request=request, **more)


def followed(request: Request, content: str = "5; url=/there", middleware: MetaRefresh | None = None, **more):
    """Return the request that replaces this one, or None."""
    response = answered(request, content, **more)
    found = (middleware or MetaRefresh(20)).process_response(request, response)
    if isinstance(found, Replace):
        assert found.reason == "redirect"
        return found.request
    assert found is response
    return None


def test_a_meta_refresh_is_followed_like_a_redirect():
    request = Request(URL, "parse_it", meta={"mine": 1}, cb_kwargs={"a": 1}, priority=3, headers={"X": "1"})
    there = followed(request)
    assert (there.url, there.callback, there.cb_kwargs, there.priority) == (THERE, "parse_it", {"a": 1}, 3)
    assert there.meta == {"mine": 1, "redirect_urls": [URL], "redirect_reasons": ["meta refresh"]}
    assert (there.dont_filter, dict(there.headers), request.meta) == (False, {"X": "1"}, {"mine": 1})


def test_a_post_becomes_a_get_without_its_body():
    request = Request(URL, method="POST", body=b"x", headers={"Content-Type": "text/plain", "Content-Length": "1"})
    there = followed(request)
    assert (there.method, there.body, dict(there.headers)) == ("GET", b"", {})


def test_secrets_are_not_sent_to_another_host():
    request = Request(URL, headers={"Authorization": "x", "Cookie": "y", "X": "z"}, cookies={"a": "b"})
    there = followed(request, "0;url=http://b.example/")
    assert (dict(there.headers), there.cookies) == ({"X": "z"}, None)


@pytest.mark.parametrize("kind", ["text/html; charset=utf-8", "application/xhtml+xml", "TEXT/HTML", ""])
def test_only_html_is_searched(kind):
    assert followed(Request(URL), kind=kind)


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "image/svg+xml", "application/xml"])
def test_other_content_types_are_passed_on(kind):
    assert not followed(Request(URL), kind=kind)


def test_refreshes_that_are_not_followed():
    assert followed(Request(URL), "100; url=/there")
    assert not followed(Request(URL), "101; url=/there")
    assert not followed(Request(URL), "5; url=/there", MetaRefresh(20, 4))
    assert not followed(Request(URL, meta={"dont_redirect": True}))
    assert not followed(Request(URL), status=404)
    assert not followed(Request(URL), status=503)
    assert not followed(Request(URL), "0;url=javascript:x")


def test_a_page_that_reloads_itself_is_passed_on():
    for content in ("30", "30; url=", f"30; url={URL}", "30; url=/", "30; url=#top"):
        assert not followed(Request(URL), content)


def test_a_page_that_checks_for_its_cookie_is_followed():
    changed = {"flags": [COOKIES_CHANGED]}
    there = followed(Request(URL), "0; url=/", **changed)
    assert (there.url, there.dont_filter) == (URL, True)
    assert not followed(Request(URL), "30; url=/", **changed)
    assert not followed(there, "0; url=/", **changed)  # once


def test_a_slide_show_is_passed_on():
    back = Request(THERE, meta={"redirect_urls": [URL]})
    assert not followed(back, "5; url=/")
    assert followed(Request(THERE, meta={"redirect_urls": ["x"] * 19}), "5; url=/")
    assert not followed(Request(THERE, meta={"redirect_urls": ["x"] * 20}), "5; url=/")
