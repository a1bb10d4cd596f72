"""The engines of indexes in folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lycosa.core.errors import IndexFailure
from lycosa.search import fts5, tantivy
from lycosa.search.core.schema import Schema
from lycosa.search.fts5 import Fts5Index
from lycosa.search.index_folder import marker_of
from lycosa.search.ports import Index
from lycosa.search.tantivy import TantivyIndex

ENGINES: dict[str, Callable[..., Index]] = {tantivy.ENGINE: TantivyIndex, fts5.ENGINE: Fts5Index}


def open_in_folder(path: Path, schema: Schema, engine: str | None = None, *, write: bool = False) -> Index:
    """Open an index in a folder. `engine` is for a new index (default: tantivy). Raises `IndexFailure`."""
    marker = marker_of(path)
    name = engine or (marker.engine if marker else tantivy.ENGINE)
    if name not in ENGINES:
        raise IndexFailure(f"the index {path} has the unknown engine {name[:20]!r}: update Lycosa")
    return ENGINES[name](path, schema, write=write)
