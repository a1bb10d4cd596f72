"""Serves metrics over HTTP at `/metrics`, without a password. Each request gets a new page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.core.metrics import CONTENT_TYPE
from lycosa.infra.web.bind_errors import bind_error_text
from lycosa.infra.web.http_server import PLAIN, HttpServer, ServerRequest, ServerResponse

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
HEAD_MAX = 8192
"""Maximum bytes of the request line and the headers."""

CONNECTIONS_MAX = 32


@asynccontextmanager
async def serve_metrics(where: str, page: Callable[[], Awaitable[bytes]]) -> AsyncIterator[str]:
    """Serve at `where`, which is `[ADDRESS:]PORT`; the default address is loopback. Yield the URL.

    Raises `UsageError` if `where` has another form, `StateError` if the address cannot be used.
    """
    address, port = parse_address(where)
    server = HttpServer(partial(_respond, page), CONNECTIONS_MAX)
    try:
        listening = await asyncio.start_server(server.on_connect, address, port, limit=HEAD_MAX)
    except (OSError, UnicodeError) as error:
        raise StateError(f"--metrics {where}: cannot listen there: {bind_error_text(error)}") from None
    async with listening:
        host, port = listening.sockets[0].getsockname()[:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def parse_address(where: str) -> tuple[str, int]:
    """Return the address and the port of `[ADDRESS:]PORT`. Raises `UsageError`."""
    address, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--metrics {where}: write a port such as 9464, or an address with it, 0.0.0.0:9464")
    return address.strip("[]") or LOOPBACK, int(port)


async def _respond(page: Callable[[], Awaitable[bytes]], request: ServerRequest) -> ServerResponse:
    if request.method not in ("GET", "HEAD"):
        return ServerResponse(405, b"GET only\n", {**PLAIN, "allow": "GET, HEAD"})
    if request.target.partition("?")[0] != PATH:
        return ServerResponse(404, f"metrics are at {PATH}\n".encode())
    try:
        return ServerResponse(200, await page(), {"content-type": CONTENT_TYPE})
    except LycosaError as error:
        return ServerResponse(503, f"{error}\n".encode())
