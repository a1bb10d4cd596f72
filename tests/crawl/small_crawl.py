"""Runs a small crawl in this process against the misbehaving server, and returns everything observable about it."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import lycosa
from lycosa import Spider
from lycosa.crawl.events.stats import Summary
from lycosa.frontier.core.model import Row, Selection
from tests.servers.misbehaving import Server

ROWS_MAX = 1000
QUICK = {"robots": False, "retries": 1, "backoff_base": 0, "log_level": "CRITICAL", "commit_every": 0.01}


class CrawlResult(NamedTuple):
    """The results of a crawl: frontier rows by path, items, and hits of the server by target."""

    rows: dict[str, Row]
    items: list[Any]
    hits: Counter[str]
    stats: dict[str, Any]
    summary: Summary

    def of(self, path: str) -> tuple[str, str]:
        """Return the state and the reason of a URL."""
        return self.rows[path].state, self.rows[path].reason


async def run_crawl(server: Server, spider: Spider, **settings: Any) -> CrawlResult:
    """Crawl with the spider until it ends by itself. `settings` override `QUICK`."""
    crawl = lycosa.Crawl(spider, **{**QUICK, **settings})
    rows: dict[str, Row] = {}
    closed = spider.closed

    async def record_rows(reason: str) -> None:
        found = await crawl._run.operations.rows(Selection(), "", ROWS_MAX)  # type: ignore[union-attr]
        rows.update({row.record.url.removeprefix(server.url("")): row for row in found.rows})
        pending = closed(reason)
        if pending is not None:
            await pending

    spider.crawl = crawl  # type: ignore[attr-defined]
    spider.closed = record_rows  # type: ignore[method-assign]
    before = len(server.hits)
    async with crawl:
        summary = await crawl.run()
    hits = Counter(hit.target for hit in server.hits[before:])
    return CrawlResult(rows, crawl.items, hits, dict(summary.stats), summary)
