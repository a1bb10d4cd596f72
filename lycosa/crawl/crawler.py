"""What the parts of a user are given of a crawl: `from_crawler(cls, crawler)`."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from lycosa.core.errors import BadSpider, NotConfigured
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.spider import users_code

log = logging.getLogger(__name__)


class Crawler:
    """`settings` reads like a dict, by our names and Scrapy's; `stats` counts; `signals` connects receivers.

    `spider` is None until it is made. `stop` ends the crawl, with a reason.
    """

    def __init__(self, settings: Any, stats: StatsCollector, spider: Any = None) -> None:
        self.settings = settings
        self.stats = stats
        self.spider = spider
        self.signals = Signals(self.stop, self)
        self.download: Any = None
        """Fetches a request inline: `await crawler.download(request)`; None while nothing runs."""
        self.records: Any = None
        """The key store of the crawl, for what parts remember."""
        self.push: Callable[[Any], Awaitable[bool]] | None = None
        """Queues a request; None while nothing runs."""
        self._stop: Callable[[str], None] | None = None

    def stop(self, reason: str = "cancelled") -> None:
        """End the crawl: what is under way is finished, what is left is there for the next run."""
        if self._stop is not None:
            self._stop(reason)

    async def crawl(self, request: Any) -> bool:
        """Queue a request as a start request is, from anywhere in the crawl. Return whether it is new.

        Raises `BadUrl`, or `BadSpider` for what cannot be stored, and where no crawl runs.
        """
        if self.push is None:
            raise BadSpider("crawler.crawl works while a crawl runs: yield the first requests in start")
        return await self.push(request)

    def set_stop(self, stop: Callable[[str], None]) -> None:
        """Say what `stop` calls; before that it does nothing."""
        self._stop = stop


def build_part(what: str, part: Any, crawler: Crawler | None) -> Any:
    """Return the part that a class makes by its `from_crawler`, `from_settings` or without arguments; others as is.

    None when it raises `NotConfigured`. `what` is the kind of part, for messages. Raises `BadSpider` where it fails.
    """
    if not isinstance(part, type):
        return part
    name, make = "__init__", partial(part)
    if crawler is not None and hasattr(part, "from_crawler"):
        name, make = "from_crawler", partial(part.from_crawler, crawler)
    elif crawler is not None and hasattr(part, "from_settings"):
        name, make = "from_settings", partial(part.from_settings, crawler.settings)
    try:
        with users_code(f"{part.__name__}.{name}"):
            return make()
    except NotConfigured as left_out:
        log.warning("the %s %s is left out: %s", what, part.__name__, left_out)
        return None
