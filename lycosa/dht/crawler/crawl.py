"""The crawler of the DHT: its stages in their order, and what runs them.

     1 discover    samples of nodes along the key space; what others announce to
                   our node, and ask it for                                         discover.py
     2 triage      new or known                                                     triage.py
         the queue: infohashes, durable, with due times                             queue.py
     3 peers       the nodes that named it, else a lookup                           peers.py samplers.py
     4 metadata    from several peers, bounded together                             metadata.py
     5 content     clean names, rules, what the torrent holds                       content.py
     6 store       in batches; then the infohash is done                            store.py
     7 popularity  seeders and leechers of what is stored; what is named again      popularity.py seen.py
     8 returns     evicted torrents into the queue again, after 90 days             returns.py

A stage awaits the next one, which bounds every hand-off; only what others announce or want is dropped if it is too
much. Each stage has its share of what the profile of the crawl allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from lycosa.dht.core.crawl_funnel import Funnel
from lycosa.dht.crawler.content import ContentStage, Inspect
from lycosa.dht.crawler.core.hints import Hints
from lycosa.dht.crawler.core.profiles import HOME, Profile
from lycosa.dht.crawler.core.sweep import Sweep
from lycosa.dht.crawler.discover import HarvestStage, SweepStage
from lycosa.dht.crawler.metadata import MetadataStage
from lycosa.dht.crawler.peers import PeersStage
from lycosa.dht.crawler.popularity import PopularityStage
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.returns import ReturnsStage
from lycosa.dht.crawler.seen import SeenStage
from lycosa.dht.crawler.store import StoreStage
from lycosa.dht.crawler.triage import Triage
from lycosa.dht.session import DhtSession
from lycosa.frontier.core.model import FrontierStats
from lycosa.frontier.ports import ReadableFrontier
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.ports import RecordStore


class TorrentCrawlStatus(NamedTuple):
    """How a crawl is doing. `frontier` counts the infohashes of all runs."""

    funnel: Funnel
    frontier: FrontierStats
    in_work: int
    coverage: float
    known_share: float
    sweeps: int
    all_lookups_used: bool
    store_waiting: int
    store_busy_s: float
    queued_max: int


class TorrentCrawl:
    """A crawl with an open node, frontier and store, which stay open at its end."""

    def __init__(
        self,
        session: DhtSession,
        frontier: ReadableFrontier,
        store: RecordStore,
        inspect: Inspect,
        now: Callable[[], float],
        chance: Callable[[], float],
        profile: Profile = HOME,
    ) -> None:
        self.funnel = funnel = Funnel()
        self._session, self._profile, hints = session, profile, Hints()
        self._queue = queue = HashQueue(frontier, now, chance)
        self._seen = SeenStage(store, now)
        self._triage = Triage(queue, hints, funnel, self._seen.add)
        self._harvest = HarvestStage(session, self._triage, funnel, profile)
        self._store = StoreStage(store, queue, funnel)
        content = ContentStage(inspect, store, queue, self._store, funnel)
        metadata = MetadataStage(session.fetcher, queue, content, funnel, profile.peers_per_try)
        self._peers = PeersStage(session, queue, store, hints, metadata, funnel, profile)
        self._popularity = PopularityStage(session, store, now, funnel, profile)
        self._returns = ReturnsStage(store, queue)
        self._sweep: Sweep | None = None

    async def run(self) -> None:
        """Crawl until cancelled. Then what was fetched is stored, and everything is durable."""
        position = await self._queue.sweep_position()
        self._sweep = sweep = Sweep(asyncio.get_running_loop().time(), position)
        sweeping = SweepStage(self._session, sweep, self._triage, self._queue, self._profile)
        stages = (sweeping, self._harvest, self._peers, self._store, self._popularity, self._seen, self._returns)
        try:
            async with asyncio.TaskGroup() as tasks:
                for stage in stages:
                    tasks.create_task(stage.run())
                tasks.create_task(self._queue.keep_durable(lambda: sweep.position))
        finally:
            await self._store.finish()
            await self._queue.commit(sweep.position)

    async def status(self) -> TorrentCrawlStatus:
        """Return the counts."""
        sweep, now = self._sweep, asyncio.get_running_loop().time()
        return TorrentCrawlStatus(
            self.funnel,
            await self._queue.stats(),
            self._peers.in_work,
            sweep.coverage if sweep else 0.0,
            sweep.known_share(now) if sweep else 0.0,
            sweep.sweeps if sweep else 0,
            self._peers.all_lookups_used,
            self._store.waiting,
            self._store.busy_s,
            self._profile.queued_max,
        )

    async def commit(self) -> None:
        """Make what was queued durable, with the position of the sweep."""
        if self._sweep is not None:
            await self._queue.commit(self._sweep.position)

    @property
    def stored_listeners(self) -> list[Callable[[Sequence[TorrentRecord]], Awaitable[None]]]:
        """Called with each batch of records when it is stored; the next one waits until they return."""
        return self._store.listeners
