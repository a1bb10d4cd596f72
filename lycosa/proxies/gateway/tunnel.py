"""One tunnel: a connection to a host through a proxy, joined with that of the client until both have ended.

What passes through it nobody sees. A tunnel that brought bytes says that the proxy works, and nothing of the page; one
in which the client spoke and nobody answered is a miss. The rest is for the client to report.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.core.errors import ProxyFailed
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.gateway.connection import Wire
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import Parts, attempt, located, route
from lycosa.proxies.gateway.upstream import Upstream

HALF_S = 60.0
"""Nothing moves for so long in a tunnel of which one side has ended: then the other one ends, too."""


class Tunnel:
    """See the module. `say(hold)`: what the client is told when it is open; `early`: what it has sent by then.

    `is_open` tells whether it is.
    """

    def __init__(
        self,
        parts: Parts,
        client: Wire,
        asked: GatewayUser,
        to: Destination,
        say: Callable[[GatewayLease], tuple[bytes, bytes]],
    ) -> None:
        self.is_open = False
        self._parts = parts
        self._client = client
        self._asked = asked
        self._to = to
        self._say = say
        self._early = 0
        self._latency_s: float | None = None
        self._upstream: Upstream | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._counted = (0, 0)

    async def run(self) -> None:
        """Open it, and wait for its end. Raises what `attempt` and `route` raise."""
        self._way = await route(self._parts, self._to)
        target = self._asked.site or self._parts.target_of(self._to.host)
        await attempt(self._parts, self._asked, target, self)

    async def go(self, hold: GatewayLease) -> Outcome | None:
        """See `Use`."""
        proxy = hold.lease.proxy
        way = await located(self._parts, self._way, proxy)
        upstream, came = await self._parts.dialer.through(proxy, way.through(proxy))
        if hold.over:
            upstream.abort()
            raise ProxyFailed("the lease ended before the tunnel was open", behind=True)
        self._upstream = upstream
        self._latency_s = upstream.latency_s
        hold.on_end.add(self.end)
        self._parts.counts.tunnels_open += 1
        try:
            self._open(upstream, hold, came)
            await self._ended
        finally:
            hold.on_end.discard(self.end)
            self._parts.counts.tunnels_open -= 1
            self.moved()
            upstream.finish()
        return self.outcome

    def may_repeat(self) -> bool:
        """See `Use`."""
        return not self.is_open

    @property
    def outcome(self) -> Outcome | None:
        """See `Use`."""
        upstream = self._upstream
        if upstream is None:
            return None
        if not upstream.moved and (self._client.moved or self._early):
            return Outcome(Blame.MISS, "the tunnel brought nothing", None, self._latency_s)
        return Outcome(Blame.NOBODY, "", None, self._latency_s)

    def lost(self, why: str) -> None:
        """The proxy's side is over: the client's is closed when it has all."""
        self._client.transport.close()
        self.over()

    def came(self, data: bytes) -> None:
        """Nothing is given to us: it goes to the client."""

    def writable(self, *, yes: bool) -> None:
        """The two sides see to that."""

    def over(self) -> None:
        """One side is gone."""
        if not self._ended.done():
            self._ended.set_result(None)

    def end(self) -> None:
        """The lease is over before the tunnel is."""
        self._client.transport.abort()
        self.over()

    def moved(self) -> bool:
        """Count what has moved since this was asked last. Return whether anything has."""
        if self._upstream is None:
            return False
        now = (self._client.moved, self._upstream.moved)
        up, down = now[0] - self._counted[0], now[1] - self._counted[1]
        self._counted = now
        self._parts.counts.bytes_up += up
        self._parts.counts.bytes_down += down
        return bool(up or down)

    @property
    def idle_s(self) -> float:
        """For how long nothing may move: not so long when one side has ended, perhaps without saying so."""
        upstream = self._upstream
        is_half = self._client.at_end or (upstream is not None and upstream.at_end)
        return min(HALF_S, self._parts.limits.tunnel_idle_s) if is_half else self._parts.limits.tunnel_idle_s

    def _open(self, upstream: Upstream, hold: GatewayLease, came: bytes) -> None:
        self.is_open = True
        upstream.listen(self)
        answer, early = self._say(hold)
        self._early = len(early)
        upstream.moved += len(came)
        self._client.send(answer + came)
        if early:
            upstream.send(early)
        self._client.join(upstream)
