"""Items to whoever loops over them. A commit waits until its items were taken, so that none is lost when the loop ends.

An item counts as taken when the next one is asked for. After `leave` nothing can be flushed, and nothing is committed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from lycosa.core.errors import StateError
from lycosa.sinks.lines import not_open


class StreamLeft(StateError):
    """Nobody takes the items any more."""


class StreamSink:
    """Hands items over one by one with `next`. The position is the number of items that were taken."""

    name = "stream"

    def __init__(self) -> None:
        self._pending: list[Any] = []
        self._ready: deque[Any] = deque()
        self._stirred = asyncio.Condition()
        self._taken = 0
        self._is_open = False
        self._ended = False
        self._left = False

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Go on counting."""
        self._taken = position or 0
        self._is_open = True
        return self._taken

    def prepare(self, item: Any) -> Any:
        """Return the item."""
        return item

    def write(self, item: Any) -> None:
        """Keep the item itself, not a copy."""
        self._pending.append(item)

    async def flush(self) -> int:
        """Wait until everything written was taken. Return how many items were, ever. Raises `StreamLeft`."""
        if not self._is_open:
            raise not_open("the stream of items")
        async with self._stirred:
            self._ready.extend(self._pending)
            expected = self._taken + len(self._ready)
            self._pending.clear()
            self._stirred.notify_all()
            await self._stirred.wait_for(lambda: self._left or self._taken >= expected)
            if self._left and self._taken < expected:
                raise StreamLeft
        return self._taken

    async def next(self, *, first: bool) -> Any:
        """Return the next item, having taken the one before unless this is the `first`. Raises `StopAsyncIteration`."""
        async with self._stirred:
            if not first:
                self._ready.popleft()
                self._taken += 1
                self._stirred.notify_all()
            await self._stirred.wait_for(lambda: self._ready or self._ended)
            if not self._ready:
                raise StopAsyncIteration
            return self._ready[0]

    async def end(self) -> None:
        """There will be no more items."""
        async with self._stirred:
            self._ended = True
            self._stirred.notify_all()

    async def leave(self) -> None:
        """Nobody takes items any more."""
        async with self._stirred:
            self._left = True
            self._stirred.notify_all()

    async def close(self) -> None:
        """Forget what was not taken."""
        self._is_open = False
        self._pending.clear()
