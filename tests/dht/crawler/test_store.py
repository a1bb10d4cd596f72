"""The store stage between a real queue and a store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.core.hash_records import POLICY, SAMPLED
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, StoreStage
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0


def test_a_private_torrent_is_not_stored_and_the_queue_says_why(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), MemoryRecordStore(), Funnel()
        stage = StoreStage(store, queue, funnel)
        records = [torrent(1), replace(torrent(2), private=True)]
        await queue.push([record.keys[0] for record in records], SAMPLED)
        for lease, record in zip(await queue.lease(9), records, strict=True):
            await stage.put(FetchedTorrent(lease, record, 9, lambda: None))
        await stage.finish()
        assert (await queue.stats()).reasons == {"fetched": 1, "private": 1}
        assert [row.record for row in await store.torrents(0, 9)] == records[:1]
        assert funnel.counts == {CrawlOutcome.STORED: 1, CrawlOutcome.STORED_BEFORE: 0, CrawlOutcome.REFUSED: 1}
        await frontier.close()

    asyncio.run(run())
