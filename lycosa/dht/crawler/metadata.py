"""Stage 4: fetches metadata from peers, reads it, and hands it to the store."""

from __future__ import annotations

from collections.abc import Iterable

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.metadata.info import BadInfo
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import StoreStage
from lycosa.dht.peers import MetadataFetch, MetadataFetcher
from lycosa.frontier.core.model import Lease


class MetadataStage:
    """See the module. `fetcher` bounds the connections and the bytes in flight of all fetches together."""

    def __init__(self, fetcher: MetadataFetcher, queue: HashQueue, store: StoreStage, funnel: Funnel) -> None:
        self._fetcher, self._queue, self._store, self._funnel = fetcher, queue, store, funnel

    async def fetch(self, infohash: bytes, peers: Iterable[bytes]) -> bytes:
        """Return the metadata from one of these peers. Raises `NoMetadata`."""
        return await self._fetcher.fetch(infohash, peers)

    def start(self, infohash: bytes) -> MetadataFetch:
        """Start a fetch whose peers come one after another."""
        return self._fetcher.start(infohash)

    async def deliver(self, lease: Lease, metadata: bytes) -> None:
        """Read the metadata, and wait until the store takes it. What describes no torrent is never tried again."""
        try:
            record = to_torrent_record(metadata, int(self._queue.now()))
        except BadInfo as error:
            self._funnel.count(CrawlOutcome.BAD_INFO)
            await self._queue.done([lease], f"bad info: {error}")
            return
        await self._store.put(lease, record)
