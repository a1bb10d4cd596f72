"""Search indexes with every back end."""

from __future__ import annotations

from pathlib import Path

from lycosa.search.core.schema import PAGES, Schema
from lycosa.search.fts5 import Fts5Index
from lycosa.search.pages import PageIndex
from lycosa.search.ports import Index
from lycosa.search.tantivy import TantivyIndex

ENGINES = ["fts5", "tantivy"]


def create_index(engine: str, path: Path, schema: Schema) -> Index:
    """Create an index of this kind, or open it for writing."""
    return (Fts5Index if engine == "fts5" else TantivyIndex)(path, schema, write=True)


def create_pages(engine: str, path: Path) -> PageIndex:
    """Create an index of pages."""
    return PageIndex(create_index(engine, path, PAGES))
