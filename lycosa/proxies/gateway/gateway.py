"""The gateway: accepts clients, enforces limits and timeouts, renews leases, and shuts down gracefully."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from lycosa.core.errors import LycosaError, UsageError
from lycosa.infra.web import listening
from lycosa.proxies.core.gateway.limits import SWEEP_S
from lycosa.proxies.gateway.client import ClientConnection
from lycosa.proxies.gateway.routing import GatewayContext

BACKLOG = 1_024
RENEW_S = 5.0

POLL_S = 0.01

log = logging.getLogger(__name__)


class Gateway:
    """Implements `ClientOwner`: a gateway that listens on `address`. `note` says who may connect."""

    def __init__(self, context: GatewayContext, address: tuple[str, int]) -> None:
        self.context = context
        self.address = address
        self.note = listening.remote_note(address[0], access_to(has_accounts=bool(context.accounts)))
        self.stopping = self._is_fast = False
        self.on_fast_stop: Callable[[], None] = lambda: None
        """Called by `stop_fast`."""
        self._clients: set[ClientConnection] = set()
        self._by_address: Counter[str] = Counter()

    def add(self, client: ClientConnection) -> bool:
        limits, counts = self.context.limits, self.context.counts
        self._clients.add(client)
        self._by_address[client.address] += 1
        counts.clients = len(self._clients)
        too_many = counts.clients > limits.clients or self._by_address[client.address] > limits.per_client
        if too_many or self.stopping:
            counts.refused["connection"] += 1
            return False
        return True

    def remove(self, client: ClientConnection) -> None:
        if client in self._clients:
            self._clients.remove(client)
            self._by_address[client.address] -= 1
            if not self._by_address[client.address]:
                del self._by_address[client.address]
        self.context.counts.clients = len(self._clients)

    async def check_timeouts(self) -> None:
        """Check timeouts until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for client in list(self._clients):
                if not client.closed:
                    client.check_timeouts(now)
            self.context.idle_connections.close_expired(now)

    async def renew_leases(self) -> None:
        """Renew the leases until cancelled, even while the store is unreachable."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.context.leases.renew()
            except LycosaError as error:
                log.warning("leases could not be renewed: %s", error)

    def stop_fast(self) -> None:
        """Make `stop` skip the grace period."""
        self._is_fast = True
        self.on_fast_stop()

    async def stop(self) -> None:
        """Close all connections after a grace period for open requests and tunnels, and release the leases."""
        self.stopping = True
        loop = asyncio.get_running_loop()
        grace_end = loop.time() + self.context.limits.grace_s
        for client in list(self._clients):
            client.stop()
        while self._clients and loop.time() < grace_end and not self._is_fast:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        for client in list(self._clients):
            client.abort()
        while self._clients and loop.time() < grace_end + 1:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)
        self.context.idle_connections.close()
        await self.context.leases.end_all()


@asynccontextmanager
async def run_gateway(context: GatewayContext, listener: socket.socket) -> AsyncIterator[Gateway]:
    """Run a gateway on a listening socket."""
    gateway = Gateway(context, listener.getsockname()[:2])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: ClientConnection(gateway), sock=listener, backlog=BACKLOG)
    tasks = [asyncio.create_task(gateway.check_timeouts()), asyncio.create_task(gateway.renew_leases())]
    try:
        yield gateway
    finally:
        server.close()
        await gateway.stop()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def open_listener(bind: str, *, has_accounts: bool) -> socket.socket:
    """Return a socket that listens on ADDRESS:PORT, on loopback if ADDRESS is empty.

    Clients on other machines need an account: scanners find an open proxy within hours, and its owner is liable for
    abuse. Raises `UsageError`, and the errors of `listening.open_listener`.
    """
    address, _, port = bind.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--bind {bind}: write ADDRESS:PORT such as 127.0.0.1:3128")
    host = address.strip("[]") or listening.LOOPBACK
    return listening.open_listener(host, int(port), f"--bind {bind}", access_to(has_accounts=has_accounts), BACKLOG)


def access_to(*, has_accounts: bool) -> listening.Access:
    """Return who may connect to a gateway."""
    return listening.Access(has_accounts, "add --user NAME:PASSWORD", "an account")
