"""What finds hosts, transfers pages, and keeps responses for an HTTP cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lycosa.core.headers import Headers
from lycosa.http.core.cache_rules import StoredResponse
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request


class Resolver(Protocol):
    """Finds the IP addresses of host names."""

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        """Return the addresses, the one to use first, and for how many seconds they hold. Raises `ConnectFailed`."""
        ...


Accept = Callable[[int, Headers], bool]
Into = Callable[[bytes], None]


class Fetcher(Protocol):
    """Does one HTTP transfer. Follows no redirect, retries nothing."""

    async def fetch(
        self,
        request: Request,
        *,
        accept: Accept | None = None,
        max_body: int | None = None,
        cut: bool = False,
        address: str = "",
        public_only: bool = False,
        into: Into | None = None,
        proxy: str | None = None,
    ) -> HttpResponse:
        """Return the response, or raise `FetchError`.

        `accept(status, headers)` is asked before the body is read; False ends the transfer with `skipped` set.
        `max_body` (bytes, after decompression) overrides the fetcher's own limit; with `cut` a longer body is no error,
        but ends there. With `address` it connects to this IP address, whatever the name of the host resolves to.
        `public_only` sends nothing to an address that is not public, whatever leads there (`PrivateAddress`); through a
        proxy only what the URL says can be refused. `into` gets the decompressed body by the piece, and the response
        has none. What it or `accept` raises ends the transfer, and is raised here unless `StopDownload` says otherwise.

        `proxy` is the URL of the proxy to go through, "" for none. It overrides `proxy` in the request's meta, which
        overrides the fetcher's own; None leaves the choice to these two. The request is not changed.
        """
        ...

    async def close(self) -> None:
        """Abort what is under way and close every connection."""
        ...


class HttpCacheStore(Protocol):
    """Where an HTTP cache keeps responses. It may forget any at any time, to stay within its size."""

    async def get(self, key: str) -> StoredResponse | None:
        """Return the response, or None when there is none that can be read."""
        ...

    async def put(self, key: str, stored: StoredResponse) -> None:
        """Keep the response, in place of the one before; one that is too large is not kept."""
        ...

    async def delete(self, key: str) -> None:
        """Forget the response."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
