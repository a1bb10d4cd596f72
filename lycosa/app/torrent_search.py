"""Opens the search of torrents, its site and its indexer, over a store of torrents and an index."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.core.errors import UsageError
from lycosa.infra.clock import Clock
from lycosa.search import fts5, tantivy
from lycosa.search.core.schema import TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.index_folder import engine_of
from lycosa.search.ports import Index
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import TorrentSearch
from lycosa.storage.ports import RecordStore

INDEX = "index"
"""The folder of the index in a state folder."""
ENGINES = {tantivy.ENGINE: TantivyIndex, fts5.ENGINE: Fts5Index}


def index_folder(location: RecordsLocation, folder: str | None) -> Path:
    """Return the folder of the index: in that of the state, unless another one is given. Raises `UsageError`."""
    if folder is not None:
        return Path(folder)
    if location.state is None:
        raise UsageError("which index? Give --index DIR")
    return Path(location.state) / INDEX


def open_torrent_index(folder: Path, *, write: bool = False, engine: str | None = None) -> Index:
    """Open an index of torrents. A new one gets the engine; tantivy without one. Raises `IndexFailure`."""
    return ENGINES[engine or engine_of(folder) or tantivy.ENGINE](folder, TORRENTS, write=write)


@asynccontextmanager
async def open_torrent_search(location: RecordsLocation, folder: Path) -> AsyncIterator[TorrentSearch]:
    """Open the search. Raises `UsageError` if there are no torrents, `IndexFailure` if there is no index."""
    async with open_records(location) as store:
        index = open_torrent_index(folder)
        try:
            yield TorrentSearch(index, store, Clock().now)
        finally:
            index.close()


@asynccontextmanager
async def torrent_indexer(store: RecordStore, folder: Path, engine: str | None = None) -> AsyncIterator[TorrentIndexer]:
    """Open the indexer of an open store: the only writer of this index. Raises `IndexFailure`."""
    index = await asyncio.to_thread(open_torrent_index, folder, write=True, engine=engine)
    indexer = TorrentIndexer(index, store)
    try:
        yield indexer
    finally:
        await indexer.close()


def build_torrent_site(search: TorrentSearch, title: str) -> object:
    """Return the site, as an ASGI application."""
    from lycosa.search.site.torrents.app import build_torrent_site as build  # slow to import

    return build(search, title=title)
