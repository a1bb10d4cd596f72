"""Serves one page of metrics over HTTP: `/metrics`, made anew for every request. There is no password.

Whoever asks is not trusted: a request has a size, a time, and a number of others at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from lycosa.core.errors import LycosaError, StateError, UsageError
from lycosa.core.metrics import CONTENT_TYPE
from lycosa.servers.listening import refusal

LOOPBACK = "127.0.0.1"
PATH = "/metrics"
HEAD_MAX = 8192
"""Bytes of a request: its line and its headers."""

REQUEST_MAX_S = 10.0
CONNECTIONS_MAX = 32

STATUSES = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


@asynccontextmanager
async def serving(where: str, page: Callable[[], Awaitable[bytes]]) -> AsyncIterator[str]:
    """Serve at `[ADDRESS:]PORT`, on loopback if no address is given. Yield the URL.

    Raises `UsageError` for what is no such place, `StateError` for one that cannot be had.
    """
    address, port = place(where)
    server = Server(page)
    try:
        listening = await asyncio.start_server(server.answer, address, port, limit=HEAD_MAX)
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
        self._open = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        self._open += 1
        try:
            if self._open <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_MAX_S):
                    await self._answer(reader, writer)
            writer.close()
        except (TimeoutError, OSError):
            writer.transport.abort()
        finally:
            self._open -= 1

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            head = b""
        method, status, body = await self._made(head)
        lines = (
            f"HTTP/1.1 {status} {STATUSES[status]}",
            f"Content-Type: {CONTENT_TYPE if status == 200 else 'text/plain; charset=utf-8'}",
            f"Content-Length: {len(body)}",
            *(["Allow: GET, HEAD"] if status == 405 else []),
            "Connection: close",
        )
        writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if method == b"HEAD" else body))
        await writer.drain()

    async def _made(self, head: bytes) -> tuple[bytes, int, bytes]:
        parts = head.split(b"\r\n", 1)[0].split(b" ")
        if len(parts) != 3 or not parts[2].startswith(b"HTTP/1."):
            return b"", 400, b"bad request\n"
        method, target, _ = parts
        if method not in (b"GET", b"HEAD"):
            return method, 405, b"GET only\n"
        if target.partition(b"?")[0] != PATH.encode():
            return method, 404, f"metrics are at {PATH}\n".encode()
        try:
            return method, 200, await self._page()
        except LycosaError as error:
            return method, 503, f"{error}\n".encode()
