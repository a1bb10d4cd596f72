"""The owner's end of the socket STATE/socket: serves `lycosa frontier` while the crawl runs.

It runs on the crawl's event loop and may not hold it up: a call touches at most SLICE_ROWS rows, and its client then
waits for as long as the call took. `verify` and `compact` work on the whole state, and stop the crawl meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import UsageError
from lycosa.frontier.ports import FrontierOperations
from lycosa.infra.rpc.connection import RpcLimits, encode
from lycosa.infra.rpc.methods import Method, Service, methods_of
from lycosa.infra.rpc.server import RpcServer

log = logging.getLogger(__name__)

VERSION = 3
"""Raised when a method or a type that is sent changes: owner and client have to be of one version."""

CLIENTS_MAX = 16
"""Connections. One more takes the place of the one that has been idle for longest."""

CALLS_MAX = 16
"""Calls of one client that wait for their turn; one is served at a time."""

WRITE_TIMEOUT_S = 10.0
"""A client that has not read an answer after so long is dropped."""

LIMITS = RpcLimits(clients_max=CLIENTS_MAX, calls_max=CALLS_MAX, write_timeout_s=WRITE_TIMEOUT_S)
ANSWER_OVERHEAD = 1024
"""Bytes of a frame that are not part of the result."""

SLICE_ROWS = 250
"""Rows that one call reads or changes. The crawl stands still for these milliseconds."""

SLICED = {"hosts": 50, "rows": SLICE_ROWS, "requeue": 100}
"""Methods with a limit, their last argument, and the largest one."""

BLOCKING = {"verify": "checks", "compact": "compacts"}
"""Methods that work on the whole state while the crawl stands still, and what they do."""


async def verify(operations: FrontierOperations) -> list[str]:
    """`FrontierOperations.verify` without its callback, which cannot be sent: the owner logs the progress."""
    return await operations.verify(log.info)


METHODS = {**methods_of(FrontierOperations, "verify"), "verify": Method(verify)}


@asynccontextmanager
async def serve(path: Path, operations: FrontierOperations) -> AsyncIterator[None]:
    """Serve at the socket `path` while the block runs. The caller owns the state.

    If the file system has no sockets, a warning is logged, and the crawl goes on without one.
    """
    server = RpcServer(
        path,
        VERSION,
        lambda: OperationsService(operations),
        LIMITS,
        purpose="`lycosa frontier`",
        refusal=f"{LIMITS.clients_max} other processes are connected to the crawl: try again later",
        evict_idle=True,
    )
    await server.start()
    try:
        yield
    finally:
        await server.close()


class OperationsService(Service):
    """Serves one client, one call at a time. A call that has begun is not interrupted: it may be changing the state."""

    cancels = False

    def __init__(self, operations: FrontierOperations) -> None:
        super().__init__(METHODS, operations)
        self._lock = asyncio.Lock()

    async def schedule(self, serve: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        async with self._lock:
            started = loop.time()
            await serve()
            await asyncio.sleep(loop.time() - started)  # the crawl gets at least half of the time

    async def answer(self, method: Method, arguments: tuple[Any, ...]) -> Any:
        name = method.name
        if name in BLOCKING:
            log.warning("lycosa frontier %s: the crawl stands still for it", name)
        if name == "verify":
            return await verify(self.target)
        if name == "push" and len(arguments[0]) > SLICE_ROWS:
            raise UsageError(f"{len(arguments[0]):,} URLs at a time: push at most {SLICE_ROWS:,}")
        if name not in SLICED:
            return await super().answer(method, arguments)
        limit = max(1, min(arguments[-1], SLICED[name]))
        while True:
            result = encode(await super().answer(method, (*arguments[:-1], limit)))
            # A single row that is too long is refused by the connection, with its size.
            if limit == 1 or len(result) + ANSWER_OVERHEAD <= LIMITS.frame_max:
                return msgspec.Raw(result)
            limit //= 2  # only the methods that read have long results: they can be called again
