"""Queries to the nodes that sampled an infohash, for its peers.

A sample names up to twenty infohashes at once. One query at a time goes to a host; when one was not answered in time,
nobody waits in vain for the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lycosa.dht.core.endpoints import Contact, site_of
from lycosa.dht.core.events import PeersNamed
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.session import DhtSession

ASKS_MAX = 200
"""Queries at once; the node has room for 1,000 operations."""
ASK_MAX_S = 5.0
"""A query that waits for the limits of the node. Once sent, its time-out is adaptive, and mostly below a second."""
TURNS_MAX = 20
"""Infohashes that wait for one host, which is asked once a second: a sample of libtorrent has as many."""


class _Host:
    """A host that is being asked."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.users = 0
        self.is_silent = False


class SamplerQueries:
    """See the module."""

    def __init__(self, session: DhtSession) -> None:
        self._session = session
        self._hosts: dict[bytes, _Host] = {}
        self._asks = asyncio.Semaphore(ASKS_MAX)

    def least_busy(self, samplers: Iterable[Contact]) -> list[Contact]:
        """Return the samplers, those first for whose host the fewest wait."""
        return sorted(samplers, key=self._waiting_for)

    def _waiting_for(self, sampler: Contact) -> int:
        host = self._hosts.get(site_of(sampler.endpoint))
        return host.users if host is not None else 0

    async def ask(self, sampler: Contact, infohash: bytes) -> PeersNamed | None:
        """Return what the sampler says of an infohash, None if it is silent or too many wait for it."""
        site = site_of(sampler.endpoint)
        host = self._hosts.setdefault(site, _Host())
        if host.users >= TURNS_MAX:
            return None
        host.users += 1
        try:
            async with host.turn:
                return None if host.is_silent else await self._ask(host, sampler, infohash)
        finally:
            host.users -= 1
            if not host.users:
                del self._hosts[site]

    async def _ask(self, host: _Host, sampler: Contact, infohash: bytes) -> PeersNamed | None:
        answer = None
        try:
            async with self._asks, asyncio.timeout(ASK_MAX_S):
                answer = await self._session.ask_peers(sampler, infohash)
        except (TimeoutError, NodeBusy):
            pass
        host.is_silent = answer is None
        return answer
