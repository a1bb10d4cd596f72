"""Sends the engine's signals to the spiders of a crawl.

Each spider gets the signals about its own requests, and those about the whole crawl.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from lycosa.core.errors import DontCloseSpider
from lycosa.crawl.engine.records import to_request
from lycosa.crawl.events.signals import Signals, request_dropped, request_scheduled, scheduler_empty, spider_idle
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.ports import Frontier


class SpiderListener(NamedTuple):
    """A spider and its signals. `tag` is the spider name in its records, "" in a crawl with one spider."""

    tag: str
    spider: Any
    signals: Signals

    @property
    def has_request_handlers(self) -> bool:
        return bool(self.signals.on_request_scheduled or self.signals.on_request_dropped)


class EventDispatcher:
    """The signals of all spiders of one crawl."""

    def __init__(self, listeners: Sequence[SpiderListener] = ()) -> None:
        self._listeners = {each.tag: each for each in listeners}
        self._all = list(listeners)

    @property
    def has_request_handlers(self) -> bool:
        return any(each.has_request_handlers for each in self._all)

    @property
    def has_idle_handlers(self) -> bool:
        return any(each.signals.on_spider_idle for each in self._all)

    async def push(self, frontier: Frontier, records: Sequence[UrlRecord]) -> int:
        """Queue the records, and send the signals for each. Return how many were new."""
        if not self.has_request_handlers:
            return await frontier.push(records)
        pushed = 0
        # One by one, because `request_dropped` depends on whether each record was new.
        for record in records:
            pushed += await self._push_one(frontier, record)
        return pushed

    async def send_empty(self) -> None:
        for each in self._all:
            if each.signals.on_scheduler_empty:
                await each.signals.send(scheduler_empty)

    async def send_idle(self) -> bool:
        """Send `spider_idle`. Return whether a receiver keeps the crawl alive."""
        kept = False
        for each in self._all:
            try:
                if each.signals.on_spider_idle:
                    await each.signals.send(spider_idle, spider=each.spider)
            except DontCloseSpider:
                kept = True
        return kept

    async def _push_one(self, frontier: Frontier, record: UrlRecord) -> int:
        listener = self._listeners.get(record.extras.spider if record.extras is not None else "")
        if listener is None or not listener.has_request_handlers:
            return await frontier.push([record])
        request = to_request(record)
        await listener.signals.send(request_scheduled, request=request, spider=listener.spider)
        pushed = await frontier.push([record])
        if not pushed:
            await listener.signals.send(request_dropped, request=request, spider=listener.spider)
        return pushed
