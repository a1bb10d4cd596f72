"""What was refused through so many proxies of the pool that the page is to blame: it is tried again as any failure is.

The lease itself is the fetcher's (`fetching/proxying/pooled_fetcher.py`), behind the cache, which needs no proxy. What
is refused for good (the last 403, a captcha) goes to the errback, or to a callback that wants its status.
"""

from __future__ import annotations

from lycosa.crawl.engine.verdict import Failed, reason_text
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request


class ProxyRefusals:
    """See the module."""

    def __init__(self, retrying: RetryDecider, statuses: HandledStatuses) -> None:
        self._retrying = retrying
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Response | Failed:
        """Return the response, or when to try again."""
        if not response.raw.refused:
            return response
        verdict = self._retrying.after_refusal(request, reason_text(response.raw.refused), response)
        handled = verdict.retry_at is None and self._statuses.is_handled(request, response.status)
        return response if handled else verdict
