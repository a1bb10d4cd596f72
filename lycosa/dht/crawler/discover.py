"""Stage 1 of a DHT crawl: finds infohashes in samples (BEP 51), and in the announces and lookups that reach us."""

from __future__ import annotations

import asyncio

from lycosa.core.rate_limit import RateLimit
from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.endpoints import site_of
from lycosa.dht.core.events import Event, InfohashesSampled, PeerAnnounced, PeersWanted, QueryFinished
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.core.transactions import REFUSED
from lycosa.dht.crawler.budget import Budget
from lycosa.dht.crawler.core.profiles import Profile
from lycosa.dht.crawler.core.sweep import Ask, Rest, Search, Sweep
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.triage import Triage
from lycosa.dht.session import DhtSession
from lycosa.dht.udp import DatagramShell

ASKS_MAX = 400
"""Sample queries in flight. At 100 queries a second, 330 are in flight: a third of them time out after 10 seconds."""
QUEUED_CHECK_S = 1.0
HARVEST_MAX = 10_000
"""Infohashes that wait for triage. More are dropped and counted."""
ANNOUNCES_BURST = 50
ANNOUNCES_PER_S = 1 / 60
"""Announces taken from a host: ANNOUNCES_BURST at once, then one a minute. More are dropped and counted. Announced
infohashes are tried first, so a host that invents them could stop the crawl and fill the disk. Dropped infohashes
that are real can still be found in samples.
"""
HOSTS_MAX = 131_072
"""Hosts whose announces are counted."""
WANTED_MAX = 50_000
"""Infohashes whose requests are counted; about 8 MB."""
WANTED_MIN = 2
"""Requests for an infohash before it is queued. One is not enough: libtorrent also looks up random targets."""
CONTACTS_AT_START = 64


class SweepStage:
    """Requests samples from the nodes along the key space."""

    def __init__(self, session: DhtSession, sweep: Sweep, triage: Triage, queue: HashQueue, profile: Profile) -> None:
        self._session, self.sweep, self._triage = session, sweep, triage
        self._queue, self._queued_max, self._queued_checked_at = queue, profile.queued_max, -QUEUED_CHECK_S
        self._budget = Budget(profile.samples)
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(ASKS_MAX)

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        if not self._session.is_isolated:
            await self._session.joined()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._room_in_queue()
                await self._slots.acquire()
                await self._budget.take()
                step = self.sweep.next_step(clock())
                if not isinstance(step, Ask):
                    self._budget.put_back()
                if isinstance(step, Rest):
                    self._slots.release()
                    await self._rest(step.until)
                elif isinstance(step, Ask):
                    tasks.create_task(self._ask(step))
                else:
                    tasks.create_task(self._search(step))

    async def _room_in_queue(self) -> None:
        clock = asyncio.get_running_loop().time
        while clock() - self._queued_checked_at >= QUEUED_CHECK_S:
            if (await self._queue.stats()).queued <= self._queued_max:
                self._queued_checked_at = clock()
            else:
                await asyncio.sleep(QUEUED_CHECK_S)

    async def _rest(self, until: float) -> None:
        try:
            async with asyncio.timeout_at(until):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def _ask(self, ask: Ask) -> None:
        contact, clock = ask.contact, asyncio.get_running_loop().time
        try:
            answer = await self._session.sample_infohashes(contact, ask.target)
            if isinstance(answer, InfohashesSampled) and answer.samples is not None:
                # Queue the infohashes first: the sweep's position must not pass the node before they are queued.
                new = await self._triage.take(answer.samples, CrawlOutcome.SAMPLED, sampler=contact)
                self.sweep.answered(
                    ask,
                    answer.closer,
                    clock(),
                    interval_s=answer.interval_s,
                    num=answer.infohashes,
                    sampled=len(answer.samples),
                    new=new,
                )
            elif isinstance(answer, QueryFinished) and answer.error == REFUSED:
                self.sweep.postponed(ask, clock())
            else:
                closer = answer.closer if isinstance(answer, InfohashesSampled) else ()
                self.sweep.failed(ask, closer, clock())
        except NodeBusy:
            self.sweep.postponed(ask, clock())
        finally:
            self._slots.release()
            self._changed.set()

    async def _search(self, search: Search) -> None:
        found = self._session.contacts(search.target, CONTACTS_AT_START)
        try:
            found += await self._session.find_node(search.target)
        except NodeBusy:
            await asyncio.sleep(1.0)
        finally:
            self.sweep.searched(search.target, found)
            self._slots.release()
            self._changed.set()


class HarvestStage:
    """Collects the infohashes that other nodes announce to our node, or request from it."""

    def __init__(self, session: DhtSession, triage: Triage, funnel: Funnel, profile: Profile) -> None:
        self._session, self._triage, self._funnel = session, triage, funnel
        self._waiting: asyncio.Queue[PeerAnnounced | PeersWanted] = asyncio.Queue(HARVEST_MAX)
        self._wanted: RecentDict[bytes, int] = RecentDict(WANTED_MAX)
        self._wanted_budget = Budget(profile.harvested)
        self._announces = RateLimit[bytes](ANNOUNCES_PER_S, ANNOUNCES_BURST, keys_max=HOSTS_MAX)

    async def run(self) -> None:
        self._session.listeners.append(self._receive)
        try:
            while True:
                event = await self._waiting.get()
                if isinstance(event, PeerAnnounced):
                    await self._triage.take((event.infohash,), CrawlOutcome.ANNOUNCED, peer=event.endpoint)
                else:
                    await self._triage.take((event.infohash,), CrawlOutcome.WANTED)
        finally:
            self._session.listeners.remove(self._receive)

    def _receive(self, _: DatagramShell, event: Event) -> None:
        if isinstance(event, PeerAnnounced):
            allowed = self._announces.allow(site_of(event.endpoint), asyncio.get_running_loop().time())
        elif isinstance(event, PeersWanted) and self._is_wanted(event.infohash):
            allowed = self._wanted_budget.take_now()
            if not allowed:
                self._wanted[event.infohash] = WANTED_MIN - 1  # the next request is another chance
        else:
            return
        if allowed and not self._waiting.full():
            self._waiting.put_nowait(event)
        else:
            self._funnel.count(CrawlOutcome.DROPPED)

    def _is_wanted(self, infohash: bytes) -> bool:
        """Whether the number of requests has just reached WANTED_MIN."""
        times = self._wanted[infohash] = min(self._wanted.get(infohash, 0) + 1, WANTED_MIN + 1)
        return times == WANTED_MIN
