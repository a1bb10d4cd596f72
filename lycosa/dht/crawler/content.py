"""Stage 5: cleans names, classifies contents, and refuses torrents by rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, TorrentTaker
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.ports import RecordStore

INLINE_BYTES_MAX = 64 * 1024
"""Maximum size of metadata that is inspected in the event loop; it takes about a millisecond."""

Inspect = Callable[[TorrentRecord], Inspection]


class ContentStage:
    """See the module. Both infohashes of a refused torrent are denied, so neither is tried again."""

    def __init__(
        self, inspect: Inspect, records: RecordStore, queue: HashQueue, taker: TorrentTaker, funnel: Funnel
    ) -> None:
        self._inspect, self._records, self._queue, self._taker, self._funnel = inspect, records, queue, taker, funnel

    async def put(self, torrent: FetchedTorrent) -> None:
        """Pass a torrent to the next stage, or deny it. Waits while the next stage is full."""
        if torrent.metadata_bytes <= INLINE_BYTES_MAX:
            inspected = self._inspect(torrent.record)
        else:
            inspected = await asyncio.to_thread(self._inspect, torrent.record)
        if not inspected.refused:
            await self._taker.put(torrent._replace(record=inspected.record))
            return
        try:
            self._funnel.count(CrawlOutcome.REFUSED_BY_RULES)
            keys = torrent.record.keys
            await self._records.deny(keys, reason=inspected.refused, hybrids=[keys])
            await self._queue.done([torrent.lease], f"refused: {inspected.refused}")
        finally:
            torrent.release()
