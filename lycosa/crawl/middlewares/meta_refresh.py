"""Follows meta refreshes like redirects (order 580): the page is done, and the target is queued at the same depth.

A page that reloads itself, leads back to an earlier URL, or comes after `max_redirects` redirects in a row (as in a
slide show) goes to the callback. Exception: a page that sets a cookie and reloads soon is checking for the cookie; its
refresh is followed once. `dont_redirect` in meta exempts a request.
"""

from __future__ import annotations

from collections.abc import Collection

from lycosa.crawl.engine.verdict import Replace
from lycosa.crawl.fetching.redirects import REDIRECT_URLS, redirect_request, replacement_count
from lycosa.crawl.middlewares.redirect import COOKIES_CHANGED
from lycosa.crawl.spiders.response import Response
from lycosa.html.meta_refresh import IGNORE_TAGS, may_refresh, meta_refresh
from lycosa.http.core.request import Request

REASON = "meta refresh"
DELAY_MAX_S = 100
COOKIE_CHECK_MAX_S = 5

HTML = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml", ""})


class MetaRefresh:
    """Follows refreshes with a delay of at most `delay_max_s`, and at most `max_redirects` in a row.

    Refreshes inside `ignore_tags` (noscript, for example) are ignored.
    """

    def __init__(
        self, max_redirects: int, delay_max_s: float = DELAY_MAX_S, ignore_tags: Collection[str] = IGNORE_TAGS
    ) -> None:
        self._max = max_redirects
        self._delay_max_s = delay_max_s
        self._ignore_tags = ignore_tags

    def process_response(self, request: Request, response: Response) -> Response | Replace:
        return self._follow(request, response) if may_refresh(response.raw.body) else response

    def _follow(self, request: Request, response: Response) -> Response | Replace:
        if not 200 <= response.status < 300 or response.content_type not in HTML or request.get_meta("dont_redirect"):
            return response
        refresh = meta_refresh(response.body, response.encoding, request.url, self._ignore_tags)
        if refresh is None or refresh.delay_s > self._delay_max_s or replacement_count(request) >= self._max:
            return response
        target = redirect_request(request, refresh.url, REASON)
        earlier = request.get_meta(REDIRECT_URLS, ())
        if target.url == request.url or target.url in earlier:
            if COOKIES_CHANGED not in response.flags or refresh.delay_s > COOKIE_CHECK_MAX_S or request.url in earlier:
                return response
            target.dont_filter = True
        return Replace(target, "redirect", response.raw.size_bytes, status=response.raw.status)
