"""Obeys robots.txt (RFC 9309): a forbidden page is done with the reason "robots", and its host is not contacted.

A host whose robots.txt cannot be fetched forbids everything: its pages are dead, and can be requeued later.
`dont_obey_robotstxt` in meta exempts a request.
"""

from __future__ import annotations

from lycosa.crawl.engine.records import host_of
from lycosa.crawl.engine.verdict import Failed, Ignored
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.http.core.request import Request


class ObeyRobots:
    """Drops forbidden requests."""

    def __init__(self, gate: RobotsGate, stats: StatsCollector) -> None:
        self._gate = gate
        self._stats = stats

    async def process_request(self, request: Request) -> Ignored | Failed | None:
        if request.get_meta("dont_obey_robotstxt"):
            return None
        record = request.record
        host = host_of(request)
        rules = await self._gate.rules(host, guarded=record is not None and record.guarded)
        if rules.unreachable:
            return Failed(await self._gate.why_unreachable(host), contacted=False)
        if rules.allowed(request.url):
            return None
        self._stats.inc_value("robotstxt/forbidden")
        return Ignored("robots", contacted=False)
