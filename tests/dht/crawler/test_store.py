"""The store stage between a real queue and a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.core.hash_records import POLICY, SAMPLED
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, StoreStage
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import PutResult, Standing, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.rules.records import rules_of
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
RULES = rules_of(Inspection)
VIDEO = ContentFacts(ContentType.VIDEO)


def inspect(record: TorrentRecord) -> Inspection:
    return Inspection(replace(record, content=VIDEO), "not here" if record == torrent(2) else "")


def test_a_private_torrent_is_not_stored_and_the_queue_says_why(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), MemoryRecordStore(), Funnel()
        stage = StoreStage(store, queue, funnel, lambda: RULES)
        records = [torrent(1), replace(torrent(2), private=True)]
        await queue.push([record.keys[0] for record in records], SAMPLED)
        for lease, record in zip(await queue.lease(9), records, strict=True):
            await stage.put(FetchedTorrent(lease, record, 9, lambda: None, RULES))
        await stage.finish()
        assert (await queue.stats()).reasons == {"fetched": 1, "private": 1}
        assert [row.record for row in await store.torrents(0, 9)] == records[:1]
        assert +funnel.counts == {CrawlOutcome.STORED: 1, CrawlOutcome.REFUSED: 1}
        await frontier.close()

    asyncio.run(run())


def test_torrents_that_the_store_evicts_are_counted(tmp_path: Path) -> None:
    class FullStore(MemoryRecordStore):
        async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
            return (await super().put(records, now))._replace(evicted=100)

    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), Funnel()
        stage = StoreStage(FullStore(), queue, funnel, lambda: RULES)
        await queue.push([torrent(1).keys[0]], SAMPLED)
        [lease] = await queue.lease(9)
        await stage.put(FetchedTorrent(lease, torrent(1), 9, lambda: None, RULES))
        await stage.finish()
        assert +funnel.counts == {CrawlOutcome.STORED: 1, CrawlOutcome.EVICTED: 100}
        await frontier.close()

    asyncio.run(run())


@pytest.mark.parametrize("changed", ["while they wait", "while they are stored"])
def test_new_rules_apply_to_inspected_torrents_that_wait_or_are_being_stored(tmp_path: Path, changed: str) -> None:
    current = RULES

    class SlowStore(MemoryRecordStore):
        async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
            nonlocal current
            stored = await super().put(records, now)
            current = rules_of(inspect)
            return stored

    async def run() -> None:
        nonlocal current
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store = HashQueue(frontier, lambda: NOW, lambda: 0.0), SlowStore()
        stage = StoreStage(store, queue, Funnel(), lambda: current)
        records = [torrent(1), torrent(2)]
        await queue.push([record.keys[0] for record in records], SAMPLED)
        for lease, record in zip(await queue.lease(9), records, strict=True):
            await stage.put(FetchedTorrent(lease, record, 9, lambda: None, RULES))
        if changed == "while they wait":
            current = rules_of(inspect)
        await stage.finish()
        assert [row.record for row in await store.torrents(0, 9)] == [replace(torrent(1), content=VIDEO)]
        assert await store.standing(torrent(2).keys, NOW) == dict.fromkeys(torrent(2).keys, Standing.DENIED)
        assert (await queue.stats()).done == 2
        await frontier.close()

    asyncio.run(run())


def test_a_batch_that_is_being_stored_when_the_crawl_ends_is_counted_and_done(tmp_path: Path) -> None:
    class SlowStore(MemoryRecordStore):
        started, may_end = asyncio.Event(), asyncio.Event()

        async def put(self, records: Sequence[TorrentRecord], now: float) -> PutResult:
            self.started.set()
            await self.may_end.wait()
            return await super().put(records, now)

    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), SlowStore(), Funnel()
        stage = StoreStage(store, queue, funnel, lambda: RULES)
        delivered: list[TorrentRecord] = []

        async def deliver(records: Sequence[TorrentRecord]) -> None:
            delivered.extend(records)

        stage.listeners.append(deliver)
        await queue.push(torrent(1).keys, SAMPLED)
        [lease] = await queue.lease(9)
        running = asyncio.create_task(stage.run())
        await stage.put(FetchedTorrent(lease, torrent(1), 9, lambda: None, RULES))
        await store.started.wait()
        running.cancel()
        await asyncio.wait([running])
        store.may_end.set()
        await stage.finish()
        assert funnel.counts[CrawlOutcome.STORED] == 1
        assert delivered == [torrent(1)]
        assert (await queue.stats()).reasons == {"fetched": 1}
        await frontier.close()

    asyncio.run(run())
