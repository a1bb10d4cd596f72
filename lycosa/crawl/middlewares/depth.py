"""Counts requests by depth, and lowers their priority by depth. The scope enforces the depth limit."""

from __future__ import annotations

from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results


class Depth:
    """Lowers the priority of each request by `priority` (the setting DEPTH_PRIORITY) times its depth."""

    def __init__(self, priority: int, stats: StatsCollector) -> None:
        self._priority = priority
        self._stats = stats

    def process_results(self, response: Response, results: Results) -> Results:
        if not results.requests:
            return results
        depth = response.depth + 1
        self._stats.inc_value(f"request_depth_count/{depth}", len(results.requests))
        self._stats.max_value("request_depth_max", depth)
        if self._priority:
            for request in results.requests:
                request.priority -= depth * self._priority
        return results
