"""The server at STATE/socket, through which `lycosa frontier` reaches a running crawl.

To keep the event loop responsive, a call returns or changes at most SLICE_ROWS rows, and is followed by a pause as long
as the call. Only `verify` and `compact` process the whole state; they pause the crawl meanwhile.
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
"""Increased when a method or a transmitted type changes: the crawl and its client must have the same version."""

CLIENTS_MAX = 16
"""Maximum number of connections. Another connection replaces the one that has been idle for the longest."""

CALLS_MAX = 16
"""Maximum number of queued calls per client."""

WRITE_TIMEOUT_S = 10.0
"""A client that has not read an answer within this many seconds is disconnected."""

LIMITS = RpcLimits(clients_max=CLIENTS_MAX, calls_max=CALLS_MAX, write_timeout_s=WRITE_TIMEOUT_S)
ANSWER_OVERHEAD = 1024
"""Bytes reserved in a frame for everything but the result."""

SLICE_ROWS = 250
"""Maximum number of rows that one call returns or changes. It may read more: see `slices.SCAN_MAX`. The call blocks the
crawl for a few milliseconds."""

SLICED = {"hosts": 50, "rows": SLICE_ROWS, "requeue": 100}
"""Methods whose last argument is a limit, and the maximum of this limit."""

BLOCKING = {"verify": "checks", "compact": "compacts"}
"""Methods that block the crawl while they process the whole state, and the verb for each in messages."""


async def verify(operations: FrontierOperations) -> list[str]:
    """Log the progress here: the callback of `FrontierOperations.verify` cannot be sent to the client."""
    return await operations.verify(log.info)


METHODS = {**methods_of(FrontierOperations, "verify"), "verify": Method(verify)}


@asynccontextmanager
async def serve(path: Path, operations: FrontierOperations) -> AsyncIterator[None]:
    """Serve at the socket `path` while the block runs. The caller must own the state.

    If the file system does not support sockets, a warning is logged and the crawl continues without a socket.
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
    """Serves one client, one call at a time. A running call is never cancelled: it may be changing the state."""

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
            log.warning("lycosa frontier %s: the crawl is paused while it runs", name)
        if name == "verify":
            return await verify(self.target)
        if name == "push" and len(arguments[0]) > SLICE_ROWS:
            raise UsageError(f"cannot push {len(arguments[0]):,} URLs at a time: push at most {SLICE_ROWS:,}")
        if name not in SLICED:
            return await super().answer(method, arguments)
        limit = max(1, min(arguments[-1], SLICED[name]))
        while True:
            result = encode(await super().answer(method, (*arguments[:-1], limit)))
            # If a single row is too long, the connection refuses it with an error that gives its size.
            if limit == 1 or len(result) + ANSWER_OVERHEAD <= LIMITS.frame_max:
                return msgspec.Raw(result)
            limit //= 2  # only read-only methods have long results, so calling them again is safe
