"""Where an index is: in a folder, or on a search server."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

from lycosa.search.core.sphinx_address import SphinxAddress, sphinx_address

IndexPlace: TypeAlias = Path | SphinxAddress


def index_place(text: str) -> IndexPlace:
    """Parse the place of an index. Raises `UsageError` for an invalid URL."""
    return sphinx_address(text) or Path(text)


def local_folder(place: IndexPlace, state: str | Path | None = None) -> Path:
    """Return the folder of an index.

    For an index on a search server, it is a folder in `state` (default: the working folder), which holds the word list
    and the rebuild requests of the index.
    """
    return place if isinstance(place, Path) else Path(state or ".") / f"sphinx-{place.name}"
