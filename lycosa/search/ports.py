"""The ports of search indexes. `tests/search/contracts/` tests all back ends against them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from lycosa.search.core.request import Matches, SearchRequest, ValueCounts
from lycosa.search.core.results import Document, SearchPage
from lycosa.search.core.schema import IndexEntry, Schema


class Index(Protocol):
    """A search index. Its methods block: coroutines call them in a thread. One process writes, any number read.

    Raises `IndexFailure`; its message says what to do.
    """

    schema: Schema

    @property
    def outdated(self) -> bool:
        """Whether its texts were analyzed by older or different rules. Then searches may miss documents until it is
        rebuilt."""

    @property
    def analysis(self) -> tuple[str, ...]:
        """The optional steps in the analysis of its texts (`search.core.analysis`). Queries need the same steps."""

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        """Add or replace documents by key; visible after `commit`. `new`: the index has none of these keys yet."""

    def remove(self, keys: Sequence[str | int]) -> None:
        """Remove documents; visible after `commit`."""

    def commit(self, positions: Mapping[str, int]) -> None:
        """Make additions and removals visible and durable, and store the position of each source."""

    def positions(self) -> dict[str, int]:
        """Return the positions of the last commit. They are never ahead of the documents."""

    def find(self, request: SearchRequest) -> Matches:
        """Return a page of matches, and the number of all matches.

        With very many matches, the number may be an estimate, and a page sorted by relevance may have only the best of
        the newest documents.
        """

    def has_matches(self, request: SearchRequest, more_than: int = 0) -> bool:
        """Return whether more than this many documents match. Faster than `find`."""

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        """Return the number of matches per value of some keywords, the most frequent value first.

        `limits` maps keywords (`Schema.counted`) to the maximum number of values.
        """

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        """Return the number of matches in each range, from one bound (included) to the next (excluded)."""

    def count(self) -> int: ...

    def rebuild(self) -> NewIndex:
        """Return an empty index, hidden from readers, to fill and then adopt. Discards an unfinished rebuild."""

    def adopt(self, rebuilt: NewIndex) -> None:
        """Commit and close the rebuilt index, and replace this index with it. Readers see the change in one step."""

    def close(self) -> None:
        """Release the index. Drops uncommitted changes."""


class NewIndex(Protocol):
    """An index that is filled to replace another one. See `Index` for its methods."""

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None: ...

    def remove(self, keys: Sequence[str | int]) -> None: ...

    def discard(self) -> None:
        """Free its space, instead of `Index.adopt`."""


@runtime_checkable
class DividedIndex(NewIndex, Protocol):
    """A new index that several processes can fill. It can be pickled until `add` or `remove` is called."""

    schema: Schema

    def open_part(self, number: int, documents: int) -> IndexPart:
        """Open part `number`, for about `documents` documents. Only one process may fill it."""

    def join_parts(self) -> None:
        """Join the finished parts into this index, which must be empty."""


class IndexPart(Protocol):
    """A part of a new index."""

    def add(self, entries: Sequence[IndexEntry]) -> None:
        """Add documents that are in no other part."""

    def finish(self) -> None:
        """Commit and close the part."""


class DocumentIndex(Protocol):
    """An index of the items of a crawl. Methods that are also in `Index` have the same contract. A position is a number
    of bytes."""

    @property
    def fields(self) -> Mapping[str, Sequence[str]]:
        """Maps parts of a document to the fields of items that hold them; {} if the fields are guessed."""

    def add(self, documents: Sequence[Document]) -> None: ...

    def commit(self, positions: Mapping[str, int]) -> None: ...

    def positions(self) -> dict[str, int]: ...

    def search(self, query: str, *, limit: int = 10, offset: int = 0) -> SearchPage:
        """Return the best matches. Raises `BadQuery` for an invalid query."""

    def count(self) -> int: ...

    def close(self) -> None: ...
