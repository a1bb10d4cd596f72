"""The owner's end of the socket of a pool in a folder: other processes lease from the pool, too.

The leases of a client that is lost end with their time, as after a crash. A lease that could not be sent to it is given
back at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lycosa.infra.rpc.connection import RpcLimits
from lycosa.infra.rpc.methods import Method, Service, methods_of
from lycosa.infra.rpc.server import RpcServer
from lycosa.proxies.ports import ProxyPool

VERSION = 3
"""Raised when a method or a type that is sent changes: owner and clients have to be of one version."""

LIMITS = RpcLimits(clients_max=1_000, calls_max=10_000, unread_max=64 << 20)
"""Most calls under way wait for a proxy."""

METHODS = methods_of(ProxyPool, "close")


class PoolService(Service):
    """Serves the pool to one client."""

    async def undelivered(self, method: Method, result: Any) -> None:
        if method.name == "acquire":
            for lease in result:
                await self.target.release(lease)


def pool_server(path: Path, pool: ProxyPool) -> RpcServer:
    """Return a server of the pool at the socket `path`."""
    refusal = f"{LIMITS.clients_max:,} processes use this pool already"
    return RpcServer(
        path, VERSION, lambda: PoolService(METHODS, pool), LIMITS, purpose="other processes", refusal=refusal
    )
