"""Tries again what failed: statuses of the retry list, and transfers that broke. The last failure goes to the errback.

`dont_retry` and `max_retry_times` in meta decide for one request. A status that the callback wants to see anyway
(`handle_httpstatus_list`) is tried again as often, and then given to it. A host that asked for a rest has it after the
last try, too, whoever gets to see that.
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
    """See the module. `rest(host, until)` lets a host rest."""

    def __init__(self, retrying: RetryDecider, statuses: HandledStatuses, rest: BlockHost | None = None) -> None:
        self._retrying = retrying
        self._rest = rest
        self._list = retrying.statuses
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Returned:
        """Return the response, or when to try again."""
        if response.raw.status not in self._list:
            return response
        verdict = self._retrying.after_status(request, response)
        handled = verdict.retry_at is None and self._statuses.is_handled(request, response.status)
        return self._rested(request, verdict, response if handled else verdict)

    def process_exception(self, request: Request, exception: Exception) -> Returned | None:
        """Return when to try again, None for what is no failed transfer."""
        if not isinstance(exception, FetchError):
            return None
        verdict = self._retrying.after_error(request, exception)
        return self._rested(request, verdict, verdict)

    def _rested(self, request: Request, verdict: Failed, found: Response | Failed) -> Returned:
        """Return what was found, when the host rests: what is tried again brings its rest with it."""
        if self._rest is None or verdict.retry_at is not None or not verdict.block_until:
            return found
        return _after(self._rest(host_of(request), verdict.block_until), found)


async def _after(told: Awaitable[None], found: Response | Failed) -> Response | Failed:
    await told
    return found
