"""Opens search indexes, their indexers and the search site. Raises `IndexFailure`; its message says what to do."""

from __future__ import annotations

from pathlib import Path

from lycosa.crawl.items.indexer import Indexer, source_name
from lycosa.search import tantivy
from lycosa.search.ports import Index


def open_index(path: Path, *, write: bool = False) -> Index:
    """Open the index in a folder. With `write`, create it if it does not exist, and take its writer lock."""
    return tantivy.TantivyIndex(path, write=write)


def erase_index(path: Path) -> None:
    """Empty the index in a folder, even one of another version, so that it can be built again."""
    tantivy.erase(path)


def file_indexer(index: Index, file: Path) -> Indexer:
    """Return the indexer for the items in a file."""
    return Indexer(index, file, source_name(file))


def build_search_site(index: Index, title: str) -> object:
    """Return the search site of an index, as an ASGI application."""
    from lycosa.search.site.app import build_site  # slow to import, and not needed by `lycosa search`

    return build_site(index, title=title)
