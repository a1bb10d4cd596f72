"""Search indexes by folder. Every function raises `IndexFailure` with one line that says what to do."""

from __future__ import annotations

from pathlib import Path

from lycosa.search import tantivy
from lycosa.search.ports import Index


def open_index(path: Path, *, write: bool = False) -> Index:
    """Open the index in a folder; with `write` make it when it is not there, and take its writer lock."""
    return tantivy.TantivyIndex(path, write=write)


def erase_index(path: Path) -> None:
    """Empty the index in a folder, whatever version wrote it, so that it can be built anew."""
    tantivy.erase(path)
