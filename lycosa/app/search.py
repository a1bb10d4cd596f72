"""Opens search indexes, their indexers and the search site. Raises `IndexFailure`; its message says what to do."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from lycosa.core.errors import IndexFailure
from lycosa.crawl.items.indexer import Indexer, source_name
from lycosa.search import index_folder
from lycosa.search.core.analysis import analysis_of
from lycosa.search.core.schema import PAGES, TORRENTS
from lycosa.search.pages import PageIndex
from lycosa.search.ports import DocumentIndex
from lycosa.search.speller import Speller
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.word_list import WordCounter, WordList


def open_index(path: Path, *, write: bool = False) -> DocumentIndex:
    """Open the index of pages in a folder. With `write`, create it if it does not exist, and take its writer lock."""
    index = TantivyIndex(path, index_folder.schema_of(path, PAGES), write=write)
    if write:
        return PageIndex(index, words=WordCounter(path, PAGES))
    return PageIndex(index, speller=Speller(WordList(path)))


def declare_index(path: Path, analysis: tuple[str, ...], fields: Mapping[str, tuple[str, ...]]) -> None:
    """Create an index of items with this analysis and these fields. Raises `IndexFailure` if it exists with others."""
    analysis_of(analysis)
    marker = index_folder.marker_of(path)
    if marker is None:
        TantivyIndex(path, replace(PAGES, analysis=analysis, fields=fields), write=True).close()
    elif (marker.analysis, marker.fields) != (analysis, fields):
        raise IndexFailure(f"the index {path} was built with other fields or analysis: --fresh builds it anew")


def index_stats(path: Path) -> tuple[int, dict[str, int]]:
    """Return the number of documents, and the position in each source. An index of torrents has no positions."""
    marker = index_folder.marker_of(path)
    if marker is not None and marker.kind == TORRENTS.kind:
        from lycosa.app.torrent_search import open_torrent_index  # slow to import

        with closing(open_torrent_index(path)) as torrents:
            return torrents.count(), {}
    with closing(open_index(path)) as pages:
        return pages.count(), pages.positions()


def erase_index(path: Path) -> None:
    """Empty the index in a folder, even one of another version, so that it can be built again."""
    index_folder.erase(path)


def file_indexer(index: DocumentIndex, file: Path) -> Indexer:
    """Return the indexer for the items in a file."""
    return Indexer(index, file, source_name(file))


def build_search_site(index: DocumentIndex, title: str) -> object:
    """Return the search site of an index, as an ASGI application."""
    from lycosa.search.site.app import build_site  # slow to import, and not needed by `lycosa search`

    return build_site(index, title=title)
