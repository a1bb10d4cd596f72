"""Crawls that several workers share, for those that take part in none: `lycosa top`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lycosa.frontier.core.telemetry import CrawlView
from lycosa.frontier.redis.admin.visit import visiting
from lycosa.frontier.redis.admin.watcher import Watcher


@dataclass(frozen=True, slots=True)
class Watched:
    """A crawl that is looked at."""

    name: str
    watcher: Watcher

    async def view(self) -> CrawlView | None:
        """Return it as it is now, None when it is not there any more."""
        return await self.watcher.view()


@asynccontextmanager
async def watched(url: str, name: str, say: Callable[[str], None]) -> AsyncIterator[Watched]:
    """Find the crawl of this name, "" for the only one there. Raises `UsageError` for none, `StateError`."""
    async with visiting(url, name, say) as visit:
        yield Watched(visit.name, visit.watcher())
