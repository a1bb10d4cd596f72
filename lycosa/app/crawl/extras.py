"""What the settings add to a spider: pipelines, extensions, and the conditions that end a crawl."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lycosa.app.crawl.spec import Member
from lycosa.app.named import class_named
from lycosa.config import Settings
from lycosa.core.errors import BadSetting
from lycosa.crawl.crawler import Crawler, build_part
from lycosa.crawl.engine.close_conditions import CloseConditions, MemoryMonitor
from lycosa.crawl.events.signals import Signal, item_dropped, item_error, memusage_warning_reached
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.spiders.failure import Failure
from lycosa.crawl.spiders.response import Response

BUILT_IN_EXTENSIONS = frozenset({"closespider", "memusage", "throttle", "logstats", "corestats"})
ORDER_STEP = 100


def pipelines_of(member: Member, crawler: Crawler, channel: ItemChannel | None = None) -> Pipelines:
    """Return the pipelines of the spider's class (100, 200...) and of the settings, with what listens to them."""
    parts: dict[Any, int | None] = {}
    for number, part in enumerate(member.spider.pipelines, 1):
        parts[part] = number * ORDER_STEP
    for named, order in member.settings.pipelines.items():
        parts[class_named("pipelines", named) if isinstance(named, str) else named] = order
    stats, signals = crawler.stats, crawler.signals

    def dropped(item: Any, response: Any, exception: Exception) -> Any:
        stats.inc_value("item_dropped_count")
        stats.inc_value(f"item_dropped_reasons_count/{type(exception).__name__}")
        return _send(item_dropped, item=item, response=response, exception=exception)

    def failed(item: Any, response: Response | None, exception: Exception) -> Any:
        stats.inc_value("item_error_count")
        failure = Failure(exception, response.request if response is not None else None, response)
        return _send(item_error, item=item, response=response, failure=failure)

    def _send(signal: Signal, **values: Any) -> Any:
        return signals.send(signal, spider=member.spider, **values) if getattr(signals, f"on_{signal.name}") else None

    deliver = channel.send if channel is not None else None
    return Pipelines(parts, member.spider, crawler, on_dropped=dropped, on_error=failed, deliver=deliver)


def extensions_of(settings: Settings, crawler: Crawler) -> list[Any]:
    """Return the extensions of the settings, in order. Raises `BadSetting`, `BadSpider`."""
    chosen: Mapping[str | type, int | None] = settings.extensions
    found = []
    wanted = [(order, part) for part, order in chosen.items() if order is not None]
    for _, part in sorted(wanted, key=lambda each: each[0]):
        if isinstance(part, str) and ":" not in part:
            if part not in BUILT_IN_EXTENSIONS:
                raise BadSetting(f"extensions: there is no built-in {part!r}; write module:Class")
            continue
        found.append(
            build_part("extension", class_named("extensions", part) if isinstance(part, str) else part, crawler)
        )
    return [each for each in found if each is not None]


def memory_of(settings: Settings, crawlers: Sequence[Crawler], held: Callable[[], int] | None = None) -> MemoryMonitor:
    """Return what watches the memory of the process, or what `held` returns, in bytes."""
    most, warning = settings.max_memory, settings.memory_warning

    def warn() -> None:
        for crawler in crawlers:
            crawler.signals.post(memusage_warning_reached)

    return MemoryMonitor(
        crawlers[0].stats, warn, limit_mb=(most or 0) >> 20, warning_mb=(warning or 0) >> 20, read=held
    )


def conditions_of(settings: Settings) -> CloseConditions:
    """Return what ends the crawl before it is finished."""
    return CloseConditions(
        itemcount=settings.close_after_items or 0,
        errorcount=settings.close_after_errors or 0,
        timeout=settings.close_after or 0.0,
        timeout_no_item=settings.close_after_no_items_for or 0.0,
        pagecount_no_item=settings.close_after_pages_without_item or 0,
    )
