"""Reports request starts to a frontier in another process, which counts crawl delays from them.

Each start is reported before the transfer, so that other workers need not wait for its end. A second report, after the
transfer, corrects the time by libcurl's measurement, because a busy event loop sends requests late.
"""

from __future__ import annotations

from typing import Any, Protocol

from lycosa.core.url import host_key
from lycosa.crawl.fetching.wrapper import FetcherWrapper
from lycosa.frontier.ports import SharedFrontier
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher
from lycosa.infra.clock import Clock


class OwnerStarts(Protocol):
    """Reports request starts to the frontier of the owner process."""

    def is_paced(self, host: str) -> bool:
        """Whether the owner needs the starts of requests to this host, because the host has a delay."""

    def report_start(self, host: str, ago_s: float = 0.0, *, is_correction: bool = False) -> None:
        """Report a request to the host that started `ago_s` ago, or correct the previous report."""


class StartReportingFetcher(FetcherWrapper):
    """Reports starts to a frontier shared with other workers."""

    def __init__(self, fetcher: Fetcher, frontier: SharedFrontier, clock: Clock) -> None:
        super().__init__(fetcher)
        self._frontier = frontier
        self._clock = clock

    async def fetch(self, request: Request, **options: Any) -> HttpResponse:
        """Raises `WorkerLost` if the other workers have removed this one."""
        await self._frontier.check_membership()
        host = host_key(request.url)
        self._frontier.report_start(host, self._clock.now())
        response = await self._fetcher.fetch(request, **options)
        self._frontier.report_start(host, self._clock.now() - _sent_ago_s(response))
        return response


class OwnerReportingFetcher(FetcherWrapper):
    """Reports starts from a worker process to the owner, for the hosts where the owner needs them."""

    def __init__(self, fetcher: Fetcher, frontier: OwnerStarts) -> None:
        super().__init__(fetcher)
        self._frontier = frontier

    async def fetch(self, request: Request, **options: Any) -> HttpResponse:
        host = host_key(request.url)
        if not self._frontier.is_paced(host):
            return await self._fetcher.fetch(request, **options)
        self._frontier.report_start(host)
        response = await self._fetcher.fetch(request, **options)
        self._frontier.report_start(host, _sent_ago_s(response), is_correction=True)
        return response


def _sent_ago_s(response: HttpResponse) -> float:
    """Return the seconds since the request was sent, which is when its connection (with TLS) was established."""
    timings = response.timings
    return timings.total_s - max(timings.connect_s, timings.tls_s)
