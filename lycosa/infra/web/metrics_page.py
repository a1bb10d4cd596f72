"""Serves one page of metrics over HTTP: `/metrics`, made anew for every request. There is no password.

Each connection has one request (`infra.web.one_request`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.core.metrics import CONTENT_TYPE
from lycosa.infra.web.bind_errors import refusal
from lycosa.infra.web.one_request import PLAIN, Answer, Asked, OneRequest

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
HEAD_MAX = 8192
"""Bytes of a request: its line and its headers."""

CONNECTIONS_MAX = 32


@asynccontextmanager
async def serving(where: str, page: Callable[[], Awaitable[bytes]]) -> AsyncIterator[str]:
    """Serve at `[ADDRESS:]PORT`, on loopback if no address is given. Yield the URL.

    Raises `UsageError` for what is no such place, `StateError` for one that cannot be had.
    """
    address, port = place(where)
    requests = OneRequest(Server(page).answer, CONNECTIONS_MAX)
    try:
        listening = await asyncio.start_server(requests.connected, address, port, limit=HEAD_MAX)
    except (OSError, UnicodeError) as error:
        raise StateError(f"--metrics {where}: cannot listen there: {refusal(error)}") from None
    async with listening:
        host, port = listening.sockets[0].getsockname()[:2]
        yield f"http://{f'[{host}]' if ':' in host else host}:{port}{PATH}"


def place(where: str) -> tuple[str, int]:
    """Return the address and the port of `[ADDRESS:]PORT`. Raises `UsageError`."""
    address, _, port = where.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise UsageError(f"--metrics {where}: write a port such as 9464, or an address with it, 0.0.0.0:9464")
    return address.strip("[]") or LOOPBACK, int(port)


class Server:
    """Answers requests with a page."""

    def __init__(self, page: Callable[[], Awaitable[bytes]]) -> None:
        self._page = page

    async def answer(self, asked: Asked) -> Answer:
        """Answer one request."""
        if asked.method not in ("GET", "HEAD"):
            return Answer(405, b"GET only\n", {**PLAIN, "allow": "GET, HEAD"})
        if asked.target.partition("?")[0] != PATH:
            return Answer(404, f"metrics are at {PATH}\n".encode())
        try:
            return Answer(200, await self._page(), {"content-type": CONTENT_TYPE})
        except LycosaError as error:
            return Answer(503, f"{error}\n".encode())
