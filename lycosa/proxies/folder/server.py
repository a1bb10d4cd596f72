"""Serves a pool in a folder to other processes, through a socket.

The leases of a disconnected client expire. A lease that could not be sent is released at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lycosa.infra.rpc.connection import RpcLimits
from lycosa.infra.rpc.methods import Method, Service, methods_of
from lycosa.infra.rpc.server import RpcServer
from lycosa.proxies.ports import ProxyPool

VERSION = 3
"""Increased when a method or a transferred type changes. Owner and clients must agree."""

LIMITS = RpcLimits(clients_max=1_000, calls_max=10_000, unread_max=64 << 20)
"""Most calls only wait for a proxy, so `calls_max` is high."""

METHODS = methods_of(ProxyPool, "close")


class PoolService(Service):
    """Serves the pool to one client."""

    async def undelivered(self, method: Method, result: Any) -> None:
        if method.name == "acquire":
            for lease in result:
                await self.target.release(lease)


def pool_server(path: Path, pool: ProxyPool) -> RpcServer:
    """Return a server of the pool at the socket `path`."""
    refusal = f"{LIMITS.clients_max:,} processes already use this pool"
    return RpcServer(
        path, VERSION, lambda: PoolService(METHODS, pool), LIMITS, purpose="other processes", refusal=refusal
    )
