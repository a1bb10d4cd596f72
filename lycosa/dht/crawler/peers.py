"""Stage 3 of a DHT crawl: leases infohashes and finds their peers.

A try starts with the peers that announced the infohash, and the peers that its samplers return. Only if these fail does
it start an iterative lookup.
"""

from __future__ import annotations

import asyncio

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.metadata.failures import PeerFailure
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.crawler.budget import Budget
from lycosa.dht.crawler.core.hash_records import infohash_of
from lycosa.dht.crawler.core.hints import Hint, Hints
from lycosa.dht.crawler.core.profiles import Profile
from lycosa.dht.crawler.metadata import MetadataStage
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.samplers import SamplerQueries
from lycosa.dht.peers import MetadataFetch
from lycosa.dht.session import DhtSession
from lycosa.frontier.core.model import Lease
from lycosa.storage.core.torrent_record import Standing
from lycosa.storage.ports import RecordStore

SAMPLERS_ASKED_MAX = 3
"""Samplers that are queried before the lookup."""
LOOKUPS_MAX = 100
"""Concurrent lookups. The node allows 1,000 operations."""
LOOKUP_WAIT_MAX_S = 30.0
"""A try that would wait longer for a lookup ends at once, to make room for infohashes that may need no lookup."""
CLOSER_MAX = 16
"""Contacts from samplers that the lookup starts from."""
BATCH = 200
"""Infohashes leased, and looked up in the store, at a time."""
TRY_MAX_S = 240.0
"""Only a safeguard: the time-outs of queries and connections are shorter."""
OUR_OWN = {PeerFailure.LIMITED, PeerFailure.LOCAL}
"""Failures that are our own fault, not the peers'."""


class TryFailed(Exception):
    """No peer delivered the metadata."""

    def __init__(self, outcome: CrawlOutcome) -> None:
        super().__init__(outcome.name)
        self.outcome = outcome


class PeersStage:
    """Stage 3."""

    def __init__(
        self,
        session: DhtSession,
        queue: HashQueue,
        store: RecordStore,
        hints: Hints,
        metadata: MetadataStage,
        funnel: Funnel,
        profile: Profile,
    ) -> None:
        self._session, self._queue, self._store, self._hints = session, queue, store, hints
        self._metadata, self._funnel, self._in_work_max = metadata, funnel, profile.in_work_max
        self._samplers = SamplerQueries(session)
        self._lookups, self._lookup_budget = asyncio.Semaphore(LOOKUPS_MAX), Budget(profile.lookups)
        self.in_work = 0

    @property
    def all_lookups_used(self) -> bool:
        """Whether LOOKUPS_MAX lookups are running or this minute's are used up."""
        return self._lookups.locked() or self._lookup_budget.is_used_up

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                leases = await self._queue.lease(min(BATCH, self._in_work_max - self.in_work))
                for lease in await self._without_settled(leases):
                    self.in_work += 1
                    tasks.create_task(self._try(lease))
                if not leases:
                    await self._queue.wait()

    async def _without_settled(self, leases: list[Lease]) -> list[Lease]:
        """End the leases whose infohash is stored or forbidden. Return the others."""
        if not leases:
            return []
        standing = await self._store.standing([infohash_of(each.record) for each in leases], self._queue.now())
        left: list[Lease] = []
        for lease in leases:
            found = standing.get(infohash_of(lease.record))
            if found is None:
                left.append(lease)
                continue
            self._hints.take(infohash_of(lease.record))
            self._funnel.count(CrawlOutcome.ALREADY_STORED if found is Standing.STORED else CrawlOutcome.FORBIDDEN)
            await self._queue.done([lease], found.name.lower())
        return left

    async def _try(self, lease: Lease) -> None:
        infohash = infohash_of(lease.record)
        hint = self._hints.take(infohash)
        self._funnel.count(CrawlOutcome.TRIED)
        try:
            async with asyncio.timeout(TRY_MAX_S):
                fetch, metadata = await self._fetch(infohash, hint)
        except TryFailed as failed:
            if failed.outcome is not CrawlOutcome.POSTPONED:
                self._update_trust(lease, hint, fetched=False)
            await self._fail(lease, failed.outcome)
        except TimeoutError:
            await self._fail(lease, CrawlOutcome.NO_METADATA)
        else:
            self._update_trust(lease, hint, fetched=True)
            await self._metadata.deliver(lease, fetch, metadata)
        finally:
            self.in_work -= 1

    async def _fail(self, lease: Lease, outcome: CrawlOutcome) -> None:
        self._funnel.count(outcome)
        self._hints.keep(infohash_of(lease.record))
        await self._queue.failed(lease, outcome)

    def _update_trust(self, lease: Lease, hint: Hint, *, fetched: bool) -> None:
        """Only the first try of an infohash counts."""
        if not lease.record.attempts:
            for sampler in hint.samplers:
                self._hints.trust.tried(sampler.endpoint, self._queue.now(), fetched=fetched)

    async def _fetch(self, infohash: bytes, hint: Hint) -> tuple[MetadataFetch, bytes]:
        """Return metadata that still counts as in flight. Raises `TryFailed`."""
        known_peers = dict.fromkeys(hint.peers)
        closer: dict[Contact, None] = {}
        for sampler in self._samplers.least_busy(hint.samplers)[:SAMPLERS_ASKED_MAX]:
            answer = await self._samplers.ask(sampler, infohash)
            if answer is not None:
                known_peers |= dict.fromkeys(answer.peers)
                closer |= dict.fromkeys(answer.closer)
            if known_peers:
                break
        fetch = self._metadata.start(infohash)
        for peer in known_peers:
            fetch.add_peer(peer)
        fetch.no_more_peers()
        try:
            metadata = await fetch.result()
        except NoMetadata:
            if is_postponed(fetch):
                raise TryFailed(CrawlOutcome.POSTPONED) from None
            if not fetch.connects_left:  # no connections are left for the peers of a lookup
                raise TryFailed(CrawlOutcome.NO_METADATA) from None
        else:
            self._funnel.count(CrawlOutcome.FETCHED_FROM_SAMPLER)
            return fetch, metadata
        return await self._look_up(infohash, set(known_peers), list(closer)[:CLOSER_MAX], fetch.connects_left)

    async def _look_up(
        self, infohash: bytes, tried: set[bytes], closer: list[Contact], peers_max: int
    ) -> tuple[MetadataFetch, bytes]:
        if not await self._lookup_budget.take(LOOKUP_WAIT_MAX_S):
            raise TryFailed(CrawlOutcome.NO_METADATA if tried else CrawlOutcome.NO_LOOKUP)
        fetch = self._metadata.start(infohash, peers_max)
        searching = asyncio.create_task(self._search(fetch, closer, tried))
        try:
            metadata = await fetch.result()
        except NoMetadata:
            if is_postponed(fetch):
                raise TryFailed(CrawlOutcome.POSTPONED) from None
            has_peers = tried or fetch.peer_count
            raise TryFailed(CrawlOutcome.NO_METADATA if has_peers else CrawlOutcome.NO_PEERS) from None
        finally:
            searching.cancel()  # the fetch has ended, so no more peers are needed
            await asyncio.wait([searching])
        self._funnel.count(CrawlOutcome.FETCHED_AFTER_LOOKUP)
        return fetch, metadata

    async def _search(self, fetch: MetadataFetch, closer: list[Contact], tried: set[bytes]) -> None:
        try:
            async with self._lookups:
                async for peer in self._session.peer_endpoints(fetch.infohash, closer):
                    if peer not in tried:
                        fetch.add_peer(peer)
        except NodeBusy:
            fetch.failures[PeerFailure.LOCAL] += 1
        finally:
            fetch.no_more_peers()


def is_postponed(fetch: MetadataFetch) -> bool:
    """Return whether a fetch failed only for reasons on our side."""
    return bool(fetch.failures) and fetch.failures.keys() <= OUR_OWN
