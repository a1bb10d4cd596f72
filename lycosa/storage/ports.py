"""Where a crawl stores its items and its small durable data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from lycosa.storage.core.item_key import ItemKey


class Sink(Protocol):
    """Stores items exactly once: on resume, items after the committed position are cut off."""

    name: str
    """Identifies the sink in the state: the same output has the same name in every run."""

    async def check(self) -> None:
        """Check whether the output can be written, without changing it. Raises the same errors as `open`."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Open the output for writing at `position` (None: at the end), and cut off the rest. Return the position.

        With `keep`, the data after `position` belongs to other writers: start after that data.
        """

    def prepare(self, item: Any) -> Any:
        """Return the item in the form that `write` takes. The item may change afterwards. Raises `BadItem`."""

    def write(self, prepared: Any, key: ItemKey) -> None:
        """Write one prepared item, which may stay in memory until `flush`."""

    async def flush(self) -> int:
        """Pass all written items to the operating system or server (with sync, to the disk). Return the position.

        Raises `StorageError` if the sink is not open: it has no position then, and 0 would cut everything off.
        """

    async def close(self) -> None:
        """Release the output. Items that were not flushed are dropped."""


class KeyStore(Protocol):
    """Small durable data of a crawl besides its frontier: cookies, spider state, the list of fetched media.

    A value can be read at once after `put`, and is durable after the next `flush`. As with sinks, the flush comes
    before the commit of the frontier.
    """

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None. Raises `StorageError`."""

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Set a value; None removes the key."""

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their current values, sorted by key."""

    async def flush(self) -> None:
        """Make all values durable, in one step. Raises `StorageError`, `StorageFull`."""

    async def close(self) -> None:
        """Release the store. Values that were not flushed are dropped."""
