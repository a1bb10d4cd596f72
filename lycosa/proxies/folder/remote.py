"""A `ProxyPool` in a folder that another process owns, used through the socket of the folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from lycosa.core.errors import LycosaError, NoProxy, StateError
from lycosa.infra.rpc.client import RpcClient
from lycosa.infra.rpc.connection import LIST_PART
from lycosa.infra.rpc.methods import remote
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder.folder import owner_of
from lycosa.proxies.folder.server import LIMITS, METHODS, VERSION
from lycosa.proxies.memory.wait_queue import CLOSED
from lycosa.proxies.ports import ProxyPool

T = TypeVar("T")

ANSWER_TIMEOUT_S = 30.0
"""Seconds to wait for the owner, in addition to the `wait_s` of the call. After that the owner counts as hung."""

HELLO_TIMEOUT_S = 5.0


class OwnerGone(StateError):
    """The process that owned the pool has ended."""


class PoolMethods:
    """The methods of `ProxyPool`. Each awaits `call`, which a subclass defines."""

    count = remote(ProxyPool.count)
    forget_dead = remote(ProxyPool.forget_dead)
    acquire = remote(ProxyPool.acquire)
    renew = remote(ProxyPool.renew)
    release = remote(ProxyPool.release)
    ban = remote(ProxyPool.ban)
    unban = remote(ProxyPool.unban)
    report_check = remote(ProxyPool.report_check)
    proxies = remote(ProxyPool.proxies)
    targets = remote(ProxyPool.targets)
    explain = remote(ProxyPool.explain)
    _add = remote(ProxyPool.add)
    _remove = remote(ProxyPool.remove)


class RemotePool(RpcClient, PoolMethods):
    """The `ProxyPool` of another process. Create it with `connect`. Every method may also raise `OwnerGone`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, VERSION, METHODS, LIMITS, lambda: owner_of(path.parent))
        self._is_closed = False

    async def add(self, proxies: Iterable[Proxy], *, unchecked: bool = False) -> int:
        return sum([await self._add(part, unchecked=unchecked) for part in _parts(proxies)])

    async def remove(self, keys: Iterable[str]) -> int:
        return sum([await self._remove(part) for part in _parts(keys)])

    async def close(self) -> None:
        self._is_closed = True
        self.connection.abort()

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return await self.call_within(ANSWER_TIMEOUT_S + kwargs.get("wait_s", 0.0), name, args, kwargs)

    def on_abandoned(self, name: str, result: Any) -> None:
        """Release the leases of an `acquire` whose caller no longer waits."""
        if name == "acquire" and not self.connection.is_lost:
            for lease in result:
                self.connection.request("release", (lease, ())).future.cancel()

    def ended_error(self) -> LycosaError:
        if self._is_closed:
            return NoProxy(CLOSED)
        return OwnerGone(f"{self.address}: {self.owner}, which owned the pool, has ended")


async def connect(path: Path) -> RemotePool:
    """Return the pool behind a socket.

    Raises `OSError` or `OwnerGone` if no process serves it, `NewerState` if the owner has another version.
    """
    pool = RemotePool(path)
    await pool.connect(HELLO_TIMEOUT_S)
    return pool


def _parts(values: Iterable[T]) -> Iterator[list[T]]:
    rest = iter(values)
    while part := list(islice(rest, LIST_PART)):
        yield part
