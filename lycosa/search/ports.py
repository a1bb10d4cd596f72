"""What answers searches. One contract test for all back ends: `tests/search/contracts/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from lycosa.search.core.results import Document, SearchPage


class Index(Protocol):
    """Answers searches. Blocking; callers on a loop use a thread. One process writes, any number read."""

    def add(self, documents: Sequence[Document]) -> None:
        """Add or replace documents by key; visible after `commit`."""
        ...

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make the added documents searchable and durable, and remember how far each source was read (bytes)."""
        ...

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit; never ahead of the documents."""
        ...

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        """Return the best matches. Raises `IndexFailure` for a query that cannot be understood."""
        ...

    def count(self) -> int:
        """Return the number of documents."""
        ...

    def close(self) -> None:
        """Release the index."""
        ...
