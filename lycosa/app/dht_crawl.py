"""Opens a crawl of the DHT with its state.

DIR/node.json, DIR/lock    the node: its id and its contacts
DIR/queue/                 the infohashes, a frontier of its own: `lycosa frontier` shows it
DIR/torrents.sqlite        the torrents
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lycosa.dht.crawler.core.hash_records import POLICY
from lycosa.dht.crawler.crawl import TorrentCrawl
from lycosa.dht.session import DhtSession
from lycosa.frontier.core.description import Description
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.state_dir import StateDir
from lycosa.infra.clock import Clock, chance
from lycosa.storage.records.sqlite import SqliteRecordStore

QUEUE, TORRENTS = "queue", "torrents.sqlite"
NAME = "infohashes of the DHT"


@asynccontextmanager
async def open_torrent_crawl(session: DhtSession, folder: Path) -> AsyncIterator[TorrentCrawl]:
    """Open the crawl with this state folder, which the node has locked. Raises `StateError`."""
    async with AsyncExitStack() as stack:
        clock = Clock()
        state = StateDir(folder / QUEUE)
        stack.callback(state.close)
        state.check_complete()
        frontier = embedded_frontier(state.frontier, POLICY, now=clock.now())
        stack.push_async_callback(frontier.close)
        if not state.description.name:
            state.describe(Description(name=NAME))
        store = SqliteRecordStore(folder / TORRENTS)
        await store.open()
        stack.push_async_callback(store.close)
        yield TorrentCrawl(session, frontier, store, clock.now, chance)
