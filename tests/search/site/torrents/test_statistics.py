"""Numbers are shown while they are counted again, unless they are old."""

from __future__ import annotations

import asyncio
from contextlib import closing

from lycosa.search.core.schema import TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.site.torrents.statistics import AGE_MAX_S, COUNT_EVERY_S, Statistics
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import TorrentSearch
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
