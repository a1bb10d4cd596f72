"""Close the outputs of a run, and send the signals of Scrapy's feed exports."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from lycosa.core.errors import LycosaError, StateError
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.events.signals import feed_exporter_closed, feed_slot_closed
from lycosa.storage.ports import Sink


class Slot(NamedTuple):
    """A closed output, for signals; `uri` is "" for standard output."""

    format: str
    uri: str


class Feeds:
    """Closes the sinks. Signals are sent only if the run has `begun`."""

    def __init__(self, sinks: Sequence[Sink], crawlers: Sequence[Crawler]) -> None:
        self._sinks = sinks
        self._crawlers = crawlers
        self.begun = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failure: Exception | None = None
        for sink in reversed(self._sinks):
            is_closed = True
            try:
                await sink.close()
            except LycosaError as close_error:
                failure, is_closed = failure or close_error, False
            if self.begun:
                await self._send_closed(sink, success=is_closed and not isinstance(error, StateError))
        if self.begun:
            for crawler in self._crawlers:
                await crawler.signals.send(feed_exporter_closed)
        if failure is not None and error is None:
            raise failure

    async def _send_closed(self, sink: Sink, *, success: bool) -> None:
        name, _, uri = sink.name.partition(":")
        self._crawlers[0].stats.inc_value(f"feedexport/{'success' if success else 'failed'}_count/{name}")
        for crawler in self._crawlers:
            await crawler.signals.send(feed_slot_closed, slot=Slot(name, uri))
