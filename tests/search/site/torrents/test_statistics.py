"""Numbers are shown while they are counted again, unless they are old."""

from __future__ import annotations

import asyncio
from contextlib import closing

from lycosa.search.core.request import ValueCounts
from lycosa.search.core.schema import TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.site.torrents.statistics import AGE_MAX_S, COUNT_EVERY_MAX_S, COUNT_EVERY_S, Statistics
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import RangeCounts, TorrentCount, TorrentSearch
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent


def test_older_numbers_are_shown_while_torrents_are_counted(tmp_path):
    async def scenario():
        now, store = 0.0, MemoryRecordStore()
        with closing(Fts5Index(tmp_path / "index", TORRENTS, write=True)) as index:
            indexer = TorrentIndexer(index, store)
            statistics = Statistics(TorrentSearch(index, store, lambda: 0.0), lambda: now)

            async def grow() -> None:
                await store.put([torrent(await store.count())], 0.0)
                await indexer.catch_up()

            async def shown() -> int:
                return (await statistics.get()).torrents

            await grow()
            assert await asyncio.gather(shown(), shown()) == [1, 1]
            await grow()
            now = COUNT_EVERY_S
            assert await shown() == 1
            now += 1
            assert await shown() == 1, "the earlier numbers, while the torrents are counted"
            while await shown() == 1:  # noqa: ASYNC110  the count runs in a thread
                await asyncio.sleep(0)
            assert await shown() == 2
            await grow()
            now += AGE_MAX_S + 1
            assert await shown() == 3, "old numbers are not shown"
            await indexer.close()

    asyncio.run(scenario())


def test_numbers_that_take_long_to_count_are_counted_less_often(tmp_path):
    async def scenario():
        now, counts, running, at_once = 0.0, 0, 0, []

        class SlowSearch(TorrentSearch):
            """Takes a second for each of the four numbers."""

            async def count(self) -> TorrentCount:
                return await self._slow(super().count())

            async def count_values(self, request, *, exact=False) -> ValueCounts:
                return await self._slow(super().count_values(request, exact=exact))

            async def count_ranges(self, field, bounds) -> RangeCounts:
                return await self._slow(super().count_ranges(field, bounds))

            async def _slow(self, count):
                nonlocal now, counts, running
                counts, running = counts + 1, running + 1
                at_once.append(running)
                counted = await count
                now, running = now + 1, running - 1
                return counted

        with closing(Fts5Index(tmp_path / "index", TORRENTS, write=True)) as index:
            statistics = Statistics(SlowSearch(index, MemoryRecordStore(), lambda: 0.0), lambda: now)
            await statistics.get()
            assert (counts, max(at_once)) == (4, 4), "a visitor waits"
            at_once.clear()
            now += COUNT_EVERY_MAX_S - 1
            await statistics.get()
            for _ in range(9):  # a count would start in some turns of the loop
                await asyncio.sleep(0)
            assert counts == 4
            now += 2
            await statistics.get()
            while counts < 8:  # noqa: ASYNC110  the counts run in threads
                await asyncio.sleep(0)
            assert max(at_once) == 1, "no visitor waits"

    asyncio.run(scenario())
