"""Reports when requests start, for a frontier that is not of this process alone: a host's next turn counts from there.

Each start is reported twice: before the transfer, so that nobody waits for its end, and after it with the time that
libcurl measured, since a busy loop sends a request later than it was asked to.
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
    """The frontier of the owner process, as its worker processes see it."""

    def is_paced(self, host: str) -> bool:
        """Whether the owner waits for the starts of this host."""
        ...

    def started(self, host: str, ago_s: float = 0.0, *, again: bool = False) -> None:
        """A request to the host started so long ago; `again` corrects the report before."""
        ...


class StartReportingFetcher(FetcherWrapper):
    """Reports starts to a frontier that other workers share. Starts nothing once they have given this worker up."""

    def __init__(self, fetcher: Fetcher, frontier: SharedFrontier, clock: Clock) -> None:
        super().__init__(fetcher)
        self._frontier = frontier
        self._clock = clock

    async def fetch(self, request: Request, **options: Any) -> HttpResponse:
        """Do one transfer. See the port. Raises `WorkerLost`, too."""
        await self._frontier.check_membership()
        host = host_key(request.url)
        self._frontier.report_start(host, self._clock.now())
        response = await self._fetcher.fetch(request, **options)
        self._frontier.report_start(host, self._clock.now() - _sent_ago_s(response))
        return response


class OwnerReportingFetcher(FetcherWrapper):
    """Reports starts from a worker process to the owner, for the hosts where the owner waits for them."""

    def __init__(self, fetcher: Fetcher, frontier: OwnerStarts) -> None:
        super().__init__(fetcher)
        self._frontier = frontier

    async def fetch(self, request: Request, **options: Any) -> HttpResponse:
        """Do one transfer. See the port."""
        host = host_key(request.url)
        if not self._frontier.is_paced(host):
            return await self._fetcher.fetch(request, **options)
        self._frontier.started(host)
        response = await self._fetcher.fetch(request, **options)
        self._frontier.started(host, _sent_ago_s(response), again=True)
        return response


def _sent_ago_s(response: HttpResponse) -> float:
    """Return how long before its end a transfer sent its request: when the connection, with TLS, was there."""
    timings = response.timings
    return timings.total_s - max(timings.connect_s, timings.tls_s)
