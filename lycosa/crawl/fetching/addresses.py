"""Looks up the addresses of hosts if the frontier has limits per IP address.

Before the pages of a host, the frontier leases a look-up of its address (`RecordKind.RESOLVE`). Then the limits of this
address apply to the host. Each lease of a page has the address, and the fetcher connects only to that address.

A host that cannot be resolved has no address for UNRESOLVED_S, and its requests fail with the error of the look-up. The
fetcher must not resolve such a host itself: the limits of its address would not apply.
"""

from __future__ import annotations

import logging
from typing import Protocol

from lycosa.core.errors import ConnectFailed
from lycosa.core.recent_dict import RecentDict
from lycosa.core.url import host_key, host_name
from lycosa.crawl.fetching.wrapper import FetcherWrapper
from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import Frontier
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, Fetcher, Into, Resolver
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

UNRESOLVED_S = 1.0
"""Seconds after which a failed look-up is repeated. The retries of the host's requests are due at about that time."""

TTL_MIN_S = 10.0
"""Minimum seconds for which an address is used. A TTL of 0 would cause a look-up before every page."""

ERRORS_MAX = 10_000
"""Maximum number of hosts whose look-up error is remembered."""


class HostLookup(Protocol):
    """Resolves hosts for fetches: `HostAddresses`, or `RemoteAddresses` in a worker process."""

    def lookup_error(self, url: str) -> str:
        """Return why the host of a URL could not be resolved; "" if it was resolved, or never looked up."""

    async def update(self, host: str) -> None:
        """Resolve a host and set its address in the frontier, or no address if that fails."""


class HostAddresses:
    """Resolves hosts for the frontier."""

    def __init__(self, frontier: Frontier, resolver: Resolver, clock: Clock) -> None:
        self._frontier = frontier
        self._resolver = resolver
        self._clock = clock
        self._errors: RecentDict[str, str] = RecentDict(ERRORS_MAX)

    async def resolve(self, lease: Lease) -> None:
        await self.update(lease.record.host)
        await self._frontier.ack(lease, "resolved", (), self._clock.now(), contacted=False)

    async def update(self, host: str) -> None:
        try:
            addresses, ttl_s = await self._resolver.resolve(host_name(host))
        except ConnectFailed as error:
            log.info("no address for %s: %s", host, error)
            self._errors[host] = str(error)
            address, ttl_s = "", UNRESOLVED_S
        else:
            self._errors.pop(host, None)
            address, ttl_s = addresses[0], max(ttl_s, TTL_MIN_S)
        now = self._clock.now()
        await self._frontier.set_address(host, address, now + ttl_s, now)

    def lookup_error(self, url: str) -> str:
        return self._errors.get(host_key(url), "") if self._errors else ""


class ResolvedHostFetcher(FetcherWrapper):
    """Fails for a host that could not be resolved, unless the request uses a proxy: a proxy resolves hosts itself."""

    def __init__(self, fetcher: Fetcher, addresses: HostLookup) -> None:
        super().__init__(fetcher)
        self._addresses = addresses

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
        """Raises `ConnectFailed` with the error of the look-up."""
        if not address and (why := self._addresses.lookup_error(request.url)):
            through = request.get_meta("proxy") if proxy is None else proxy
            if not through:
                raise ConnectFailed(why)
        return await self._fetcher.fetch(  # no **options, which would cost a dict for every page
            request,
            accept=accept,
            max_body=max_body,
            cut=cut,
            address=address,
            public_only=public_only,
            into=into,
            proxy=proxy,
        )
