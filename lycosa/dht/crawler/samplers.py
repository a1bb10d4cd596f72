"""Requests the peers of an infohash from its samplers: the nodes that returned it in a sample.

A host gets one query at a time. Further queries, up to one for each of the twenty infohashes of a sample, wait for
their turn. If the host does not answer in time, the waiting queries are dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from lycosa.dht.core.endpoints import Contact, site_of
from lycosa.dht.core.events import PeersNamed
from lycosa.dht.core.operations import NodeBusy
from lycosa.dht.session import DhtSession

ASKS_MAX = 200
"""Concurrent queries. The node allows 1,000 operations."""
ASK_MAX_S = 5.0
"""Maximum seconds for a query, including the wait for the limits of our node. Most answers come within a second."""
TURNS_MAX = 20
"""Queries per host, running or waiting. A sample of libtorrent has 20 infohashes."""


class _Host:
    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.users = 0
        self.is_silent = False


class SamplerQueries:
    """Queries to samplers, one at a time per host."""

    def __init__(self, session: DhtSession) -> None:
        self._session = session
        self._hosts: dict[bytes, _Host] = {}
        self._asks = asyncio.Semaphore(ASKS_MAX)

    def least_busy(self, samplers: Iterable[Contact]) -> list[Contact]:
        """Sort the samplers by the number of queries to their host."""
        return sorted(samplers, key=self._waiting_for)

    def _waiting_for(self, sampler: Contact) -> int:
        host = self._hosts.get(site_of(sampler.endpoint))
        return host.users if host is not None else 0

    async def ask(self, sampler: Contact, infohash: bytes) -> PeersNamed | None:
        """Request the peers of an infohash. Return None without an answer, or if too many queries wait."""
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
