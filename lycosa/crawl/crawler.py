"""The argument of `from_crawler(cls, crawler)`: gives middlewares, pipelines and extensions access to the crawl."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from lycosa.core.errors import BadSpider, NotConfigured
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.spider import wrap_user_errors

log = logging.getLogger(__name__)


class Crawler:
    """The settings, stats and signals of a crawl, and its spider (None until it is created).

    `settings` is a read-only mapping with Lycosa's and Scrapy's names.
    """

    def __init__(self, settings: Any, stats: StatsCollector, spider: Any = None) -> None:
        self.settings = settings
        self.stats = stats
        self.spider = spider
        self.signals = Signals(self.stop, self)
        self.download: Any = None
        """Fetches a request inline: `await crawler.download(request)`. None while no crawl is running."""
        self.records: Any = None
        """The key store in which middlewares, pipelines and extensions keep their state."""
        self.push: Callable[[Any], Awaitable[bool]] | None = None
        """Queues a request. None while no crawl is running."""
        self._stop: Callable[[str], None] | None = None

    def stop(self, reason: str = "cancelled") -> None:
        """End the crawl. Running visits get 5 s to finish. Other URLs stay queued for the next run."""
        if self._stop is not None:
            self._stop(reason)

    async def crawl(self, request: Any) -> bool:
        """Queue a request like a start request. Return whether it is new.

        Raises `BadUrl`, or `BadSpider` if the request cannot be stored or no crawl is running.
        """
        if self.push is None:
            raise BadSpider("the crawl is not running yet, so crawler.crawl cannot queue requests: yield them in start")
        return await self.push(request)

    def set_stop(self, stop: Callable[[str], None]) -> None:
        self._stop = stop


def build_part(what: str, part: Any, crawler: Crawler | None) -> Any:
    """Create a part from its class: with `from_crawler`, `from_settings`, or without arguments.

    A `part` that is not a class is returned unchanged. Returns None if the class raises `NotConfigured`. `what` names
    the kind of part in messages. Any other error that is not a `LycosaError` becomes a `BadSpider`.
    """
    if not isinstance(part, type):
        return part
    name, make = "__init__", partial(part)
    if crawler is not None and hasattr(part, "from_crawler"):
        name, make = "from_crawler", partial(part.from_crawler, crawler)
    elif crawler is not None and hasattr(part, "from_settings"):
        name, make = "from_settings", partial(part.from_settings, crawler.settings)
    try:
        with wrap_user_errors(f"{part.__name__}.{name}"):
            return make()
    except NotConfigured as reason:
        log.warning("the %s %s is not used: %s", what, part.__name__, reason)
        return None
