"""A client's connection. Its first byte determines the protocol: HTTP/1.1 or SOCKS 5."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from lycosa.core.errors import LycosaError
from lycosa.http.core.destination import Destination
from lycosa.proxies.core.gateway.limits import BUFFER_MAX, LINGER_S
from lycosa.proxies.core.gateway.socks import VERSION
from lycosa.proxies.core.gateway.username import GatewayUser
from lycosa.proxies.gateway.client_protocol import ClientProtocol
from lycosa.proxies.gateway.connection import BufferedConnection
from lycosa.proxies.gateway.http_protocol import HttpProtocol
from lycosa.proxies.gateway.leases import GatewayLease
from lycosa.proxies.gateway.routing import GatewayContext, run_attempts
from lycosa.proxies.gateway.socks_protocol import SocksProtocol
from lycosa.proxies.gateway.tunnel import Tunnel

UNSUPPORTED = {4: "SOCKS 4", 0x16: "TLS"}


class ClientOwner(Protocol):
    """The owner of all client connections."""

    context: GatewayContext
    stopping: bool

    def add(self, client: ClientConnection) -> bool:
        """Add a client. Return False if it must be disconnected. `remove` must be called in both cases."""

    def remove(self, client: ClientConnection) -> None: ...


class ClientConnection(BufferedConnection):
    """Reads from a client. `deadline` (loop time) applies only while no request or tunnel runs as a task."""

    def __init__(self, owner: ClientOwner) -> None:
        super().__init__()
        self.address = ""
        self.deadline = 0.0
        self._owner = owner
        self._context = owner.context
        self._loop = asyncio.get_running_loop()
        self._protocol: ClientProtocol | None = None
        self._task: asyncio.Task[None] | None = None
        self._tunnel: Tunnel | None = None
        self._active_at = 0.0
        self._early = b""
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if isinstance(peer, tuple) else ""
        self.set_deadline(self._context.limits.idle_s)
        if not self._owner.add(self):
            self._closing = True
            self.abort()

    def on_data(self, data: bytes) -> None:
        if self._closing:
            return
        if self._tunnel is not None:  # not open yet: an open tunnel bypasses `on_data`
            self._early += data
            if len(self._early) > BUFFER_MAX:
                self.pause()
            return
        if self._protocol is None:
            if data[0] in UNSUPPORTED:
                self._context.counts.refused[UNSUPPORTED[data[0]]] += 1
                self.transport.close()
                return
            self._protocol = (SocksProtocol if data[0] == VERSION else HttpProtocol)(self, self._context)
        self._protocol.on_data(data)

    def on_close(self, how: str) -> None:
        self._closing = True
        self._owner.remove(self)
        if self._tunnel is not None and self._tunnel.is_open:
            self._tunnel.finish()
        elif self._task is not None:
            self._task.cancel()

    def on_writable(self, *, is_writable: bool) -> None:
        if self._protocol is not None:
            self._protocol.on_writable(is_writable=is_writable)

    def check_timeouts(self, now: float) -> None:
        """`now` is loop time."""
        if self._tunnel is not None:
            if self._tunnel.is_open and self._tunnel.count_traffic():
                self._active_at = now
            elif self._tunnel.is_open and now >= self._active_at + self._tunnel.idle_timeout_s:
                self._tunnel.abort()
        elif self._task is not None:
            if self._protocol is not None and self._protocol.is_stalled(now):
                self.abort()
        elif now >= self.deadline:
            if self._closing or self._protocol is None:
                self.abort()
            else:
                self._protocol.on_timeout()

    def stop(self) -> None:
        """Close the connection, after its task if one is running."""
        if self._task is None:
            self.transport.close()

    # ------------------------------------------------------------------------------------------------- ClientTransport

    def set_deadline(self, seconds: float) -> None:
        self.deadline = self._loop.time() + seconds

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        assert self._task is None
        task = self._task = self._loop.create_task(work)
        task.add_done_callback(self._on_task_done)

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self.set_deadline(LINGER_S)
        if self.at_eof or self.transport.is_closing() or not self.transport.can_write_eof():
            self.transport.close()
        else:  # closing with unread input would send a reset: the client would lose the response (RFC 9112 §9.6)
            self.send_eof()
            self.resume()

    def abort(self) -> None:
        self.transport.abort()

    def open_tunnel(
        self,
        user: GatewayUser,
        to: Destination,
        early: bytes,
        opened: Callable[[GatewayLease], bytes],
        failed: Callable[[LycosaError], None],
    ) -> None:
        self._early = early

        def on_open(lease: GatewayLease) -> tuple[bytes, bytes]:
            self._active_at = self._loop.time()
            received, self._early = self._early, b""
            return opened(lease), received

        self._tunnel = Tunnel(self._context, self, on_open)
        self.start(self._run_tunnel(self._tunnel, user, to, failed))

    async def _run_tunnel(
        self, tunnel: Tunnel, user: GatewayUser, to: Destination, failed: Callable[[LycosaError], None]
    ) -> None:
        try:
            await run_attempts(self._context, user, to, tunnel)
        except LycosaError as error:
            if tunnel.is_open:
                self.abort()
                return
            self._tunnel = None
            failed(error)
            if self._early:  # these bytes were for the host: they are not the next request
                self.close()

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            self.abort()
            self._loop.call_exception_handler({"message": "a request of a gateway client failed", "exception": error})
        elif self._owner.stopping and not self._closing:
            self.close()
        elif self._protocol is not None and not self._closing and self._tunnel is None:
            self._protocol.on_task_done()
