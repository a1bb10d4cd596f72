"""A proxy for plain HTTP that adds fields to requests and responses, or responds by itself.

async with forging(asks=["X-Real-IP: 1.2.3.4"], answers=["Set-Cookie: track=1"], exit="127.0.0.9") as url: ...
async with forging(instead=b"HTTP/1.1 200 OK\\r\\n...") as url: ...
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from tests.servers.proxies import new_address

HOPS = ("proxy-connection", "connection")


@asynccontextmanager
async def forging(
    *,
    asks: Sequence[str] = (),
    answers: Sequence[str] = (),
    drops: Sequence[str] = (),
    instead: bytes = b"",
    exit: str = "",  # noqa: A002
) -> AsyncIterator[str]:
    """Run such a proxy while the block runs.

    It removes the request fields whose names, in lower case, are in `drops`. It connects to servers from `exit`.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            line, *fields = head.rstrip().split("\r\n")
            method, target, version = line.split(" ")
            parts = urlsplit(target)
            if instead or method == "CONNECT":
                writer.write(instead or b"HTTP/1.1 405 No\r\nContent-Length: 0\r\n\r\n")
            else:
                forwarded = [each for each in fields if each.partition(":")[0].lower() not in (*HOPS, *drops)]
                lines = [f"{method} {parts.path} {version}", *forwarded, *asks, "Connection: close", "", ""]
                local = (exit or new_address(), 0)
                upstream = await asyncio.open_connection(parts.hostname, parts.port, local_addr=local)
                upstream[1].write("\r\n".join(lines).encode("latin-1"))
                answered, _, body = (await upstream[0].read()).partition(b"\r\n\r\n")
                upstream[1].close()
                more = "".join(f"\r\n{each}" for each in answers).encode("latin-1")
                writer.write(answered + more + b"\r\n\r\n" + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield "http://{}:{}".format(*server.sockets[0].getsockname()[:2])
