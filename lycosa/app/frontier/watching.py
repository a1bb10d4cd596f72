"""Open shared crawls for `lycosa top`, which only observes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lycosa.frontier.core.telemetry import CrawlView
from lycosa.frontier.redis.admin.open_crawl import open_crawl
from lycosa.frontier.redis.admin.watcher import Watcher


@dataclass(frozen=True, slots=True)
class WatchedCrawl:
    """A shared crawl that is observed."""

    name: str
    watcher: Watcher

    async def view(self) -> CrawlView | None:
        """Return the view; None if the crawl no longer exists."""
        return await self.watcher.view()


@asynccontextmanager
async def open_watched(url: str, name: str, report: Callable[[str], None]) -> AsyncIterator[WatchedCrawl]:
    """Find the crawl of this name; "" means the only crawl on this server.

    Raises `UsageError` if there is no such crawl, `StateError` if the server cannot be used.
    """
    async with open_crawl(url, name, report) as crawl:
        yield WatchedCrawl(crawl.name, crawl.watcher())
