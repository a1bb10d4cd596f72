"""The content stage between a real queue and a store."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from lycosa.dht.core.crawl_funnel import CrawlOutcome, Funnel
from lycosa.dht.crawler.content import INLINE_BYTES_MAX, ContentStage
from lycosa.dht.crawler.core.hash_records import POLICY, SAMPLED
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.store import FetchedTorrent, StoreStage
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.core.torrent_record import Refusal, Standing, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.rules.records import rules_of
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
HYBRID = torrent(3, v2=True)


def inspect(record: TorrentRecord) -> Inspection:
    return Inspection(replace(record, name="cleaned"), "not here" if record.name == HYBRID.name else "")


def test_accepted_torrents_are_cleaned_and_refused_ones_denied_by_both_infohashes(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), MemoryRecordStore(), Funnel()
        taken: list[FetchedTorrent] = []
        released: list[bool] = []

        class Next:
            async def put(self, torrent: FetchedTorrent) -> None:
                taken.append(torrent)

        rules = rules_of(inspect)
        stage = ContentStage(lambda: rules, store, queue, Next(), funnel)
        records = [torrent(1), torrent(2), HYBRID]
        await queue.push([record.keys[0] for record in records], SAMPLED)
        for lease, record, size in zip(await queue.lease(9), records, (9, INLINE_BYTES_MAX + 1, 9), strict=True):
            await stage.put(FetchedTorrent(lease, record, size, lambda: released.append(True)))

        assert [each.record.name for each in taken] == ["cleaned", "cleaned"]
        assert {each.rules for each in taken} == {rules}
        assert released == [True], "a refused torrent is no longer in flight"
        assert funnel.counts[CrawlOutcome.REFUSED_BY_RULES] == 1
        assert await store.standing(HYBRID.keys, NOW) == dict.fromkeys(HYBRID.keys, Standing.DENIED)
        refusal = await store.refusal(HYBRID.keys[1], NOW)
        assert refusal is not None
        assert refusal.reason == "not here"
        assert (await queue.stats()).done == 1
        await frontier.close()

    asyncio.run(run())


def test_a_torrent_whose_other_infohash_is_denied_is_denied_by_both(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue, store, funnel = HashQueue(frontier, lambda: NOW, lambda: 0.0), MemoryRecordStore(), Funnel()
        v1, v2 = HYBRID.keys
        await store.deny([v1], reason="a notice")
        await queue.push([v2], SAMPLED)
        [lease] = await queue.lease(1)
        released: list[bool] = []
        rules = rules_of(Inspection)
        taker = StoreStage(store, queue, funnel, lambda: rules)
        stage = ContentStage(lambda: rules, store, queue, taker, funnel)
        await stage.put(FetchedTorrent(lease, HYBRID, 9, lambda: released.append(True)))
        assert (taker.waiting, released, funnel.counts) == (0, [True], {CrawlOutcome.FORBIDDEN: 1})
        assert await store.refusal(v2, NOW) == Refusal(Standing.DENIED, None, "a notice")
        assert (await queue.stats()).reasons == {"denied": 1}
        await store.allow([v1])
        assert await store.standing([v1, v2], NOW) == {}
        await frontier.close()

    asyncio.run(run())
