"""The gateway: listens, knows its clients, looks at their times, renews leases, and ends in good order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.infra.web.bind_errors import bind_error_text
from lycosa.proxies.core.gateway.limits import SWEEP_S
from lycosa.proxies.gateway.client import Client
from lycosa.proxies.gateway.routing import Parts

BACKLOG = 1_024
RENEW_S = 5.0
"""How often leases are looked at."""

log = logging.getLogger(__name__)


class Gateway:
    """See the module. `place` is the address and the port that it listens on. `ending`: no more requests are taken."""

    def __init__(self, parts: Parts, place: tuple[str, int]) -> None:
        self.parts = parts
        self.place = place
        self.ending = self._hurried = False
        self.hurried: Callable[[], None] = lambda: None
        """Called when nothing is to be waited for any more."""
        self._clients: set[Client] = set()
        self._by_address: Counter[str] = Counter()

    def joined(self, client: Client) -> bool:
        """See `Owner`."""
        limits, counts = self.parts.limits, self.parts.counts
        self._clients.add(client)
        self._by_address[client.address] += 1
        counts.clients = len(self._clients)
        if len(self._clients) > limits.clients or self._by_address[client.address] > limits.per_client or self.ending:
            counts.refused["connection"] += 1
            return False
        return True

    def left(self, client: Client) -> None:
        """See `Owner`."""
        if client in self._clients:
            self._clients.remove(client)
            self._by_address[client.address] -= 1
            if not self._by_address[client.address]:
                del self._by_address[client.address]
        self.parts.counts.clients = len(self._clients)

    async def keep_time(self) -> None:
        """Look at all times, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_S)
            now = loop.time()
            for client in list(self._clients):
                if not client.closed:
                    client.sweep(now)
            self.parts.kept.sweep(now)

    async def keep_leases(self) -> None:
        """Renew leases, for ever. A store that is away for a while does no harm."""
        while True:
            await asyncio.sleep(RENEW_S)
            try:
                await self.parts.holds.renew()
            except LycosaError as error:
                log.warning("leases could not be renewed: %s", error)

    def hurry(self) -> None:
        """Wait for nobody at the end, clients or servers."""
        self._hurried = True
        self.hurried()

    async def end(self) -> None:
        """Let what is under way come to its end, but not for long; then end all, and return the leases."""
        self.ending = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self.parts.limits.grace_s
        for client in list(self._clients):
            client.stop()
        while self._clients and loop.time() < until and not self._hurried:  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # clients come and go
        for client in list(self._clients):
            client.cut()
        while self._clients and loop.time() < until + 1:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        self.parts.kept.close()
        await self.parts.holds.end_all()


@asynccontextmanager
async def serving(parts: Parts, listener: socket.socket) -> AsyncIterator[Gateway]:
    """Serve on a listening socket while the block runs; then end in good order."""
    gateway = Gateway(parts, listener.getsockname()[:2])
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Client(gateway), sock=listener, backlog=BACKLOG)
    tasks = [asyncio.create_task(gateway.keep_time()), asyncio.create_task(gateway.keep_leases())]
    try:
        yield gateway
    finally:
        server.close()
        await gateway.end()
        for task in tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def listening(where: str, *, has_accounts: bool) -> socket.socket:
    """Return a socket that listens at ADDRESS:PORT, on loopback without an address.

    Raises `UsageError` for what is no such place, and for an address that others can reach without a password: an open
    proxy is found within hours, and used for what its owner answers for. `StateError` for one that cannot be had.
    """
    address, _, port = where.rpartition(":")
    host = address.strip("[]") or "127.0.0.1"
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--bind {where}: write ADDRESS:PORT such as 127.0.0.1:3128")
    try:
        family, *_, place = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise UsageError(f"--bind {where}: {why.lower()}") from None
    if not has_accounts and not ip_address(str(place[0]).partition("%")[0]).is_loopback:
        raise UsageError(
            f"--bind {where} would be open to everybody: give a --user NAME:PASSWORD, or bind to 127.0.0.1"
        )
    try:
        return socket.create_server(place[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        raise StateError(f"--bind {where}: cannot listen there: {bind_error_text(error)}") from None
