"""Items to whoever loops over them, page by page. A page is done only when its items were taken.

An item counts as taken when the next one is asked for. So the crawl goes no faster than the loop, and who leaves in the
middle of a page gets that page again from the next run, if the crawl is durable: at least once, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Any


class Handover:
    """Between the pages of a crawl, which `give`, and the one who asks for the `next` item."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._ready: deque[Any] = deque()
        self._given = False
        self._stirred = asyncio.Event()
        self._taken = asyncio.Event()
        self._ended = False

    async def give(self, items: Sequence[Any]) -> None:
        """Return when all of the items were taken; those of other pages wait meanwhile."""
        async with self._turn:
            self._taken.clear()
            self._ready.extend(items)
            self._stirred.set()
            try:
                await self._taken.wait()
            finally:
                self._ready.clear()

    async def next(self) -> Any:
        """Return the next item: the one before was taken. Raises `StopAsyncIteration` at the end."""
        if self._given and not self._ready:
            self._taken.set()
        self._given = False
        while not self._ready:
            if self._ended:
                raise StopAsyncIteration
            self._stirred.clear()
            await self._stirred.wait()
        self._given = True
        return self._ready.popleft()

    def end(self) -> None:
        """There will be no more items."""
        self._ended = True
        self._stirred.set()
