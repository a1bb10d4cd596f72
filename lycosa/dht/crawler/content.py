"""Stage 5 of a DHT crawl: cleans names, classifies contents, and refuses torrents by rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, TorrentTaker
from lycosa.storage.core.torrent_record import Refusal, Standing
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.ports import RecordStore

INLINE_BYTES_MAX = 64 * 1024
"""Larger metadata is inspected in a thread; this size takes about a millisecond."""


class ContentStage:
    """Stage 5. If the rules refuse a hybrid torrent, both its infohashes are denied."""

    def __init__(
        self,
        current_rules: Callable[[], Inspector],
        records: RecordStore,
        queue: HashQueue,
        taker: TorrentTaker,
        funnel: Funnel,
    ) -> None:
        self._current_rules, self._records, self._queue = current_rules, records, queue
        self._taker, self._funnel = taker, funnel

    async def put(self, torrent: FetchedTorrent) -> None:
        """Waits while the next stage is full."""
        rules = self._current_rules()
        if torrent.metadata_bytes <= INLINE_BYTES_MAX:
            inspected = rules.inspect(torrent.record)
        else:
            inspected = await asyncio.to_thread(rules.inspect, torrent.record)
        if inspected.refused:
            await self._deny(torrent, inspected.refused, CrawlOutcome.REFUSED_BY_RULES, f"refused: {inspected.refused}")
        elif (denied := await self._other_denied(torrent.record.keys)) is not None:
            await self._deny(torrent, denied.reason, CrawlOutcome.FORBIDDEN, denied.standing.name.lower())
        else:
            await self._taker.put(torrent._replace(record=inspected.record, rules=rules))

    async def _other_denied(self, keys: tuple[bytes, ...]) -> Refusal | None:
        """Return the denial of a hybrid torrent if either infohash is denied. Before the fetch only one was known."""
        if len(keys) > 1:
            for infohash, standing in (await self._records.standing(keys, self._queue.now())).items():
                if standing is Standing.DENIED:
                    return await self._records.refusal(infohash, self._queue.now())
        return None

    async def _deny(self, torrent: FetchedTorrent, reason: str, outcome: CrawlOutcome, ended: str) -> None:
        try:
            self._funnel.count(outcome)
            keys = torrent.record.keys
            await self._records.deny(keys, reason=reason, hybrids=[keys])
            await self._queue.done([torrent.lease], ended)
        finally:
            torrent.release()
