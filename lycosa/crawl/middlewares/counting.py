"""Counts the requests that reach the HTTP cache or the fetcher, and their responses, and sends their signals."""

from __future__ import annotations

from typing import Any

from lycosa.crawl.events.signals import (
    Signals,
    request_left_downloader,
    request_reached_downloader,
    response_downloaded,
)
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request


class DownloaderStats:
    """The downloader stats and signals of one spider."""

    def __init__(self, stats: StatsCollector, signals: Signals, spider: Any) -> None:
        self._stats = stats
        self._count = stats.inc_value
        self._signals = signals
        self._spider = spider

    def process_request(self, request: Request) -> None:
        count = self._count
        count("downloader/request_count")
        count("downloader/request_method_count/" + request.method)
        # The request line has 12 more bytes than method and URL: a space, ` HTTP/1.1` and CRLF.
        count("downloader/request_bytes", len(request.method) + len(request.url) + len(request.body) + 12)
        if self._signals.on_request_reached_downloader:
            self._signals.post(request_reached_downloader, request=request, spider=self._spider)

    def process_response(self, request: Request, response: Response) -> Response:
        count = self._count
        raw = response.raw
        count("downloader/response_count")
        count(_STATUS[raw.status] if 0 <= raw.status < len(_STATUS) else "downloader/response_status_count/other")
        count("downloader/response_bytes", raw.size_bytes)
        if self._signals.on_request_left_downloader:
            self._signals.post(request_left_downloader, request=request, spider=self._spider)
        if self._signals.on_response_downloaded:
            self._signals.post(response_downloaded, response=response, request=request, spider=self._spider)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._count("downloader/exception_count")
        self._count(f"downloader/exception_type_count/{type(exception).__name__}")
        if self._signals.on_request_left_downloader:
            self._signals.post(request_left_downloader, request=request, spider=self._spider)


# Created once: formatting the name for each response would cost more than counting.
_STATUS = [f"downloader/response_status_count/{status}" for status in range(600)]
