"""Retries a page that its site refused through every proxy that was tried, as if its transfer had failed.

After the last retry the response (a 403 or a captcha) goes to the errback, or to a callback that handles its status.
"""

from __future__ import annotations

from lycosa.crawl.engine.verdict import Failed, reason_text
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request


class ProxyRefusals:
    """Retries refused responses."""

    def __init__(self, retrying: RetryDecider, statuses: HandledStatuses) -> None:
        self._retrying = retrying
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Response | Failed:
        if not response.raw.refused:
            return response
        verdict = self._retrying.after_refusal(request, reason_text(response.raw.refused), response)
        handled = verdict.retry_at is None and self._statuses.is_handled(request, response.status)
        return response if handled else verdict
