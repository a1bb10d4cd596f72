"""Stage 3: leases infohashes and finds their peers: first those that came with it, then by an iterative lookup."""

from __future__ import annotations

import asyncio

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.crawler.core.hash_records import LEASED_MAX, infohash_of
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.metadata import MetadataStage
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.session import DhtSession
from lycosa.frontier.core.model import Lease
from lycosa.storage.core.torrent_record import Standing
from lycosa.storage.ports import RecordStore

LOOKUPS_MAX = 100
"""Iterative lookups at once: about 10 a second, with 40 queries each."""
BATCH = 200
"""Infohashes that are leased, and looked up in the store, at once."""
TRY_MAX_S = 240.0
"""Longest try of one infohash; the time-outs of queries and connections are shorter."""


class TryFailed(Exception):
    """Nobody delivered."""

    def __init__(self, outcome: CrawlOutcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class PeersStage:
    """See the module."""

    def __init__(
        self,
        session: DhtSession,
        queue: HashQueue,
        store: RecordStore,
        hints: Hints,
        metadata: MetadataStage,
        funnel: Funnel,
    ) -> None:
        self._session, self._queue, self._store, self._hints = session, queue, store, hints
        self._metadata, self._funnel = metadata, funnel
        self._lookups = asyncio.Semaphore(LOOKUPS_MAX)
        self.in_work = 0

    @property
    def all_lookups_used(self) -> bool:
        """Whether a lookup has to wait for the end of another one."""
        return self._lookups.locked()

    async def run(self) -> None:
        """Try what is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                leases = await self._queue.lease(min(BATCH, LEASED_MAX - self.in_work))
                for lease in await self._without_settled(leases):
                    self.in_work += 1
                    tasks.create_task(self._try(lease))
                if not leases:
                    await self._queue.wait()

    async def _without_settled(self, leases: list[Lease]) -> list[Lease]:
        """Return the leases whose infohash is neither stored nor forbidden; end the others before anybody is asked."""
        if not leases:
            return []
        standing = await self._store.standing([infohash_of(each.record) for each in leases], self._queue.now())
        left: list[Lease] = []
        for lease in leases:
            found = standing.get(infohash_of(lease.record))
            if found is None:
                left.append(lease)
                continue
            self._funnel.count(CrawlOutcome.ALREADY_STORED if found is Standing.STORED else CrawlOutcome.FORBIDDEN)
            await self._queue.done([lease], found.name.lower())
        return left

    async def _try(self, lease: Lease) -> None:
        infohash = infohash_of(lease.record)
        self._funnel.count(CrawlOutcome.TRIED)
        try:
            async with asyncio.timeout(TRY_MAX_S):
                metadata = await self._fetch(infohash)
                await self._metadata.deliver(lease, metadata)
        except TryFailed as failed:
            await self._fail(lease, failed.outcome)
        except NodeBusy:
            await self._fail(lease, CrawlOutcome.POSTPONED)
        except TimeoutError:
            await self._fail(lease, CrawlOutcome.NO_METADATA)
        finally:
            self.in_work -= 1

    async def _fail(self, lease: Lease, outcome: CrawlOutcome) -> None:
        self._funnel.count(outcome)
        await self._queue.failed(lease, outcome)

    async def _fetch(self, infohash: bytes) -> bytes:
        """Return the metadata. Raises `TryFailed`, `NodeBusy`."""
        hint = self._hints.take(infohash)
        named = set(hint.peers)
        if hint.sampler is not None:
            named.update(await self._session.ask_peers(hint.sampler, infohash))
        if named:
            try:
                metadata = await self._metadata.fetch(infohash, named)
            except NoMetadata:
                pass  # the lookup may find others
            else:
                self._funnel.count(CrawlOutcome.FETCHED_FROM_SAMPLER)
                return metadata
        return await self._look_up(infohash, named)

    async def _look_up(self, infohash: bytes, tried: set[bytes]) -> bytes:
        fetch = self._metadata.start(infohash)
        found = len(tried)
        try:
            async with self._lookups:
                async for peer in self._session.peer_endpoints(infohash):
                    if peer not in tried:
                        found += 1
                        fetch.add_peer(peer)
            fetch.no_more_peers()
            metadata = await fetch.result()
        except NoMetadata:
            raise TryFailed(CrawlOutcome.NO_METADATA if found else CrawlOutcome.NO_PEERS) from None
        finally:
            fetch.cancel()
        self._funnel.count(CrawlOutcome.FETCHED_AFTER_LOOKUP)
        return metadata
