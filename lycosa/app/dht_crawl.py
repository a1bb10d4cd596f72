"""Opens a crawl of the DHT with its state."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lycosa.app.dht_state import TORRENTS, open_hash_frontier
from lycosa.dht.crawler.crawl import TorrentCrawl
from lycosa.dht.session import DhtSession
from lycosa.infra.clock import Clock, chance
from lycosa.storage.records.sqlite import SqliteRecordStore


@asynccontextmanager
async def open_torrent_crawl(session: DhtSession, folder: Path) -> AsyncIterator[TorrentCrawl]:
    """Open the crawl with this state folder, which the node has locked. Raises `StateError`."""
    async with AsyncExitStack() as stack:
        clock = Clock()
        frontier = await stack.enter_async_context(open_hash_frontier(folder, clock.now()))
        store = SqliteRecordStore(folder / TORRENTS)
        await store.open()
        stack.push_async_callback(store.close)
        yield TorrentCrawl(session, frontier, store, clock.now, chance)
