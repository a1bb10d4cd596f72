"""A dict of limited size that keeps the most recent entries."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class RecentDict(OrderedDict[Key, Value]):
    """Holds the `entries_max` entries that were set last. Setting an entry again makes it the most recent one."""

    def __init__(self, entries_max: int) -> None:
        super().__init__()
        self._entries_max = entries_max

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._entries_max,), None, None, iter(self.items())

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        if len(self) > self._entries_max:
            self.popitem(last=False)
