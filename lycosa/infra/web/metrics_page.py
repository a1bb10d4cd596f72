"""Serves metrics over HTTP at `/metrics`, without a password. Each request gets a new page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from lycosa.core.errors import LycosaError, UsageError
from lycosa.core.metrics import CONTENT_TYPE
from lycosa.infra.web.http_server import PLAIN, HttpServer, ServerRequest, ServerResponse
from lycosa.infra.web.listening import LOOPBACK, open_listener, remote_note, url_of, without_password

PATH = "/metrics"
HEAD_MAX = 8192
"""Maximum bytes of the request line and the headers."""

CONNECTIONS_MAX = 32


@asynccontextmanager
async def serve_metrics(
    where: str, page: Callable[[], Awaitable[bytes]], *, allow_remote: bool = False
) -> AsyncIterator[str]:
    """Serve at `where`: `[ADDRESS:]PORT`, where the default address is loopback. Yield the URL, with a `remote_note`.

    Raises `UsageError` if `where` has another form, and the errors of `open_listener`.
    """
    address, port = parse_address(where)
    server = HttpServer(partial(_respond, page), CONNECTIONS_MAX)
    access = without_password(allow_remote=allow_remote)
    with open_listener(address, port, f"--metrics {where}", access) as listener:
        url = url_of(listener.getsockname()) + PATH
        note = remote_note(listener.getsockname()[0], access)
        async with await asyncio.start_server(server.on_connect, sock=listener, limit=HEAD_MAX):
            yield f"{url} ({note})" if note else url


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
