"""Passes items page by page to a loop: `async for item in crawl.stream()`.

Requesting the next item confirms the previous one, so the crawl is no faster than the loop. A page is done when all its
items are confirmed. If the loop ends before that, the next run of a durable crawl yields the items of the page again:
delivery is at least once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any


class ItemChannel:
    """Pages `send` their items; one consumer calls `receive`."""

    def __init__(self) -> None:
        self._page_lock = asyncio.Lock()
        self._items: deque[Any] = deque()
        self._has_unconfirmed = False
        self._changed = asyncio.Event()
        self._all_received = asyncio.Event()
        self._closed = False

    async def send(self, items: Sequence[Any]) -> None:
        """Send the items of one page, and wait until all of them are confirmed. Other pages wait until then."""
        async with self._page_lock:
            self._all_received.clear()
            self._items.extend(items)
            self._changed.set()
            try:
                await self._all_received.wait()
            finally:
                self._items.clear()

    async def receive(self) -> Any:
        """Confirm the previous item, and return the next one. Raises `StopAsyncIteration` at the end."""
        if self._has_unconfirmed and not self._items:
            self._all_received.set()
        self._has_unconfirmed = False
        while not self._items:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._has_unconfirmed = True
        return self._items.popleft()

    def close(self) -> None:
        """End the loop when no items are left."""
        self._closed = True
        self._changed.set()
