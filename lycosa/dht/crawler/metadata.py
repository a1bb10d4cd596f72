"""Stage 4 of a DHT crawl: fetches the metadata of torrents from peers, and parses it."""

from __future__ import annotations

import asyncio

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.metadata.info import BadInfo
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, TorrentTaker
from lycosa.dht.peers import MetadataFetch, MetadataFetcher
from lycosa.frontier.core.model import Lease
from lycosa.storage.core.torrent_record import TorrentRecord

INLINE_BYTES_MAX = 32 * 1024
"""Larger metadata is parsed in a thread; this size takes about a millisecond."""


class MetadataStage:
    """Stage 4. `fetcher` limits the connections of all fetches, and the bytes of metadata not yet stored."""

    def __init__(
        self, fetcher: MetadataFetcher, queue: HashQueue, taker: TorrentTaker, funnel: Funnel, peers_per_try: int
    ) -> None:
        self._fetcher, self._queue, self._taker, self._funnel = fetcher, queue, taker, funnel
        self._peers_per_try = peers_per_try
        self._reading = asyncio.Lock()

    def start(self, infohash: bytes, peers_max: int | None = None) -> MetadataFetch:
        """Start a fetch. Its metadata counts as in flight until stored."""
        return self._fetcher.start(
            infohash, peers_max=self._peers_per_try if peers_max is None else peers_max, holds=True
        )

    async def deliver(self, lease: Lease, fetch: MetadataFetch, metadata: bytes) -> None:
        """An infohash whose metadata is invalid is never tried again."""
        try:
            record = await self._read(metadata)
        except BadInfo as error:
            fetch.release()
            self._funnel.count(CrawlOutcome.BAD_INFO)
            await self._queue.done([lease], f"bad info: {error}")
            return
        await self._taker.put(FetchedTorrent(lease, record, len(metadata), fetch.release))

    async def _read(self, metadata: bytes) -> TorrentRecord:
        now = int(self._queue.now())
        if len(metadata) <= INLINE_BYTES_MAX:
            return to_torrent_record(metadata, now)
        async with self._reading:  # one at a time: parsing takes many times the memory of the metadata
            return await asyncio.to_thread(to_torrent_record, metadata, now)
