"""Open search indexes, their indexers and the search site.

Errors are `IndexFailure`, or `UsageError` for wrong options: the message says what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from lycosa.app.index_engines import open_in_folder
from lycosa.app.index_places import IndexPlace, local_folder
from lycosa.core.errors import IndexFailure, UsageError
from lycosa.crawl.items.indexer import Indexer, source_name
from lycosa.search import index_folder
from lycosa.search.core.analysis import NAMES_ONLY, analysis_of
from lycosa.search.core.schema import PAGES, TORRENTS, Schema
from lycosa.search.core.sphinx_address import SphinxAddress
from lycosa.search.index_folder import Marker
from lycosa.search.pages import PageIndex
from lycosa.search.ports import DocumentIndex, Index
from lycosa.search.speller import Speller
from lycosa.search.sphinx.config import index_config, searchd_config
from lycosa.search.sphinx.index import SphinxIndex, erase_sphinx, sphinx_marker
from lycosa.search.word_list import WordList, erase_words, word_counter


def open_index(place: IndexPlace, *, write: bool = False, engine: str | None = None) -> DocumentIndex:
    """Open the index of pages at this place. With `write`, it is created if missing, and locked against other writers.

    `engine` is for a new index in a folder (default: tantivy).
    """
    schema = index_folder.schema_of(marker_of(place), PAGES)
    index = _open_index(place, schema, engine, write=write)
    folder = local_folder(place)
    if write:
        return PageIndex(index, words=word_counter(folder, index))
    return PageIndex(index, speller=Speller(WordList(folder)))


def _open_index(place: IndexPlace, schema: Schema, engine: str | None, *, write: bool) -> Index:
    if not isinstance(place, SphinxAddress):
        return open_in_folder(place, schema, engine, write=write)
    if engine:
        raise UsageError(f"--engine {engine} is for an index in a folder, not for {place}")
    return SphinxIndex(place, schema, write=write)


def declare_index(
    place: IndexPlace, analysis: tuple[str, ...], fields: Mapping[str, tuple[str, ...]], engine: str | None = None
) -> None:
    """Create an index of items with this analysis and these fields, unless the index exists.

    Raises `IndexFailure` for an unknown analysis, or if the existing index differs.
    """
    if analysis_of(analysis).names_only:
        raise IndexFailure(f"the analysis {NAMES_ONLY} is for torrents, not for items")
    marker = marker_of(place)
    if marker is None:
        _open_index(place, replace(PAGES, analysis=analysis, fields=fields), engine, write=True).close()
    elif (marker.analysis, marker.fields) != (analysis, fields):
        raise IndexFailure(f"the index {place} has other fields or another analysis: build it again with --fresh")


def index_stats(place: IndexPlace) -> tuple[int, int, dict[str, int]]:
    """Return the number of documents, the size in bytes, and the indexed position in each source.

    An index of torrents has no positions.
    """
    marker = marker_of(place)
    of_torrents = marker is not None and marker.kind == TORRENTS.kind
    if isinstance(place, SphinxAddress):
        with closing(SphinxIndex(place, TORRENTS if of_torrents else PAGES)) as index:
            return index.count(), index.size_bytes(), {} if of_torrents else index.positions()
    size_bytes = sum(_size(file) for file in place.rglob("*"))
    if of_torrents:
        from lycosa.app.torrent_search import open_torrent_index  # slow to import

        with closing(open_torrent_index(place)) as torrents:
            return torrents.count(), size_bytes, {}
    with closing(open_index(place)) as pages:
        return pages.count(), size_bytes, pages.positions()


def marker_of(place: IndexPlace) -> Marker | None:
    """Return the marker of the index at this place, if any."""
    return sphinx_marker(place) if isinstance(place, SphinxAddress) else index_folder.marker_of(place)


def erase_index(place: IndexPlace) -> None:
    """Empty an index, even one of another version of Lycosa, so that it can be built again."""
    if isinstance(place, SphinxAddress):
        erase_sphinx(place)
        erase_words(local_folder(place))
    else:
        index_folder.erase(place)


def sphinx_configuration(address: SphinxAddress, folder: Path, memory: str, *, pages: bool, manticore: bool) -> str:
    """Return the configuration with which Sphinx's or Manticore's searchd serves this index."""
    schema = PAGES if pages else TORRENTS
    indexes = index_config(address.name, schema, folder, memory, manticore=manticore)
    return indexes + searchd_config(address, folder)


def file_indexer(index: DocumentIndex, file: Path) -> Indexer:
    """Return the indexer for the items in a file."""
    return Indexer(index, file, source_name(file))


def build_search_site(index: DocumentIndex, title: str) -> object:
    """Return the search site as an ASGI application."""
    from lycosa.search.site.app import build_site  # slow to import, and not needed by `lycosa search`

    return build_site(index, title=title)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
