"""Follows redirects (RFC 9110 §15.4): the record is done, its target is queued at the same depth, checked like a link.

`dont_redirect` in meta, or a status that the spider or the request asks for, leaves the response as it is.
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
"""The flag of a response that changed a cookie jar: the same URL may be answered in another way now."""


class Redirect:
    """At most `max_redirects` hops from one request."""

    def __init__(self, max_redirects: int, statuses: HandledStatuses) -> None:
        self._max = max_redirects
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Response | Replace | Ignored | Failed:
        """Return the response, or the request for where it leads."""
        status = response.raw.status
        if status not in REDIRECTS or request.get_meta("dont_redirect") or self._statuses.is_kept(request, status):
            return response
        size = response.raw.size_bytes
        target = redirect_target(request.url, response.headers.get("location"))
        if target is None:
            wanted = self._statuses.is_handled(request, status)
            return response if wanted else Ignored("redirect to nowhere", bytes=size, cause=response)
        there = redirect_request(request, target, status)
        if self._goes_round(request, there):
            if COOKIES_CHANGED not in response.flags:
                return Failed("redirect loop", cause=response)
            there.dont_filter = True
        if replacement_count(request) >= self._max:
            return Failed(f"more than {self._max} redirects", cause=response)
        return Replace(there, "redirect", size)

    def _goes_round(self, request: Request, there: Request) -> bool:
        same = there.url == request.url and (there.method, there.body) == (request.method, request.body)
        return same or there.url in request.get_meta(REDIRECT_URLS, ())
