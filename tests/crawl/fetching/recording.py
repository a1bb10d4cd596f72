"""A fetcher that records requests instead of transferring them, and a frontier that records starts."""

from __future__ import annotations

from typing import Any

from lycosa.core.headers import Headers
from lycosa.http.core.model import HttpResponse, Timings
from lycosa.http.core.request import Request

SENT_AGO_S = 3.0


class RecordingFetcher:
    """Answers every request with a page that took 5 s, 2 of them for the connection: sent SENT_AGO_S before the end."""

    def __init__(self) -> None:
        self.calls: list[tuple[Request, dict[str, Any]]] = []
        self.closed = 0

    async def fetch(
        self,
        request: Request,
        *,
        accept: Any = None,
        max_body: int | None = None,
        cut: bool = False,
        address: str = "",
        public_only: bool = False,
        into: Any = None,
        proxy: str | None = None,
    ) -> HttpResponse:
        options = {"accept": accept, "max_body": max_body, "cut": cut, "address": address}
        options |= {"public_only": public_only, "into": into, "proxy": proxy}
        self.calls.append((request, options))
        return HttpResponse(request.url, 200, Headers.of(()), b"", Timings(connect_s=1.0, tls_s=2.0, total_s=5.0))

    async def close(self) -> None:
        self.closed += 1


class StartedHosts:
    """Records the starts of requests. The owner process needs only the starts of the hosts in `paced`."""

    def __init__(self, *paced: str, lost: Exception | None = None) -> None:
        self.paced = paced
        self.lost = lost
        self.starts: list[tuple[Any, ...]] = []

    async def check_membership(self) -> None:
        if self.lost is not None:
            raise self.lost

    def is_paced(self, host: str) -> bool:
        return host in self.paced

    def report_start(self, *arguments: Any, **options: Any) -> None:
        self.starts.append((*arguments, *options.values()))
