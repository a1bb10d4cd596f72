"""Item pipelines: each takes an item and returns it, changed or not, or raises `DropItem`.

A pipeline is any object with `process_item(item, spider)`; `open_spider(spider)` and `close_spider(spider)` are
optional; each may be `async`. A class is instantiated without arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from lycosa.core.errors import BadSpider
from lycosa.engine.spider import users_code


class Pipelines:
    """The pipelines of a crawl, in order. Raises `BadSpider` for one that cannot process items."""

    def __init__(self, parts: Sequence[Any], spider: Any) -> None:
        self._parts = [part() if isinstance(part, type) else part for part in parts]
        self._spider = spider
        for part in self._parts:
            if not callable(getattr(part, "process_item", None)):
                raise BadSpider(f"the pipeline {type(part).__name__} has no method process_item(item, spider)")

    def __bool__(self) -> bool:
        return bool(self._parts)

    async def open(self) -> None:
        """Call `open_spider` of each."""
        await self._call_all("open_spider")

    async def close(self) -> None:
        """Call `close_spider` of each."""
        await self._call_all("close_spider")

    async def process(self, item: Any) -> Any:
        """Pass the item through all of them. Raises `DropItem`, or whatever a pipeline raises."""
        for part in self._parts:
            item = await _settled(part.process_item(item, self._spider))
            if item is None:
                message = f"{type(part).__name__}.process_item returned None: return the item, or raise DropItem"
                raise BadSpider(message)
        return item

    async def _call_all(self, name: str) -> None:
        for part in self._parts:
            method = getattr(part, name, None)
            if method is not None:
                with users_code(f"{type(part).__name__}.{name}"):
                    await _settled(method(self._spider))


async def _settled(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
