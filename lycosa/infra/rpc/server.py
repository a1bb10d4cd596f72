"""The RPC server: listens at an address, and serves a limited number of clients."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from lycosa.infra.rpc.connection import Connection, Hello, RpcLimits
from lycosa.infra.rpc.methods import Service
from lycosa.infra.unix_socket import listen

log = logging.getLogger(__name__)

Address = Path | tuple[str, int]
"""The path of a Unix socket, or a host and a port."""


@dataclass(slots=True, eq=False, repr=False)
class RpcServer:
    """Serves clients from `start` to `close`, each with its own service."""

    address: Address
    version: int
    make_service: Callable[[], Service]
    limits: RpcLimits
    purpose: str = field(kw_only=True)
    """The use of the socket. A warning names it if the socket cannot be created."""
    refusal: str = field(kw_only=True)
    """The text of the `StateLocked` for a client beyond `limits.clients_max`."""
    evict_idle: bool = field(kw_only=True, default=False)
    """Whether a client beyond `limits.clients_max` replaces the client that has been idle the longest. If no client is
    idle, the new one is refused."""
    _server: asyncio.Server | None = field(init=False, default=None)
    _connections: list[Connection] = field(init=False, default_factory=list)
    _is_closed: bool = field(init=False, default=False)

    @property
    def clients(self) -> list[Connection]:
        return [each for each in self._connections if not each.is_lost]

    async def start(self) -> None:
        """Listen. Log a warning if that is impossible, for example on a file system without sockets."""
        address, backlog = self.address, self.limits.clients_max
        try:
            listening = listen(address, backlog) if isinstance(address, Path) else socket.create_server(address)
        except OSError as error:
            log.warning("%s: no socket for %s: %s", address, self.purpose, error.strerror or error)
            return
        loop = asyncio.get_running_loop()
        # In two steps: `close` must know the server even if the second step is cancelled.
        self._server = await loop.create_server(self._accept, sock=listening, backlog=backlog, start_serving=False)
        await self._server.start_serving()

    async def close(self) -> None:
        """Disconnect all clients, and wait for their calls. Calls are cancelled if `Service.cancels` is true."""
        self._is_closed = True
        if self._server is not None:
            self._server.close()
            if isinstance(self.address, Path):
                with suppress(OSError):
                    self.address.unlink()
        for connection in self._connections:
            connection.abort()
        calls = [call for connection in self._connections for call in connection.calls.values()]
        await asyncio.gather(*calls, return_exceptions=True)

    def _accept(self) -> Connection:
        return Connection(self.limits, service=self.make_service(), on_connect=self._admit, on_disconnect=self._forget)

    def _admit(self, connection: Connection) -> None:
        if self._is_closed:  # accepted just before the close: another process may own the state by now
            connection.abort()
        elif len(clients := self.clients) < self.limits.clients_max or self._evict(clients):
            self._connections.append(connection)
            connection.send(Hello(self.version, os.getpid()))
        else:
            connection.send(Hello(self.version, os.getpid(), "StateLocked", self.refusal))
            connection.close()

    def _evict(self, clients: list[Connection]) -> bool:
        idle = [each for each in clients if not each.calls] if self.evict_idle else []
        if idle:
            min(idle, key=lambda each: each.idle_since).abort()
        return bool(idle)

    def _forget(self, reason: Exception | None) -> None:
        if reason is not None:
            log.debug("%s: a client was disconnected: %s", self.address, reason)
        # A lost client stays in the list while it has calls in progress: `close` waits for these.
        self._connections = [each for each in self._connections if not each.is_lost or each.calls]
