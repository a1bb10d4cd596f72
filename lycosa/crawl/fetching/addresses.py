"""Addresses for a crawl: when the frontier limits IP addresses, it lends the question for one before a host's pages.

The answer is told to the frontier, which counts the host with its address and lends it with every page, so that the
fetcher connects to nothing else. A host that cannot be found has no address for `UNKNOWN_S`. What is fetched from it
fails with the cause, and the retry policy decides as about any host that cannot be reached; the fetcher must not find
it by itself, for then nobody would know which address to count.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Protocol

from lycosa.core.errors import ConnectFailed
from lycosa.core.url import host_key
from lycosa.crawl.fetching.wrapper import FetcherWrapper
from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import Frontier
from lycosa.http.core.model import Response
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, Fetcher, Into, Resolver
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

UNKNOWN_S = 1.0
"""A host that could not be found is asked for again after so long: about when the retries come."""

HOLDS_MIN_S = 10.0
"""An address is used for at least so long, whatever its TTL: one of 0 would be asked for before every page."""

LOST_MAX = 10_000
"""Hosts of which it is remembered that they could not be found."""


class HostLookup(Protocol):
    """Finds hosts for fetches: `Addresses`, or in a process that only visits pages what its owner has found."""

    def why_lost(self, url: str) -> str:
        """Return why the host of a URL could not be found; "" when it was, or was never asked for."""
        ...

    async def tell(self, host: str) -> None:
        """Tell the frontier the address of a host, or that it has none."""
        ...


class Addresses:
    """Answers the frontier's questions for addresses."""

    def __init__(self, frontier: Frontier, resolver: Resolver, clock: Clock) -> None:
        self._frontier = frontier
        self._resolver = resolver
        self._clock = clock
        self._lost: OrderedDict[str, str] = OrderedDict()

    async def learn(self, lease: Lease) -> None:
        """Tell the frontier the address of the lease's host, or that it has none, and give the lease back."""
        await self.tell(lease.record.host)
        await self._frontier.ack(lease, "resolved", (), self._clock.now(), contacted=False)

    async def tell(self, host: str) -> None:
        """See `HostLookup.tell`."""
        try:
            addresses, ttl_s = await self._resolver.resolve(name_of(host))
        except ConnectFailed as error:
            log.info("no address for %s: %s", host, error)
            self._lose(host, str(error))
            address, holds_s = "", UNKNOWN_S
        else:
            self._lost.pop(host, None)
            address, holds_s = addresses[0], max(ttl_s, HOLDS_MIN_S)
        now = self._clock.now()
        await self._frontier.set_address(host, address, now + holds_s, now)

    def why_lost(self, url: str) -> str:
        """See `HostLookup.why_lost`."""
        return self._lost.get(host_key(url), "") if self._lost else ""

    def _lose(self, host: str, why: str) -> None:
        self._lost[host] = why
        if len(self._lost) > LOST_MAX:
            self._lost.popitem(last=False)


class ResolvedHostFetcher(FetcherWrapper):
    """Fetches nothing from a host that could not be found, unless through a proxy, which finds hosts itself."""

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
    ) -> Response:
        """Do one transfer, or raise why the host is lost."""
        if not address and (why := self._addresses.why_lost(request.url)):
            through = request.asked("proxy") if proxy is None else proxy
            if not through:
                raise ConnectFailed(why)
        return await self._fetcher.fetch(  # each by its name: a dict of options for every page would cost more
            request,
            accept=accept,
            max_body=max_body,
            cut=cut,
            address=address,
            public_only=public_only,
            into=into,
            proxy=proxy,
        )


def name_of(host: str) -> str:
    """Return the name in a host key: `[::1]` for `http://[::1]:80`."""
    return host.partition("://")[2].rpartition(":")[0]
