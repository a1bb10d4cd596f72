"""Where a crawl stores its items and its small durable data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from lycosa.storage.core.item_key import ItemKey


class Sink(Protocol):
    """Where items go, exactly once: on resume, what was written after the committed position is cut off."""

    name: str
    """Identity of the sink in the state: the same output has the same name in every run."""

    async def check(self) -> None:
        """Raise what `open` would raise for an output that cannot be written, and change nothing."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Start to write at `position`, cutting off what is behind it, or at the end when None. Return where.

        With `keep` what is behind `position` belongs to others: write behind that.
        """

    def prepare(self, item: Any) -> Any:
        """Return the item in the form that `write` takes, so that it may change afterwards. Raises `BadItem`."""

    def write(self, prepared: Any, key: ItemKey) -> None:
        """Take one prepared item; it may stay in memory until `flush`."""

    async def flush(self) -> int:
        """Hand everything written to the operating system or server (to the disk with sync). Return the position.

        Raises `StorageError` when the sink is not open: it has no position then, and 0 would cut everything off.
        """

    async def close(self) -> None:
        """Release the output. What was not flushed is dropped."""


class KeyStore(Protocol):
    """Small durable data of a crawl beside its frontier: cookies, spider state, which media were fetched.

    A value that was put can be read at once, and is durable after the next `flush`. As with sinks, that comes before
    the commit of the frontier.
    """

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None. Raises `StorageError`."""

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Set a value; None removes the key."""

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their current values, in the order of the keys."""

    async def flush(self) -> None:
        """Make everything that was put durable, in one step. Raises `StorageError`, `StorageFull`."""

    async def close(self) -> None:
        """Release the store. What was not flushed is dropped."""
