"""One tunnel: a connection to a host through a proxy, joined with the client's connection until both have ended.

The gateway does not see the responses. If bytes came back, the proxy works; nothing is known about the site. If the
client sent bytes and none came back, the outcome is a miss. All other outcomes must be reported by the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.core.errors import ProxyFailed
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.gateway.connection import BufferedConnection
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import GatewayContext, Route, destination_for
from lycosa.proxies.gateway.upstream import Upstream

HALF_CLOSED_IDLE_S = 60.0


class Tunnel:
    """One tunnel, as a `ProxyTask` and `UpstreamListener`.

    `on_open(lease)` returns the reply to the client, and the bytes that the client has sent so far.
    """

    def __init__(
        self,
        context: GatewayContext,
        client: BufferedConnection,
        on_open: Callable[[GatewayLease], tuple[bytes, bytes]],
    ) -> None:
        self.is_open = False
        self._context = context
        self._client = client
        self._on_open = on_open
        self._upstream: Upstream | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._counted = (0, 0)

    async def attempt(self, lease: GatewayLease, route: Route) -> Outcome | None:
        proxy = lease.proxy_lease.proxy
        to = await destination_for(self._context, route, proxy)
        upstream, received = await self._context.dialer.connect_through(proxy, to)
        if lease.ended:  # a bad report or the pool ended the lease during the handshake
            upstream.abort()
            raise ProxyFailed("the lease ended before the tunnel was open", behind=True)
        self._upstream = upstream
        lease.on_end.add(self.abort)
        self._context.counts.tunnels_open += 1
        try:
            self._open(upstream, lease, received)
            await self._ended
        finally:
            lease.on_end.discard(self.abort)
            self._context.counts.tunnels_open -= 1
            self.count_traffic()
            upstream.finish()
        return self.outcome

    def can_repeat(self) -> bool:
        return not self.is_open

    @property
    def outcome(self) -> Outcome | None:
        upstream = self._upstream
        if upstream is None:
            return None
        if not upstream.forwarded and self._client.forwarded:
            return Outcome(Blame.MISS, "no data came through the tunnel", None, upstream.latency_s)
        return Outcome(Blame.NOBODY, "", None, upstream.latency_s)

    def on_close(self, how: str) -> None:
        self._client.transport.close()
        self.finish()

    def on_data(self, data: bytes) -> None:
        """Never called: the joined connections pass bytes to each other."""

    def on_writable(self, *, is_writable: bool) -> None:
        """Does nothing: the joined connections pause each other."""

    def finish(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def abort(self) -> None:
        self._client.transport.abort()
        self.finish()

    def count_traffic(self) -> bool:
        """Count the bytes since the last call. Return whether there were any."""
        if self._upstream is None:
            return False
        now = (self._client.forwarded, self._upstream.forwarded)
        up, down = now[0] - self._counted[0], now[1] - self._counted[1]
        self._counted = now
        self._context.counts.bytes_up += up
        self._context.counts.bytes_down += down
        return bool(up or down)

    @property
    def idle_timeout_s(self) -> float:
        """Shorter if one side is closed: the other may have vanished, too."""
        limit_s = self._context.limits.tunnel_idle_s
        is_half_closed = self._client.at_eof or (self._upstream is not None and self._upstream.at_eof)
        return min(HALF_CLOSED_IDLE_S, limit_s) if is_half_closed else limit_s

    def _open(self, upstream: Upstream, lease: GatewayLease, received: bytes) -> None:
        self.is_open = True
        upstream.listen(self)
        reply, early = self._on_open(lease)
        self._client.forwarded += len(early)
        upstream.forwarded += len(received)
        self._client.send(reply + received)  # before `join`, after which further bytes are forwarded
        if early:
            upstream.send(early)
        self._client.join(upstream)
