"""The DHT crawler: its stages in order, and the class that runs them.

     1 discover    find infohashes in the samples of other nodes, and in the
                   announces and lookups that reach our node                        discover.py
     2 triage      drop known infohashes                                            triage.py
         the queue: durable infohashes with due times                               queue.py
     3 peers       from the nodes whose samples had the infohash, else by a lookup  peers.py samplers.py
     4 metadata    from several peers at a time; one limit for all connections      metadata.py
     5 content     clean names, classify contents, apply rules                      content.py
     6 store       write batches; then the infohash is done                         store.py

     7 popularity  count seeders and leechers; record when a torrent is seen again  popularity.py seen.py
     8 returns     requeue evicted torrents after 90 days                           returns.py

Each stage awaits the next one, so the number of waiting infohashes is bounded. Only announces and lookups from other
nodes are dropped when there are too many. The profile limits each stage separately.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from lycosa.dht.core.crawl_funnel import Funnel
from lycosa.dht.crawler.content import ContentStage
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
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.ports import RecordStore


class TorrentCrawlStatus(NamedTuple):
    """The state of a crawl. `frontier` counts the infohashes of all runs."""

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
    """A crawl on an open node, frontier and store, which it does not close."""

    def __init__(
        self,
        session: DhtSession,
        frontier: ReadableFrontier,
        store: RecordStore,
        current_rules: Callable[[], Inspector],
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
        self._store = StoreStage(store, queue, funnel, current_rules)
        content = ContentStage(current_rules, store, queue, self._store, funnel)
        metadata = MetadataStage(session.fetcher, queue, content, funnel, profile.peers_per_try)
        self._peers = PeersStage(session, queue, store, hints, metadata, funnel, profile)
        self._popularity = PopularityStage(session, store, now, funnel, profile)
        self._returns = ReturnsStage(store, queue, profile)
        self._sweep: Sweep | None = None

    async def run(self) -> None:
        """At the end, store the torrents that wait for the store, if that takes no longer than FINISH_MAX_S (store.py).

        The queue is made durable before and after that.
        """
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
            try:
                await self._queue.commit(sweep.position)  # now, because the store may take long, or fail
            finally:
                await self._store.finish()
                await self._queue.commit(sweep.position)

    async def status(self) -> TorrentCrawlStatus:
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
        if self._sweep is not None:
            await self._queue.commit(self._sweep.position)

    @property
    def stored_listeners(self) -> list[Callable[[Sequence[TorrentRecord]], Awaitable[None]]]:
        """Called and awaited after each batch is written, with all its records, even those that the store refused."""
        return self._store.listeners
