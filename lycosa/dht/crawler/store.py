"""Stage 5: stores records in batches. Only then are their infohashes done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.queue import HashQueue
from lycosa.frontier.core.model import Lease
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.ports import RecordStore

WAITING_MAX = 256
"""Records that wait for the store; then the fetches wait. The largest has 32 MB of metadata, the usual one 30 kB."""


class StoreStage:
    """See the module. A crash between the store and the queue makes a torrent fetched twice, but stored once."""

    def __init__(self, store: RecordStore, queue: HashQueue, funnel: Funnel) -> None:
        self._store, self._queue, self._funnel = store, queue, funnel
        self._waiting: asyncio.Queue[tuple[Lease, TorrentRecord]] = asyncio.Queue(WAITING_MAX)
        self.busy_s = 0.0
        """How long the store has worked."""
        self.listeners: list[Callable[[Sequence[TorrentRecord]], Awaitable[None]]] = []
        """Called with each batch when it is stored; the next one waits until they return."""

    @property
    def waiting(self) -> int:
        """How many records wait for the store."""
        return self._waiting.qsize()

    async def put(self, lease: Lease, record: TorrentRecord) -> None:
        """Hand a record over; waits while too many do."""
        await self._waiting.put((lease, record))

    async def run(self) -> None:
        """Store until cancelled."""
        while True:
            await self._store_batch([await self._waiting.get()])

    async def finish(self) -> None:
        """Store what waits. Call it when `run` has ended."""
        while not self._waiting.empty():
            await self._store_batch([])

    async def _store_batch(self, batch: list[tuple[Lease, TorrentRecord]]) -> None:
        while not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        records = [record for _, record in batch]
        clock = asyncio.get_running_loop().time
        started = clock()
        result = await self._store.put(records, self._queue.now())
        self.busy_s += clock() - started
        self._funnel.count(CrawlOutcome.STORED, result.new)
        self._funnel.count(CrawlOutcome.STORED_BEFORE, result.known)
        self._funnel.count(CrawlOutcome.REFUSED, result.refused)
        await self._queue.done([lease for lease, _ in batch], "fetched")
        for listener in self.listeners:
            await listener(records)
