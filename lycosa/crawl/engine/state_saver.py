"""What a crawl keeps beside its frontier: cookies, what a spider remembers. It is stored before every commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from lycosa.core.errors import BadSpider
from lycosa.storage.ports import KeyStore

TABLE = "spider state"


class StateSaver:
    """Calls its `save_hooks`, each of which puts what has changed, and flushes the store."""

    def __init__(self, store: KeyStore) -> None:
        self.store = store
        self.save_hooks: list[Callable[[], None]] = []
        self.close_hooks: list[Callable[[], Awaitable[None]]] = []

    async def save(self) -> None:
        """Make durable what the save_hooks have to say. Raises `StorageError`, or `BadSpider` for what cannot be kept."""
        for keeper in self.save_hooks:
            keeper()
        await self.store.flush()

    async def close(self) -> None:
        """Close the store, and what else was opened beside it."""
        for close in (*self.close_hooks, self.store.close):
            await close()


class SpiderState:
    """The dict `spider.state` of one spider (as Scrapy's), kept when it has changed. Raises `BadSpider`."""

    def __init__(self, store: KeyStore, spider: Any) -> None:
        self._store = store
        self._spider = spider
        self._kept = store.get(TABLE, spider.name)
        spider.state = msgspec.msgpack.decode(self._kept) if self._kept else {}

    def save(self) -> None:
        """Put the dict if it has changed."""
        if not self._spider.state and self._kept is None:
            return
        try:
            data = msgspec.msgpack.encode(self._spider.state)
        except (TypeError, ValueError, OverflowError) as error:
            what = f"{type(self._spider).__name__}.state cannot be kept: {error}"
            raise BadSpider(f"{what}; use numbers, strings, lists and dicts") from error
        if data != self._kept:
            self._store.put(TABLE, self._spider.name, data)
            self._kept = data
