"""Opens the index of torrents, and its indexer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from lycosa.app.dht_state import RecordsLocation
from lycosa.core.errors import IndexFailure, UsageError
from lycosa.search import fts5, tantivy
from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.schema import TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.index_folder import marker_of, schema_of
from lycosa.search.ports import Index
from lycosa.search.rebuilds import RebuildRequests
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.word_list import WordCounter
from lycosa.storage.ports import RecordStore

INDEX = "index"
"""The folder of the index in a state folder."""
ENGINES: dict[str, Callable[..., Index]] = {tantivy.ENGINE: TantivyIndex, fts5.ENGINE: Fts5Index}


def index_folder(location: RecordsLocation, folder: str | None) -> Path:
    """Return `folder`, or by default the index folder in the state folder. Raises `UsageError` without both."""
    if folder is not None:
        return Path(folder)
    if location.state is None:
        raise UsageError("which index? Give --index DIR")
    return Path(location.state) / INDEX


def open_torrent_index(
    folder: Path, *, write: bool = False, engine: str | None = None, analysis: tuple[str, ...] | None = None
) -> Index:
    """Open an index of torrents. `engine` is that of a new index, by default tantivy; `analysis` that of a built one.

    Raises `IndexFailure`; `UsageError` if the index to read does not exist.
    """
    if not write and not folder.exists():
        raise UsageError(f"{folder} does not exist: `lycosa index` with the same --state or --store creates it")
    marker = marker_of(folder)
    name = engine or (marker.engine if marker else tantivy.ENGINE)
    if name not in ENGINES:
        raise IndexFailure(f"the index {folder} has the unknown engine {name[:20]!r}: update Lycosa")
    return ENGINES[name](folder, schema_of(folder, TORRENTS, analysis), write=write)


@asynccontextmanager
async def torrent_indexer(
    store: RecordStore, folder: Path, engine: str | None = None, analysis: tuple[str, ...] | None = None
) -> AsyncIterator[TorrentIndexer]:
    """Open the indexer of an open store. It is the only writer of the index. Raises `IndexFailure`."""
    analysis_of(analysis or ())
    index = await asyncio.to_thread(open_torrent_index, folder, write=True, engine=engine, analysis=analysis)
    indexer = TorrentIndexer(index, store, WordCounter(folder, TORRENTS), RebuildRequests(folder))
    try:
        yield indexer
    finally:
        await indexer.close()
