"""Follows meta refreshes, like redirects: the record is done, its target is queued at the same depth (order 580).

A page that reloads itself is a page, and so is one that leads back to where we came from, or on and on: a slide show.
Only where it changed our cookies first, and reloads at once, did it want to see whether we keep them.
`dont_redirect` in meta leaves the response as it is.
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
"""A page that reloads itself sooner than this, with a new cookie, is looking whether that comes back."""

HTML = frozenset({"text/html", "application/xhtml+xml", "application/vnd.wap.xhtml+xml", ""})


class MetaRefresh:
    """Follows a refresh within `delay_max_s`, at most `max_redirects` hops from one request.

    Those within one of `ignore_tags` are not meant for us.
    """

    def __init__(
        self, max_redirects: int, delay_max_s: float = DELAY_MAX_S, ignore_tags: Collection[str] = IGNORE_TAGS
    ) -> None:
        self._max = max_redirects
        self._delay_max_s = delay_max_s
        self._ignore_tags = ignore_tags

    def process_response(self, request: Request, response: Response) -> Response | Replace:
        """Return the response, or the request for where it leads."""
        return self._followed(request, response) if may_refresh(response.raw.body) else response

    def _followed(self, request: Request, response: Response) -> Response | Replace:
        if not 200 <= response.status < 300 or response.content_type not in HTML or request.get_meta("dont_redirect"):
            return response
        refresh = meta_refresh(response.body, response.encoding, request.url, self._ignore_tags)
        if refresh is None or refresh.delay_s > self._delay_max_s or replacement_count(request) >= self._max:
            return response
        there = redirect_request(request, refresh.url, REASON)
        before = request.get_meta(REDIRECT_URLS, ())
        if there.url == request.url or there.url in before:
            if COOKIES_CHANGED not in response.flags or refresh.delay_s > COOKIE_CHECK_MAX_S or request.url in before:
                return response
            there.dont_filter = True
        return Replace(there, "redirect", response.raw.size_bytes)
