"""Sends signals while a response arrives: one for its header fields, and one for each piece of its body."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lycosa.core.errors import StopDownload
from lycosa.core.headers import Headers
from lycosa.crawl.events.signals import Signals, bytes_received, headers_received
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.wrapper import FetcherWrapper
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.model import HttpResponse as Raw
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, Fetcher, Into


class SignallingFetcher(FetcherWrapper):
    """Sends the signals for the pages of one spider."""

    def __init__(self, fetcher: Fetcher, signals: Signals, stats: StatsCollector, spider: Any) -> None:
        super().__init__(fetcher)
        self._signals = signals
        self._count = stats.inc_value
        self._spider = spider

    async def fetch(
        self, request: Request, *, accept: Accept | None = None, into: Into | None = None, **options: Any
    ) -> Raw:
        """Also raises the `StopDownload` of a receiver if its `fail` is True."""
        if self._signals.on_headers_received or self._signals.on_bytes_received:
            raw = await _SignalledTransfer(self._signals, self._spider, request, accept, into).run(
                self._fetcher, options
            )
        else:
            raw = await self._fetcher.fetch(request, accept=accept, into=into, **options)
        if raw.headers.may_have(b"content-encoding") and raw.headers.get("content-encoding"):
            self._count("httpcompression/response_count")
            self._count("httpcompression/response_bytes", len(raw.body))
        return raw


class _SignalledTransfer:
    """One transfer. If the fetcher restarts it on another connection, the pieces received so far are dropped."""

    def __init__(
        self, signals: Signals, spider: Any, request: Request, accept: Accept | None, into: Into | None
    ) -> None:
        self._signals = signals
        self._arguments = {"request": request, "spider": spider}
        self._request = request
        self._inner_accept = accept
        self._into = into
        self._stopped = False
        self._status = 0
        self._headers = Headers.of(())
        self._pieces: list[bytes] = []

    async def run(self, fetcher: Fetcher, options: dict[str, Any]) -> Raw:
        on_piece = self._on_piece if self._signals.on_bytes_received else self._into
        try:
            raw = await fetcher.fetch(self._request, accept=self._accept, into=on_piece, **options)
        except StopDownload as stop:
            body = b"".join(self._pieces)
            stop.response = Response(self._request.url, self._status, self._headers, body, request=self._request)
            raise
        body = raw.body if self._into is not None or on_piece is None else b"".join(self._pieces)
        return replace(raw, body=body, skipped=raw.skipped and not self._stopped)

    def _accept(self, status: int, headers: Headers) -> bool:
        self._status, self._headers = status, headers
        self._pieces.clear()  # drop the pieces of an earlier attempt
        length = headers.get("content-length")
        body_length = int(length) if length.isascii() and length.isdigit() else -1
        try:
            self._signals.post(headers_received, headers=headers, body_length=body_length, **self._arguments)
        except StopDownload:
            self._stopped = True
            raise
        return self._inner_accept is None or self._inner_accept(status, headers)

    def _on_piece(self, data: bytes) -> None:
        if self._into is None:
            self._pieces.append(data)
        else:
            self._into(data)
        self._signals.post(bytes_received, data=data, **self._arguments)
