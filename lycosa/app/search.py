"""Search indexes by folder, what fills and what shows them. Raises `IndexFailure` with a line that says what to do."""

from __future__ import annotations

from pathlib import Path

from lycosa.crawl.items.indexer import Indexer, source_name
from lycosa.search import tantivy
from lycosa.search.ports import Index


def open_index(path: Path, *, write: bool = False) -> Index:
    """Open the index in a folder; with `write` make it when it is not there, and take its writer lock."""
    return tantivy.TantivyIndex(path, write=write)


def erase_index(path: Path) -> None:
    """Empty the index in a folder, whatever version wrote it, so that it can be built anew."""
    tantivy.erase(path)


def file_indexer(index: Index, file: Path) -> Indexer:
    """Return what adds the items in a file to an index."""
    return Indexer(index, file, source_name(file))


def build_search_site(index: Index, title: str) -> object:
    """Return the search site over an index, as an ASGI application."""
    from lycosa.search.site.app import build_site  # slow to import, and searching does not need it

    return build_site(index, title=title)
