"""Stage 6 of a DHT crawl: stores records in batches. An infohash is done only when its record is stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.core.hash_records import FETCHED, PRIVATE
from lycosa.dht.crawler.queue import HashQueue
from lycosa.frontier.core.model import Lease
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.ports import RecordStore

WAITING_MAX = 256
"""Maximum number of records that wait for the store. When it is reached, finished fetches wait."""
WAITING_BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes of the metadata of all waiting records. A record takes several times as much memory."""


class FetchedTorrent(NamedTuple):
    """A torrent with its metadata. `rules` are those that it was inspected under; None before the content stage.

    The stage that stores or refuses the torrent calls `release`, so that its bytes no longer count as in flight.
    """

    lease: Lease
    record: TorrentRecord
    metadata_bytes: int
    release: Callable[[], None]
    rules: Inspector | None = None


class TorrentTaker(Protocol):
    """A stage after the fetch: content or store."""

    async def put(self, torrent: FetchedTorrent) -> None:
        """Waits while too many torrents wait."""


FINISH_MAX_S = 20.0
"""Maximum seconds to store the waiting records at the end of a crawl."""


class StoreStage:
    """Stage 6. After a crash between the writes to store and queue, a stored torrent is still queued: stage 3 drops it
    instead of fetching it again."""

    def __init__(
        self, store: RecordStore, queue: HashQueue, funnel: Funnel, current_rules: Callable[[], Inspector]
    ) -> None:
        self._store, self._queue, self._funnel, self._current_rules = store, queue, funnel, current_rules
        self._waiting: asyncio.Queue[FetchedTorrent] = asyncio.Queue(WAITING_MAX)
        self._waiting_bytes = 0
        self._stored = asyncio.Event()
        self._storing: asyncio.Task[None] | None = None
        self._busy_s, self._busy_since = 0.0, math.inf
        self.listeners: list[Callable[[Sequence[TorrentRecord]], Awaitable[None]]] = []
        """Called and awaited after each batch is written, with all its records, even those that the store refused."""

    @property
    def busy_s(self) -> float:
        """Seconds spent storing batches, including the current one."""
        return self._busy_s + max(0.0, asyncio.get_running_loop().time() - self._busy_since)

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    async def put(self, torrent: FetchedTorrent) -> None:
        """Waits while too many torrents wait."""
        while self._waiting_bytes >= WAITING_BYTES_MAX:
            await self._stored.wait()
        self._waiting_bytes += torrent.metadata_bytes
        await self._waiting.put(torrent)

    async def run(self) -> None:
        while True:
            self._storing = asyncio.create_task(self._store_batch([await self._waiting.get()]))
            await asyncio.shield(self._storing)  # the database may already have the batch: `finish` completes it

    async def finish(self) -> None:
        """Call this after `run` has ended. If the database is gone, waiting records are lost, but their infohashes stay
        queued."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FINISH_MAX_S):
                if self._storing is not None and not self._storing.done():
                    await self._storing
                while not self._waiting.empty():
                    await self._store_batch([])

    async def _store_batch(self, batch: list[FetchedTorrent]) -> None:
        while not self._waiting.empty():
            batch.append(self._waiting.get_nowait())
        records = [each.record for each in batch]
        self._busy_since = asyncio.get_running_loop().time()
        try:
            result = await self._store.put(records, self._queue.now())
            await self._apply_new_rules(batch)
        finally:
            self._busy_s, self._busy_since = self.busy_s, math.inf
        self._funnel.count(CrawlOutcome.STORED, result.new)
        self._funnel.count(CrawlOutcome.STORED_BEFORE, result.known)
        self._funnel.count(CrawlOutcome.REFUSED, result.refused)
        self._funnel.count(CrawlOutcome.EVICTED, result.evicted)
        for reason, is_private in ((FETCHED, False), (PRIVATE, True)):
            await self._queue.done([each.lease for each in batch if each.record.private is is_private], reason)
        for torrent in batch:
            self._waiting_bytes -= torrent.metadata_bytes
            torrent.release()
        self._stored.set()
        self._stored.clear()
        for listener in self.listeners:
            await listener(records)

    async def _apply_new_rules(self, batch: Sequence[FetchedTorrent]) -> None:
        """Apply the rules to stored torrents that were inspected under other rules.

        `lycosa dht rules apply` may have searched the store before it had these torrents.
        """
        rules = self._current_rules()
        infohashes = [each.record.keys[0] for each in batch if each.rules is not rules]
        await inspect_stored(self._store, rules, infohashes)


async def inspect_stored(store: RecordStore, rules: Inspector, infohashes: Iterable[bytes]) -> None:
    """Deny the stored torrents that the rules refuse, and replace the content facts of the others.

    Infohashes that are not stored are ignored.
    """
    changed: dict[int, ContentFacts] = {}
    for infohash in infohashes:
        if (torrent := await store.get(infohash)) is not None:
            record, refused = await asyncio.to_thread(rules.inspect, torrent.record)
            if refused:
                await store.deny(record.keys, reason=refused, hybrids=[record.keys])
            elif record.content is not None:
                changed[torrent.id] = record.content
    await store.set_content(changed)
