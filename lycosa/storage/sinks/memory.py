"""Stores items in a list. A position is a number of items."""

from __future__ import annotations

from typing import Any

from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.json_lines import not_open_error


class MemorySink:
    """`items` holds the flushed items."""

    name = "memory"

    def __init__(self) -> None:
        self.items: list[Any] = []
        self._pending: list[Any] = []
        self._is_open = False

    async def check(self) -> None:
        pass

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        if position is not None and not keep:
            del self.items[position:]
        self._is_open = True
        return len(self.items)

    def prepare(self, item: Any) -> Any:
        return item

    def write(self, item: Any, key: ItemKey) -> None:
        """Store the item itself, not a copy."""
        self._pending.append(item)

    async def flush(self) -> int:
        if not self._is_open:
            raise not_open_error("the list of items")
        self.items += self._pending
        self._pending.clear()
        return len(self.items)

    async def close(self) -> None:
        self._is_open = False
        self._pending.clear()
