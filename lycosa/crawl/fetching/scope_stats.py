"""Counts the links that the scope rejects, under Scrapy's stat names."""

from __future__ import annotations

from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.scope import Scope

DOMAINS_MAX = 10_000


class CountingScope(Scope):
    """A scope that counts its rejections."""

    __slots__ = ("_count", "_hosts", "_scope")

    def __init__(self, scope: Scope, stats: StatsCollector) -> None:
        super().__init__()
        self._scope = scope
        self._count = stats.inc_value
        self._hosts: set[str] = set()

    def reason(self, url: str, host: str, depth: int, *, anywhere: bool = False) -> str:
        reason = self._scope.reason(url, host, depth, anywhere=anywhere)
        if reason:
            self._count_rejection(reason, host)
        return reason

    def _count_rejection(self, reason: str, host: str) -> None:
        if reason == "depth":
            self._count("depth/request_ignored_count")
            return
        self._count("offsite/filtered")
        if reason == "scope" and host not in self._hosts and len(self._hosts) < DOMAINS_MAX:
            self._hosts.add(host)
            self._count("offsite/domains")
