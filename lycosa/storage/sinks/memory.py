"""Items in a list, for programs that use the crawl themselves and for tests. The position is the number of items."""

from __future__ import annotations

from typing import Any

from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.json_lines import not_open


class MemorySink:
    """`items` holds what was flushed."""

    name = "memory"

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._pending: list[Any] = []
        self._is_open = False

    async def check(self) -> None:
        """There is always room."""

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Forget the items after `position`. Return how many there are."""
        if position is not None and not keep:
            del self.items[position:]
        self._is_open = True
        return len(self.items)

    def prepare(self, item: Any) -> Any:
        """Return the item."""
        return item

    def write(self, item: Any, key: ItemKey) -> None:
        """Keep the item itself, not a copy."""
        self._pending.append(item)

    async def flush(self) -> int:
        """Add what was written to `items`. Return how many there are."""
        if not self._is_open:
            raise not_open("the list of items")
        self.items += self._pending
        self._pending.clear()
        return len(self.items)

    async def close(self) -> None:
        """Forget what was not flushed."""
        self._is_open = False
        self._pending.clear()
