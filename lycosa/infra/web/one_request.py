"""A small HTTP/1 server: one request for each connection, and what one function makes of its head.

Whoever asks is not trusted: a request has a size (the `limit` of the listening server), a time, and a number of others
at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from lycosa.infra.connections import write

REQUEST_MAX_S = 10.0
PLAIN: Mapping[str, str] = {"content-type": "text/plain; charset=utf-8"}


class Asked(NamedTuple):
    """A request: its line, its fields (names in lower case), who sent it, and whether over TLS."""

    method: str
    target: str
    fields: tuple[tuple[str, str], ...]
    address: str
    is_tls: bool


class Answer(NamedTuple):
    """What it is answered."""

    status: int
    body: bytes
    fields: Mapping[str, str] = PLAIN


class OneRequest:
    """Answers as `made` says, at most `connections_max` at the same time."""

    def __init__(self, made: Callable[[Asked], Awaitable[Answer]], connections_max: int) -> None:
        self._made = made
        self._connections_max = connections_max
        self._open: set[asyncio.Task[None] | None] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, and close the connection."""
        task = asyncio.current_task()
        self._open.add(task)
        try:
            if len(self._open) <= self._connections_max:
                async with asyncio.timeout(REQUEST_MAX_S):
                    await self._answer(reader, writer)
            writer.close()
        except (TimeoutError, OSError, asyncio.CancelledError):  # the last one: the server stops
            writer.transport.abort()
        finally:
            self._open.discard(task)

    async def stop(self) -> None:
        """End what is under way."""
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
        asked = _read(head, str(peer[0]) if peer else "", writer.get_extra_info("ssl_object") is not None)
        status, body, fields = Answer(400, b"bad request\n") if asked is None else await self._made(asked)
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name.title()}: {value}" for name, value in fields.items()]
        lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
        is_head = asked is not None and asked.method == "HEAD"
        write(writer, "\r\n".join(lines).encode("latin-1") + (b"" if is_head else body))
        await writer.drain()


def _read(head: bytes, address: str, is_tls: bool) -> Asked | None:
    """Return what a head asks, None when it is no request."""
    line, *rest = head.decode("latin-1").rstrip().split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return None
    pairs = (each.partition(":") for each in rest)
    fields = tuple((name.strip().lower(), value.strip()) for name, colon, value in pairs if colon)
    return Asked(parts[0], parts[1], fields, address, is_tls)
