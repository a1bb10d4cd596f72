"""Passes responses with 2xx or a handled status to the callback, and other responses to the errback."""

from __future__ import annotations

from lycosa.core.errors import HttpError
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.spiders.response import Response


class HttpErrors:
    """Raises `HttpError` for responses whose status is neither 2xx nor handled."""

    def __init__(self, statuses: HandledStatuses, stats: StatsCollector) -> None:
        self._statuses = statuses
        self._stats = stats

    def process_spider_input(self, response: Response) -> None:
        status = response.raw.status
        if not 200 <= status < 300 and not self._statuses.is_handled(response.request, status):
            self._stats.inc_value("httperror/response_ignored_count")
            self._stats.inc_value(f"httperror/response_ignored_status_count/{status}")
            raise HttpError(response)
