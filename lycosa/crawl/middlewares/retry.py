"""Retries a request after a status on the retry list or a failed transfer. The last failure goes to the errback.

`dont_retry` and `max_retry_times` in meta override the settings. If the callback handles the status
(`handle_httpstatus_list`), the last response goes to the callback instead. Even after the last try, an
overloaded (429, 503) or unreachable host is blocked for the back-off, or for a longer Retry-After.
"""

from __future__ import annotations

from collections.abc import Awaitable

from lycosa.core.errors import FetchError
from lycosa.crawl.engine.records import host_of
from lycosa.crawl.engine.verdict import Failed
from lycosa.crawl.fetching.download import BlockHost
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request

Returned = Response | Failed | Awaitable[Response | Failed]


class Retry:
    """Retries as `retrying` decides. `block_host(host, until)` blocks a host in the frontier."""

    def __init__(self, retrying: RetryDecider, statuses: HandledStatuses, block_host: BlockHost | None = None) -> None:
        self._retrying = retrying
        self._block_host = block_host
        self._list = retrying.statuses
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Returned:
        if response.raw.status not in self._list:
            return response  # nearly all responses take this path, so it needs no coroutine
        verdict = self._retrying.after_status(request, response)
        handled = verdict.retry_at is None and self._statuses.is_handled(request, response.status)
        return self._with_block(request, verdict, response if handled else verdict)

    def process_exception(self, request: Request, exception: Exception) -> Returned | None:
        if not isinstance(exception, FetchError):
            return None
        verdict = self._retrying.after_error(request, exception)
        return self._with_block(request, verdict, verdict)

    def _with_block(self, request: Request, verdict: Failed, result: Response | Failed) -> Returned:
        """Block the host if needed. If the request is retried, the engine blocks it."""
        if self._block_host is None or verdict.retry_at is not None or not verdict.block_until:
            return result
        return _after(self._block_host(host_of(request), verdict.block_until), result)


async def _after(pending: Awaitable[None], result: Response | Failed) -> Response | Failed:
    await pending
    return result
