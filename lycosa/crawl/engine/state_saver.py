"""The state that a crawl saves before every commit: cookies and `spider.state`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from lycosa.core.errors import BadSpider
from lycosa.storage.ports import KeyStore

TABLE = "spider state"


class StateSaver:
    """Calls its `save_hooks`, which put changes into the store, then flushes the store."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self.save_hooks: list[Callable[[], None]] = []
        self.close_hooks: list[Callable[[], Awaitable[None]]] = []

    async def save(self) -> None:
        """Raises `StorageError`, or `BadSpider` for data that cannot be stored."""
        for save in self.save_hooks:
            save()
        await self.store.flush()

    async def close(self) -> None:
        for close in (*self.close_hooks, self.store.close):
            await close()


class SpiderState:
    """The dict `spider.state` (as in Scrapy). Raises `BadSpider`."""

    def __init__(self, store: KeyStore, spider: Any) -> None:
        self._store = store
        self._spider = spider
        self._saved = store.get(TABLE, spider.name)
        spider.state = msgspec.msgpack.decode(self._saved) if self._saved else {}

    def save(self) -> None:
        if not self._spider.state and self._saved is None:
            return
        try:
            data = msgspec.msgpack.encode(self._spider.state)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{type(self._spider).__name__}.state cannot be saved: {error}"
            raise BadSpider(f"{what}; use numbers, strings, lists and dicts") from error
        if data != self._saved:
            self._store.put(TABLE, self._spider.name, data)
            self._saved = data
