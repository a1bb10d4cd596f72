"""Open the index of torrents, and its indexer."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.index_engines import open_in_folder
from lycosa.app.index_places import IndexPlace, index_place, local_folder
from lycosa.core.errors import IndexDamaged, IndexUnavailable, UsageError
from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.schema import TORRENTS
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.index_folder import erase, marker_of, only_writer, schema_of
from lycosa.search.parallel_build import Workers
from lycosa.search.ports import Index
from lycosa.search.rebuilds import RebuildRequests
from lycosa.search.sphinx.index import SphinxIndex, SphinxWriter, sphinx_marker
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import IndexFollower, TorrentIndexer
from lycosa.search.word_list import WordCounter, word_counter
from lycosa.storage.ports import RecordStore

log = logging.getLogger(__name__)

INDEX = "index"
"""The folder of the index in a state folder."""
PROCESSES = min(4, os.cpu_count() or 1)
DIVIDED_MIN = 200_000
"""Minimum number of torrents for which several processes fill an index. Starting them takes a second."""
RETRY_S = 1.0
"""Pause of a site while a search server does not answer."""


def torrent_index_place(location: RecordsLocation, index: str | None) -> IndexPlace:
    """Return the place of `index`, by default in the state folder. Raises `UsageError`."""
    if index is not None:
        return index_place(index)
    if location.state is None:
        raise UsageError("which index? Give --index DIR")
    return Path(location.state) / INDEX


def open_torrent_index(
    place: IndexPlace,
    *,
    write: bool = False,
    engine: str | None = None,
    analysis: tuple[str, ...] | None = None,
    writer: SphinxWriter | None = None,
) -> Index:
    """Open an index of torrents. `analysis` is for a new index, `engine` (default: tantivy) for a new index in a
    folder, `writer` for an index on a search server.

    Raises `IndexFailure`, or `UsageError` if an index that is only to be read does not exist, or if `engine` is given
    for an index on a search server.
    """
    if isinstance(place, SphinxAddress):
        if engine:
            raise UsageError(f"--engine {engine} is for an index in a folder, not for {place}")
        schema = schema_of(sphinx_marker(place), TORRENTS, analysis)
        return SphinxIndex(place, schema, write=write, writer=writer)
    if not write and not place.exists():
        raise UsageError(f"{place} does not exist: `lycosa index` with the same --state or --store creates it")
    return open_in_folder(place, schema_of(marker_of(place), TORRENTS, analysis), engine, write=write)


async def open_when_available(place: IndexPlace) -> Index:
    """Open an index of torrents to search it. Try again while its search server does not answer."""
    said = ""
    while True:
        try:
            return await asyncio.to_thread(open_torrent_index, place)
        except IndexUnavailable as failure:
            if said != str(failure):
                log.warning("%s; trying again every %.0f s", failure, RETRY_S)
            said = str(failure)
            await asyncio.sleep(RETRY_S)


@asynccontextmanager
async def torrent_indexer(
    store: RecordStore,
    location: RecordsLocation,
    place: IndexPlace,
    engine: str | None = None,
    analysis: tuple[str, ...] | None = None,
    *,
    rebuild: bool = False,
    writer: SphinxWriter | None = None,
) -> AsyncIterator[TorrentIndexer]:
    """Open the indexer of an open store. The indexer is the only writer of the index.

    With `rebuild`, empty a damaged index in a folder. `writer` is for an index on a search server that is opened again.
    Raises `IndexFailure`, `UsageError`.
    """
    analysis_of(analysis or ())
    options: dict[str, Any] = {"write": True, "engine": engine, "analysis": analysis, "writer": writer}
    folder = local_folder(place, location.state)
    with only_writer(folder) if isinstance(place, SphinxAddress) else nullcontext():
        try:
            index, words = await _open_for_writing(place, folder, options)
        except IndexDamaged:
            if not rebuild or isinstance(place, SphinxAddress):
                raise
            erase(place, keeps_marker=True)
            index, words = await _open_for_writing(place, folder, options)
        divided = isinstance(index, TantivyIndex) and PROCESSES > 1
        workers = Workers(partial(open_records, location), PROCESSES, DIVIDED_MIN) if divided else None
        indexer = TorrentIndexer(index, store, words, RebuildRequests(folder), workers)
        try:
            yield indexer
        finally:
            await indexer.close()


def index_follower(
    store: RecordStore,
    location: RecordsLocation,
    place: IndexPlace,
    say: Callable[[str], None],
    engine: str | None = None,
    analysis: tuple[str, ...] | None = None,
) -> IndexFollower:
    """Return the follower of an open store. `async with` opens its index."""
    opening = partial(torrent_indexer, store, location, place, engine, analysis, writer=SphinxWriter())
    return IndexFollower(store, opening, say)


async def _open_for_writing(place: IndexPlace, folder: Path, options: dict[str, Any]) -> tuple[Index, WordCounter]:
    """Open an index and its word list."""
    index = await asyncio.to_thread(open_torrent_index, place, **options)
    return index, word_counter(folder, index)
