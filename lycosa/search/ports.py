"""The port of a search index. One contract test for all back ends: `tests/search/contracts/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lycosa.search.core.results import Document, SearchPage


class Index(Protocol):
    """A search index. Its methods block, so coroutines call them in a thread. One process writes, any number read."""

    def add(self, documents: Sequence[Document]) -> None:
        """Add or replace documents by key; visible after `commit`."""

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make the added documents searchable and durable, and store the position (bytes) of each source."""

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit. They are never ahead of the documents."""

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        """Return the best matches. Raises `IndexFailure` for an invalid query."""

    def count(self) -> int:
        """Return the number of documents."""

    def close(self) -> None:
        """Release the index."""
