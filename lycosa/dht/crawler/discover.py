"""Stage 1: infohashes, from nodes that are asked for samples (BEP 51) and from announces to our own node."""

from __future__ import annotations

import asyncio

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.core.events import Event, InfohashesSampled, PeerAnnounced
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.crawler.core.sweep import Ask, Rest, Search, Sweep
from lycosa.dht.crawler.triage import Triage
from lycosa.dht.session import DhtSession
from lycosa.dht.udp import DatagramShell

ASKS_MAX = 32
"""Samples in flight. At 0.2 s for an answer that is 160 a second: a sweep of 5 million nodes would take 9 hours, and
the limits of the node are lower."""
ANNOUNCES_MAX = 10_000
"""Announces that wait for triage; more are dropped, and counted."""
CONTACTS_AT_START = 64


class SweepStage:
    """Asks node after node for samples."""

    def __init__(self, session: DhtSession, sweep: Sweep, triage: Triage) -> None:
        self._session, self.sweep, self._triage = session, sweep, triage
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(ASKS_MAX)

    async def run(self) -> None:
        """Sweep until cancelled."""
        clock = asyncio.get_running_loop().time
        if not self._session.is_isolated:
            await self._session.joined()
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._slots.acquire()
                step = self.sweep.next_step(clock())
                if isinstance(step, Rest):
                    self._slots.release()
                    await self._rest(step.until)
                elif isinstance(step, Ask):
                    tasks.create_task(self._ask(step))
                else:
                    tasks.create_task(self._search(step))

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
                # The infohashes first: the sweep's position must not pass the node before they are queued.
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
            self.sweep.searched(search.target, found, asyncio.get_running_loop().time())
            self._slots.release()
            self._changed.set()


class HarvestStage:
    """Takes what other nodes announce to our own."""

    def __init__(self, session: DhtSession, triage: Triage, funnel: Funnel) -> None:
        self._session, self._triage, self._funnel = session, triage, funnel
        self._waiting: asyncio.Queue[PeerAnnounced] = asyncio.Queue(ANNOUNCES_MAX)

    async def run(self) -> None:
        """Harvest until cancelled."""
        self._session.listeners.append(self._receive)
        try:
            while True:
                event = await self._waiting.get()
                await self._triage.take((event.infohash,), CrawlOutcome.ANNOUNCED, peer=event.endpoint)
        finally:
            self._session.listeners.remove(self._receive)

    def _receive(self, _: DatagramShell, event: Event) -> None:
        if not isinstance(event, PeerAnnounced):
            return
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            self._funnel.count(CrawlOutcome.DROPPED)
