"""Stage 7 of a DHT crawl: counts the seeders and leechers of stored torrents (BEP 33): first those without a count,
then those with the oldest.

Peers are not stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.crawler.budget import Budget
from lycosa.dht.crawler.core.profiles import Profile
from lycosa.dht.session import DhtSession
from lycosa.storage.core.torrent_record import Popularity
from lycosa.storage.ports import RecordStore

START_S = 30.0
"""Delay of the first count, so that a new crawl can store torrents first."""
BATCH = 16
"""Concurrent scrapes. Each takes some seconds."""
RECOUNT_S = 6 * 3600.0
"""A torrent is counted again when its count is this old."""
IDLE_S = 30.0
"""Delay of the next check if no torrent is due."""
SILENT_S = 3600.0
"""Delay of the next scrape of a torrent if no node answered."""
SILENT_MAX = 5_000


class PopularityStage:
    """Stage 7. `now` returns unix seconds."""

    def __init__(
        self, session: DhtSession, store: RecordStore, now: Callable[[], float], funnel: Funnel, profile: Profile
    ) -> None:
        self._session, self._store, self._now, self._funnel = session, store, now, funnel
        self._budget = Budget(profile.scrapes)
        self._silent_until: RecentDict[bytes, float] = RecentDict(SILENT_MAX)

    async def run(self) -> None:
        await asyncio.sleep(START_S)
        while True:
            await self.count_some()

    async def count_some(self) -> None:
        due = await self._due()
        if not due:
            await asyncio.sleep(IDLE_S)
        async with asyncio.TaskGroup() as tasks:
            for swarms in due:
                for _ in swarms:
                    await self._budget.take()
                tasks.create_task(self._count(swarms))

    async def _due(self) -> list[tuple[bytes, ...]]:
        now = self._now()
        due = await self._store.due_for_count(now - RECOUNT_S, BATCH + len(self._silent_until))
        return [swarms for swarms in due if self._silent_until.get(swarms[0], 0.0) <= now][:BATCH]

    async def _count(self, swarms: tuple[bytes, ...]) -> None:
        try:
            found = await self._session.scrape_swarms(swarms)
        except NodeBusy:
            return
        if not found.is_counted:
            self._funnel.count(CrawlOutcome.NOT_COUNTED)
            self._silent_until[swarms[0]] = self._now() + SILENT_S
            return
        self._silent_until.pop(swarms[0], None)
        count = Popularity(swarms[0], round(found.seeds), round(found.leechers), int(self._now()))
        await self._store.set_popularity([count])
        self._funnel.count(CrawlOutcome.COUNTED)
