"""The parts that settings add to a spider: pipelines, extensions, and the conditions that close a crawl."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lycosa.app.crawl.spec import SpiderSpec
from lycosa.app.imports import import_class
from lycosa.config import Settings
from lycosa.core.errors import BadSetting
from lycosa.crawl.crawler import Crawler, build_part
from lycosa.crawl.engine.close_conditions import CloseConditions, MemoryMonitor
from lycosa.crawl.events.signals import Signal, item_dropped, item_error, memusage_warning_reached
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.items.pipeline_commits import commit_pipelines
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response

BUILT_IN_EXTENSIONS = frozenset({"closespider", "memusage", "throttle", "logstats", "corestats"})
ORDER_STEP = 100


def pipelines_of(spec: SpiderSpec, crawler: Crawler, channel: ItemChannel | None = None) -> Pipelines:
    """Return the pipelines of the spider's class (with the order numbers 100, 200...) and of the settings.

    Dropped items and errors are counted and sent as signals; kept items go to `channel`.
    """
    parts = _pipeline_parts(spec)
    stats, signals = crawler.stats, crawler.signals

    def on_dropped(item: Any, response: Any, exception: Exception) -> Any:
        stats.inc_value("item_dropped_count")
        stats.inc_value(f"item_dropped_reasons_count/{type(exception).__name__}")
        return send(item_dropped, item=item, response=response, exception=exception)

    def on_error(item: Any, response: Response | None, exception: Exception) -> Any:
        stats.inc_value("item_error_count")
        failure = Failure(exception, response.request if response is not None else None, response)
        return send(item_error, item=item, response=response, failure=failure)

    def send(signal: Signal, **values: Any) -> Any:
        return signals.send(signal, spider=spec.spider, **values) if getattr(signals, f"on_{signal.name}") else None

    deliver = channel.send if channel is not None else None
    return Pipelines(parts, spec.spider, crawler, on_dropped=on_dropped, on_error=on_error, deliver=deliver)


def commit_with_crawl(spec: SpiderSpec) -> bool:
    """Return whether any pipeline commits its own database with the crawl."""
    return commit_pipelines([part for part, order in _pipeline_parts(spec).items() if order is not None])


def pipeline_names(spec: SpiderSpec) -> list[str]:
    """Return the class names of the enabled pipelines, in order."""
    parts = [(order, part) for part, order in _pipeline_parts(spec).items() if order is not None]
    return [
        (part if isinstance(part, type) else type(part)).__name__ for _, part in sorted(parts, key=lambda each: each[0])
    ]


def _pipeline_parts(spec: SpiderSpec) -> dict[Any, int | None]:
    parts: dict[Any, int | None] = {part: n * ORDER_STEP for n, part in enumerate(spec.spider.pipelines, 1)}
    return parts | {import_class("pipelines", part): order for part, order in spec.settings.pipelines.items()}


def extensions_of(settings: Settings, crawler: Crawler) -> list[Any]:
    """Return the extensions, in order. Raises `BadSetting`, `BadSpider`."""
    extensions = []
    chosen = [(order, part) for part, order in settings.extensions.items() if order is not None]
    for _, part in sorted(chosen, key=lambda each: each[0]):
        if isinstance(part, str) and ":" not in part:
            # The engine does the work of the built-in extensions, so naming them changes nothing.
            if part not in BUILT_IN_EXTENSIONS:
                raise BadSetting(f"extensions: there is no built-in {part!r}; write module:Class")
            continue
        extensions.append(build_part("extension", import_class("extensions", part), crawler))
    return [each for each in extensions if each is not None]


def memory_monitor(
    settings: Settings, crawlers: Sequence[Crawler], read_memory: Callable[[], int] | None
) -> MemoryMonitor:
    """Monitor the memory of this process, or the bytes that `read_memory` returns."""

    def warn() -> None:
        for crawler in crawlers:
            crawler.signals.post(memusage_warning_reached)

    limit_mb, warning_mb = (settings.max_memory or 0) >> 20, (settings.memory_warning or 0) >> 20
    return MemoryMonitor(crawlers[0].stats, warn, limit_mb=limit_mb, warning_mb=warning_mb, read=read_memory)


def close_conditions(settings: Settings) -> CloseConditions:
    """Return the conditions that close an unfinished crawl."""
    return CloseConditions(
        itemcount=settings.close_after_items or 0,
        errorcount=settings.close_after_errors or 0,
        timeout=settings.close_after or 0.0,
        timeout_no_item=settings.close_after_no_items_for or 0.0,
        pagecount_no_item=settings.close_after_pages_without_item or 0,
    )
