"""Addresses for a crawl: when the frontier limits IP addresses, it lends the question for one before a host's pages.

The answer is told to the frontier, which counts the host with its address and lends it with every page, so that the
fetcher connects to nothing else. A host that cannot be found gets none for `UNKNOWN_S`: its pages are fetched, fail
with the same cause, and the retry policy decides about them as about any host that cannot be reached.
"""

from __future__ import annotations

import logging

from lycosa.clock import Clock
from lycosa.core.errors import ConnectFailed
from lycosa.core.model import Lease
from lycosa.ports import Frontier, Resolver

log = logging.getLogger(__name__)

UNKNOWN_S = 30.0
"""A host that could not be found is asked for again after so long, if it still has pages."""

HOLDS_MIN_S = 10.0
"""An address is used for at least so long, whatever its TTL: one of 0 would be asked for before every page."""


class Addresses:
    """Answers the frontier's questions for addresses."""

    def __init__(self, frontier: Frontier, resolver: Resolver, clock: Clock) -> None:
        self._frontier = frontier
        self._resolver = resolver
        self._clock = clock

    async def learn(self, lease: Lease) -> None:
        """Tell the frontier the address of the lease's host, or that it has none, and give the lease back."""
        host = lease.record.host
        try:
            addresses, holds_s = await self._resolver.resolve(name_of(host))
        except ConnectFailed as error:
            log.info("no address for %s: %s", host, error)
            addresses, holds_s = ("",), UNKNOWN_S
        now = self._clock.now()
        await self._frontier.set_address(host, addresses[0], now + max(holds_s, HOLDS_MIN_S), now)
        await self._frontier.ack(lease, "resolved", (), now, contacted=False)


def name_of(host_key: str) -> str:
    """Return the name in a host key: `[::1]` for `http://[::1]:80`."""
    return host_key.partition("://")[2].rpartition(":")[0]
