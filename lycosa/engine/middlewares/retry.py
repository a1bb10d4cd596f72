"""Tries again what failed: statuses of the retry list, and transfers that broke. The last failure goes to the errback.

`dont_retry` and `max_retry_times` in meta decide for one request. A status that the callback wants to see anyway
(`handle_httpstatus_list`) is tried again as often, and then given to it.
"""

from __future__ import annotations

from lycosa.core.errors import FetchError
from lycosa.core.model import Request
from lycosa.engine.response import Response
from lycosa.engine.retrying import Retrying
from lycosa.engine.statuses import Statuses
from lycosa.engine.verdict import Failed


class Retry:
    """See the module."""

    def __init__(self, retrying: Retrying, statuses: Statuses) -> None:
        self._retrying = retrying
        self._list = retrying.statuses
        self._statuses = statuses

    def process_response(self, request: Request, response: Response) -> Response | Failed:
        """Return the response, or when to try again."""
        if response.raw.status not in self._list:
            return response
        dont = request.asked("dont_retry")
        handled = self._statuses.handled(request, response.status)
        if dont and handled:
            return response
        verdict = self._retrying.after_status(request, response)
        return response if verdict.retry_at is None and handled else verdict

    def process_exception(self, request: Request, exception: Exception) -> Failed | None:
        """Return when to try again, None for what is no failed transfer."""
        return self._retrying.after_error(request, exception) if isinstance(exception, FetchError) else None
