"""Lets only 2xx through to the callbacks, and the statuses that they ask for; the others go to the errback."""

from __future__ import annotations

from lycosa.core.errors import HttpError
from lycosa.engine.response import Response
from lycosa.engine.statuses import Statuses


class HttpErrors:
    """See the module."""

    def __init__(self, statuses: Statuses) -> None:
        self._statuses = statuses

    def process_spider_input(self, response: Response) -> None:
        """Raise `HttpError` for a status that nobody asked for."""
        status = response.raw.status
        if not 200 <= status < 300 and not self._statuses.handled(response.request, status):
            raise HttpError(response)
