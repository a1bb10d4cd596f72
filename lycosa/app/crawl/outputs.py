"""The outputs of a run: closed at its end, and those who listen are told."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple, Self

from lycosa.core.errors import LycosaError, StateError
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.events.signals import feed_exporter_closed, feed_slot_closed
from lycosa.storage.ports import Sink


class Slot(NamedTuple):
    """An output that is complete: its `format`, and where it is, "" where there is no place."""

    format: str
    uri: str


class Feeds:
    """Closes the sinks. Nobody is told of a run that never `began`."""

    def __init__(self, sinks: Sequence[Sink], crawlers: Sequence[Crawler]) -> None:
        self._sinks = sinks
        self._crawlers = crawlers
        self.began = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed: list[Exception] = []
        for sink in reversed(self._sinks):
            try:
                await sink.close()
            except LycosaError as broken:
                failed.append(broken)
            if self.began:
                await self._tell(sink, well=not failed and not isinstance(error, StateError))
        if self.began:
            for crawler in self._crawlers:
                await crawler.signals.send(feed_exporter_closed)
        if failed and error is None:
            raise failed[0]

    async def _tell(self, sink: Sink, *, well: bool) -> None:
        form, _, place = sink.name.partition(":")
        how = "success" if well else "failed"
        self._crawlers[0].stats.inc_value(f"feedexport/{how}_count/{form}")
        for crawler in self._crawlers:
            await crawler.signals.send(feed_slot_closed, slot=Slot(form, place))
