"""Drops requests with very long URLs, which are more often crawler traps than pages."""

from __future__ import annotations

import logging

from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results

log = logging.getLogger(__name__)


class UrlLength:
    """Drops requests with URLs of more than `length_max` characters."""

    def __init__(self, length_max: int, stats: StatsCollector) -> None:
        self._max = length_max
        self._stats = stats

    def process_results(self, response: Response, results: Results) -> Results:
        length_max = self._max
        # Usually no URL is too long, so the list need not be copied.
        if all(len(request.url) <= length_max for request in results.requests):
            return results
        kept = [request for request in results.requests if len(request.url) <= length_max]
        dropped = len(results.requests) - len(kept)
        self._stats.inc_value("urllength/request_ignored_count", dropped)
        log.info("%d requests of %s dropped: their URLs are too long (max_url_length)", dropped, response.url)
        return results._replace(requests=kept)
