"""Follows redirects (RFC 9110 §15.4): the redirected request is done, and the target is queued at the same depth.

The target is checked like a link. A redirect is not followed with `dont_redirect` in meta, or if the spider or the
request handles its status.
"""

from __future__ import annotations

from lycosa.core.retry import REDIRECTS
from lycosa.core.url import redirect_target
from lycosa.crawl.engine.verdict import Failed, Ignored, Replace
from lycosa.crawl.fetching.redirects import REDIRECT_URLS, redirect_request, replacement_count
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

COOKIES_CHANGED = "cookies changed"
"""The flag of a response that changed a cookie jar: the same URL may now get a different response."""


class Redirect:
    """Follows at most `max_redirects` redirects in a row."""

    def __init__(self, max_redirects: int, statuses: HandledStatuses) -> None:
        self._max = max_redirects
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Response | Replace | Ignored | Failed:
        status = response.raw.status
        if status not in REDIRECTS or request.get_meta("dont_redirect") or self._statuses.is_kept(request, status):
            return response
        size = response.raw.size_bytes
        target = redirect_target(request.url, response.headers.get("location"))
        if target is None:
            handled = self._statuses.is_handled(request, status)
            return response if handled else Ignored("redirect without a valid Location", bytes=size, cause=response)
        replacement = redirect_request(request, target, status)
        if self._is_loop(request, replacement):
            if COOKIES_CHANGED not in response.flags:
                return Failed("redirect loop", cause=response)
            replacement.dont_filter = True  # the URL is known, but with the new cookie the response may differ
        if replacement_count(request) >= self._max:
            return Failed(f"more than {self._max} redirects", cause=response)
        return Replace(replacement, "redirect", size, status=status)

    def _is_loop(self, request: Request, target: Request) -> bool:
        same = target.url == request.url and (target.method, target.body) == (request.method, request.body)
        return same or target.url in request.get_meta(REDIRECT_URLS, ())
