"""Stage 8 of a DHT crawl: queues evicted torrents again when they may be stored again.

The store forgets an eviction only when the torrent is durable in the queue. After a crash in between, the torrent is
queued twice, which changes nothing.
"""

from __future__ import annotations

import asyncio

from lycosa.dht.crawler.core.profiles import Profile
from lycosa.dht.crawler.queue import HashQueue
from lycosa.storage.ports import RecordStore

LOOK_EVERY_S = 60.0


class ReturnsStage:
    """Stage 8. An eviction removes many torrents at once, so the profile limits how many return per minute."""

    def __init__(self, store: RecordStore, queue: HashQueue, profile: Profile) -> None:
        self._store, self._queue, self._per_minute = store, queue, profile.returned

    async def run(self) -> None:
        while True:
            await self.queue_some()
            await asyncio.sleep(LOOK_EVERY_S)

    async def queue_some(self) -> int:
        """Queue at most a minute's share of torrents. Return their number."""
        now = self._queue.now()
        lapsed = await self._store.lapsed(now, self._per_minute)
        if lapsed:
            await self._queue.push_again(lapsed)
            await self._store.forget_lapsed(lapsed, now)
        return len(lapsed)
