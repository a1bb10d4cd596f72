"""The server's end: listens at an address, and serves a bounded number of clients."""

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
"""Of a Unix socket; or a host and a port."""


@dataclass(slots=True, eq=False, repr=False)
class RpcServer:
    """Serves clients from `start` to `close`, each with a service of its own."""

    address: Address
    version: int
    make_service: Callable[[], Service]
    limits: RpcLimits
    purpose: str = field(kw_only=True)
    """What the socket is for: the end of the warning that there is none."""
    refusal: str = field(kw_only=True)
    """The text of the `StateLocked` for one client too many."""
    evict_idle: bool = field(kw_only=True, default=False)
    """Whether that client takes the place of the one that has been idle for longest, if there is one."""
    _server: asyncio.Server | None = field(init=False, default=None)
    _connections: list[Connection] = field(init=False, default_factory=list)
    _is_closed: bool = field(init=False, default=False)

    @property
    def clients(self) -> list[Connection]:
        """Those that are connected."""
        return [each for each in self._connections if not each.is_lost]

    async def start(self) -> None:
        """Listen; log a warning if that is impossible, as on a file system without sockets."""
        address, backlog = self.address, self.limits.clients_max
        try:
            listening = listen(address, backlog) if isinstance(address, Path) else socket.create_server(address)
        except OSError as error:
            log.warning("%s: no socket for %s: %s", address, self.purpose, error.strerror or error)
            return
        loop = asyncio.get_running_loop()
        # In two steps: `close` has to know the server also when the second one is cancelled.
        self._server = await loop.create_server(self._accept, sock=listening, backlog=backlog, start_serving=False)
        await self._server.start_serving()

    async def close(self) -> None:
        """Drop all clients, and wait for the calls under way; those of a service that `cancels` end at once."""
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
        if self._is_closed:  # accepted just before: what it would call may be another owner's by now
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
            log.debug("%s: a client was dropped: %s", self.address, reason)
        # A lost client stays as long as it has calls under way: `close` waits for these.
        self._connections = [each for each in self._connections if not each.is_lost or each.calls]
