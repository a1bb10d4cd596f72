"""Serve a few read-only pages of a running command, such as metrics or a dashboard, without a password."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from socket import socket

from lycosa.core.errors import LycosaError, UsageError
from lycosa.infra.web.http_server import PLAIN, HttpServer, ServerRequest, ServerResponse
from lycosa.infra.web.listening import LOOPBACK, open_listener, remote_note, url_of, without_password

HEAD_MAX = 8192
"""Maximum bytes of the request line and the headers."""

CONNECTIONS_MAX = 32

Pages = Mapping[str, Callable[[str], Awaitable[ServerResponse]]]
"""Functions that answer GET requests, by path. They get the query of the URL, without "?"."""


@asynccontextmanager
async def serve_pages(
    where: str, pages: Pages, home: str, *, option: str, allow_remote: bool = False
) -> AsyncIterator[str]:
    """Serve at `where`, which is `[ADDRESS:]PORT`; the default address is loopback. Yield the URL of the path `home`,
    with a note if other machines may connect.

    `option` is the command-line option whose value is `where`. Raises `UsageError` if `where` has another form, and the
    errors of `open_listener`.
    """
    server = HttpServer(partial(_respond, pages, home), CONNECTIONS_MAX)
    with listen(where, option, allow_remote=allow_remote) as listener:
        url = url_of(listener.getsockname()) + home
        note = remote_note(listener.getsockname()[0], without_password(allow_remote=allow_remote))
        async with await asyncio.start_server(server.on_connect, sock=listener, limit=HEAD_MAX):
            yield f"{url} ({note})" if note else url


def listen(where: str, option: str, *, allow_remote: bool) -> socket:
    """Return a socket that listens at `where`. See `serve_pages`."""
    address, port = parse_address(where, option)
    return open_listener(address, port, f"{option} {where}", without_password(allow_remote=allow_remote))


def parse_address(where: str, option: str) -> tuple[str, int]:
    """Parse `[ADDRESS:]PORT`. Raises `UsageError`."""
    address, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"{option} {where}: write a port such as 9464, or ADDRESS:PORT such as 0.0.0.0:9464")
    return address.strip("[]") or LOOPBACK, int(port)


async def _respond(pages: Pages, home: str, request: ServerRequest) -> ServerResponse:
    if request.method not in ("GET", "HEAD"):
        return ServerResponse(405, b"GET only\n", {**PLAIN, "allow": "GET, HEAD"})
    path, _, query = request.target.partition("?")
    if path not in pages:
        return ServerResponse(404, f"no such page: see {home}\n".encode())
    try:
        return await pages[path](query)
    except LycosaError as error:
        return ServerResponse(503, f"{error}\n".encode())
