"""The stats of one run, under Scrapy's names: `crawler.stats`.

`STAT_NAMES` lists the names that Lycosa sets, with placeholders in angle brackets: `retry/reason_count/<reason>`. The
names `proxy/...` are in docs/proxies-in-crawls.md. Users may add their own names. A run that resumes a crawl counts
from 0: the counts of the whole crawl are in `Summary.reasons` and `lycosa frontier status`. Callbacks in threads may
change stats, too.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pprint import pformat
from typing import Any

from lycosa.core.public import public

NAMES_MAX = 10_000
"""Maximum number of stats, because parts of their names come from the network.

Updates of further stats are dropped, and counted as `LEFT_OUT`.
"""

LEFT_OUT = "stats/left_out"

STAT_NAMES = {
    "start_time": "when the run started (datetime, UTC)",
    "finish_time": "when it ended (datetime, UTC)",
    "finish_reason": "why it ended: `finished`, `shutdown`..., or the reason of CloseSpider",
    "elapsed_time_seconds": "from start to finish",
    "items_per_minute": "average over the run; not set if no time passed",
    "responses_per_minute": "average over the run; not set if no time passed",
    "item_scraped_count": "items that passed all pipelines",
    "item_dropped_count": "items that a pipeline dropped",
    "item_dropped_reasons_count/<exception>": "the same, by exception class",
    "item_error_count": "items that a pipeline failed to process",
    "response_received_count": "responses for callbacks, even with statuses that they do not handle, and for fetch",
    "log_count/<level>": "lines logged, by level: DEBUG, INFO, WARNING, ERROR, CRITICAL",
    "scheduler/enqueued": "requests that entered the frontier",
    "scheduler/dequeued": "requests that the frontier leased",
    "dupefilter/filtered": "requests that the frontier already knew",
    "downloader/request_count": "requests to the HTTP cache or a host, including retries and redirects",
    "downloader/request_method_count/<method>": "the same, by method",
    "downloader/request_bytes": "total size of the requests: request line and body, without the header",
    "downloader/response_count": "responses, including those from the HTTP cache",
    "downloader/response_status_count/<status>": "the same, by HTTP status",
    "downloader/response_bytes": "total size of the responses as transferred",
    "downloader/exception_count": "requests that ended without a response",
    "downloader/exception_type_count/<exception>": "the same, by exception class",
    "retry/count": "retries that were scheduled",
    "retry/reason_count/<reason>": "the same, by reason",
    "retry/max_reached": "requests that failed after the last retry",
    "request_depth_max": "depth of the deepest request that a callback returned; start URLs have depth 0",
    "request_depth_count/<depth>": "these requests, by depth",
    "depth/request_ignored_count": "requests dropped because they are too deep",
    "offsite/filtered": "requests dropped because they leave allowed_domains or the scope",
    "offsite/domains": "number of different hosts of these requests",
    "urllength/request_ignored_count": "requests dropped because their URL is too long",
    "httperror/response_ignored_count": "responses that did not reach the spider because of their status",
    "httperror/response_ignored_status_count/<status>": "the same, by HTTP status",
    "robotstxt/request_count": "robots.txt files requested",
    "robotstxt/response_count": "robots.txt responses",
    "robotstxt/response_status_count/<status>": "the same, by HTTP status",
    "robotstxt/exception_count/<exception>": "robots.txt requests without a response, by exception class",
    "robotstxt/forbidden": "requests that robots.txt forbids",
    "httpcache/hit": "responses from the HTTP cache",
    "httpcache/miss": "requests without a response in the HTTP cache",
    "httpcache/ignore": "requests not fetched because no stored response could be used (HTTPCACHE_IGNORE_MISSING)",
    "httpcache/store": "responses stored",
    "httpcache/uncacheable": "responses that could not be stored",
    "httpcache/firsthand": "responses that were not in the cache before",
    "httpcache/revalidate": "stored responses that the host confirmed",
    "httpcache/invalidate": "stored responses that the host replaced",
    "httpcache/errorrecovery": "stored responses used because the host failed",
    "httpcache/retrieve_error": "reads of the HTTP cache that failed",
    "httpcompression/response_count": "responses that were compressed",
    "httpcompression/response_bytes": "total size of these responses after decompression",
    "spider_exceptions/count": "exceptions in callbacks and pipelines",
    "spider_exceptions/<exception>": "the same, by exception class",
    "memusage/startup": "resident memory at the start, in bytes",
    "memusage/max": "highest resident memory seen, in bytes",
    "memusage/limit_reached": "1 if the memory limit ended the run",
    "memusage/warning_reached": "1 if the memory passed the warning level",
    "file_count": "files of the files and images pipelines",
    "file_error_count": "files that could not be downloaded or stored",
    "file_status_count/<status>": "the same, by status: downloaded, cached, uptodate",
    "feedexport/success_count/<kind>": "outputs written",
    "feedexport/failed_count/<kind>": "outputs that failed",
    LEFT_OUT: f"counts that were dropped because there were {NAMES_MAX} names already",
}


@public
class StatsCollector:
    """The stats of one run. Its methods ignore the argument `spider`, which exists for compatibility with Scrapy."""

    __slots__ = ("_stats",)

    def __init__(self) -> None:
        self._stats: dict[str, Any] = {}

    def get_value(self, key: str, default: Any = None, spider: Any = None) -> Any:
        return self._stats.get(key, default)

    def set_value(self, key: str, value: Any, spider: Any = None) -> None:
        self._set(key, value)

    def inc_value(self, key: str, count: float = 1, start: float = 0, spider: Any = None) -> None:
        """Add `count` to the value, or to `start` if it is not set."""
        try:  # faster than `get` with a default, and this runs several times per page
            self._stats[key] += count
        except KeyError:
            self._set(key, start + count)

    def max_value(self, key: str, value: Any, spider: Any = None) -> None:
        self._set(key, max(self._stats.get(key, value), value))

    def min_value(self, key: str, value: Any, spider: Any = None) -> None:
        self._set(key, min(self._stats.get(key, value), value))

    def get_stats(self, spider: Any = None) -> dict[str, Any]:
        """Return all stats: the dict itself, not a copy."""
        return self._stats

    def set_stats(self, stats: dict[str, Any], spider: Any = None) -> None:
        self._stats = stats

    def clear_stats(self, spider: Any = None) -> None:
        self._stats.clear()

    def begin(self, now: float) -> None:
        self.set_value("start_time", datetime.fromtimestamp(now, UTC))

    def end(self, now: float, reason: str) -> None:
        """Record how and when (unix seconds) the run ended, and the averages per minute."""
        finished = datetime.fromtimestamp(now, UTC)
        elapsed_s = (finished - self._stats.get("start_time", finished)).total_seconds()
        self.set_value("finish_time", finished)
        self.set_value("finish_reason", reason)
        self.set_value("elapsed_time_seconds", elapsed_s)
        if elapsed_s > 0:
            self.set_value("items_per_minute", self.get_value("item_scraped_count", 0) * 60 / elapsed_s)
            self.set_value("responses_per_minute", self.get_value("response_received_count", 0) * 60 / elapsed_s)

    def dump(self) -> str:
        return pformat(self._stats, sort_dicts=True)

    def _set(self, key: str, value: Any) -> None:
        if key in self._stats or len(self._stats) < NAMES_MAX or key in STAT_NAMES:
            self._stats[key] = value
        else:
            self._stats[LEFT_OUT] = self._stats.get(LEFT_OUT, 0) + 1


class LogCounter(logging.Handler):
    """Counts log records as `log_count/<level>`."""

    def __init__(self, stats: StatsCollector, level: int | str = logging.NOTSET) -> None:
        super().__init__(level)
        self._stats = stats

    def emit(self, record: logging.LogRecord) -> None:
        self._stats.inc_value(f"log_count/{record.levelname}")
        # Without handlers, logging shows warnings through `lastResort`. This handler must not disable that.
        handlers = logging.getLogger().handlers
        alone = handlers[0] is self and all(isinstance(each, LogCounter) for each in handlers)
        if alone and logging.lastResort is not None and record.levelno >= logging.lastResort.level:
            logging.lastResort.handle(record)


@contextmanager
def counting_logs(stats: StatsCollector, level: int | str = logging.NOTSET) -> Iterator[None]:
    """Count the log records of the process at `level` or above while the block runs."""
    counter = LogCounter(stats, level)
    logging.getLogger().addHandler(counter)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(counter)
