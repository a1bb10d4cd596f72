"""Passes 2xx responses and the handled statuses to the callbacks; for other responses the errback is called."""

from __future__ import annotations

from lycosa.core.errors import HttpError
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response


class HttpErrors:
    """Rejects responses whose status is not handled."""

    def __init__(self, statuses: HandledStatuses, stats: StatsCollector) -> None:
        self._statuses = statuses
        self._stats = stats

    def process_spider_input(self, response: Response) -> None:
        """Raise `HttpError` for a status that is not handled."""
        status = response.raw.status
        if not 200 <= status < 300 and not self._statuses.is_handled(response.request, status):
            self._stats.inc_value("httperror/response_ignored_count")
            self._stats.inc_value(f"httperror/response_ignored_status_count/{status}")
            raise HttpError(response)
