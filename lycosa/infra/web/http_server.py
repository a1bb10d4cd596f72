"""A small HTTP/1 server: one request per connection, one function for all requests. Bodies are not read.

The size and the duration of a request are limited, and so is the number of concurrent requests. The argument `limit` of
`asyncio.start_server` sets the maximum size.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from lycosa.infra.connections import write

REQUEST_MAX_S = 10.0
PLAIN: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}


class ServerRequest(NamedTuple):
    """A request. Names of fields are in lower case; `address` is that of the client."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    address: str
    is_tls: bool


class ServerResponse(NamedTuple):
    """A response. The server adds Content-Length and Connection to its `fields`."""

    status: int
    body: bytes
    fields: Mapping[str, str] = PLAIN


class HttpServer:
    """Answers requests with `respond`, at most `connections_max` at a time; further connections are closed."""

    def __init__(self, respond: Callable[[ServerRequest], Awaitable[ServerResponse]], connections_max: int) -> None:
        self._respond = respond
        self._connections_max = connections_max
        self._open: set[asyncio.Task[None] | None] = set()

    async def on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.current_task()
        self._open.add(task)
        try:
            if len(self._open) <= self._connections_max:
                async with asyncio.timeout(REQUEST_MAX_S):
                    await self._answer(reader, writer)
            writer.close()
        except (TimeoutError, OSError, asyncio.CancelledError):  # `stop` cancels
            writer.transport.abort()
        finally:
            self._open.discard(task)

    async def stop(self) -> None:
        under_way = [task for task in self._open if task is not None]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            head = b""
        peer = writer.get_extra_info("peername")
        request = _parse(head, str(peer[0]) if peer else "", writer.get_extra_info("ssl_object") is not None)
        response = ServerResponse(400, b"bad request\n") if request is None else await self._respond(request)
        status, body, fields = response
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.title()}: {value}" for name, value in fields.items()]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        is_head = request is not None and request.method == "HEAD"
        write(writer, "\r\n".join(lines).encode("latin-1") + (b"" if is_head else body))
        await writer.drain()


def _parse(head: bytes, address: str, is_tls: bool) -> ServerRequest | None:
    line, *rest = head.decode("latin-1").rstrip().split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    pairs = (each.partition(":") for each in rest)
    fields = tuple((name.strip().lower(), value.strip()) for name, colon, value in pairs if colon)
    return ServerRequest(parts[0], parts[1], fields, address, is_tls)
