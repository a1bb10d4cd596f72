"""The ports of HTTP: name resolution, transfers, and the store of a cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypedDict, Unpack

from lycosa.core.headers import Headers
from lycosa.http.core.cache_rules import StoredResponse
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request


class Resolver(Protocol):
    """Finds the IP addresses of host names."""

    async def resolve(self, name: str) -> tuple[Sequence[str], float]:
        """Return the addresses, the preferred one first, and their TTL in seconds. Raises `ConnectFailed`."""


Accept = Callable[[int, Headers], bool]
Into = Callable[[bytes], None]


class FetchOptions(TypedDict, total=False):
    """Options of one transfer. An error that `accept` or `into` raises ends the transfer, and `fetch` raises it.

    `StopDownload(fail=False)` ends it, too, but then `fetch` returns the response with the part that was read.

    accept        called with status and headers before the body is read; False ends the transfer with `skipped` set
    max_body      maximum size of the body after decompression, in bytes; overrides the fetcher's own limit
    cut           cut a longer body at the limit, instead of raising an error
    address       connect to this IP address instead of resolving the name of the host
    public_only   refuse to connect to an address that is not public (`PrivateAddress`); through a proxy only the URL is
                  checked
    into          called with each piece of the decompressed body; the response then has no body
    proxy         URL of the proxy, "" for none; overrides `proxy` in the request's meta, which overrides the fetcher's
                  default. None (the default) overrides nothing
    """

    accept: Accept | None
    max_body: int | None
    cut: bool
    address: str
    public_only: bool
    into: Into | None
    proxy: str | None


class Fetcher(Protocol):
    """Does HTTP transfers. Follows no redirects and does not retry."""

    async def fetch(self, request: Request, **options: Unpack[FetchOptions]) -> HttpResponse:
        """Return the response. Raises `FetchError`. The request is not changed."""

    async def close(self) -> None:
        """Abort all transfers and close every connection."""


class HttpCacheStore(Protocol):
    """Stores the responses of an HTTP cache. It may drop any of them at any time to stay within its size limit."""

    async def get(self, key: str) -> StoredResponse | None:
        """Return the stored response; None if there is none, or if it is damaged."""

    async def put(self, key: str, stored: StoredResponse) -> None:
        """Store the response, replacing the previous one. A response that is too large is not stored."""

    async def delete(self, key: str) -> None: ...

    async def close(self) -> None: ...
