"""A small forward proxy on raw sockets: plain HTTP by absolute URL, the rest by CONNECT, with Basic authentication.

    async with proxying(user="ann", password="secret", hosts={"www.example": "127.0.0.1"}) as proxy:
        proxy.url, proxy.url_with_login
        proxy.requests         # "GET http://...", "CONNECT host:port", in order, including refused ones (407)

`hosts` maps host names to addresses; `exit` is the address it connects from. Its faults can be changed at any
time:

    proxy.down = True                   closes incoming connections without a response
    proxy.delay_s = 0.5                 waits before each response of its own, and before each connection
    proxy.alters = (b"old", b"new")     replaces this in the bodies of plain HTTP
    proxy.refuses.add("shop.example")   answers 403 for this host, to GET and to CONNECT
    proxy.drops = 3                     truncates the next bodies, and closes tunnels at their first bytes
    proxy.password = "other"            refuses every login: 407

Real proxies are in `proxies.py`.
"""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import quote, urlsplit

HEAD_MAX = 64 * 1024


class Proxy:
    """A running proxy."""

    def __init__(self, user: str, password: str, hosts: Mapping[str, str], exit: str = "") -> None:  # noqa: A002
        self.user = user
        self.password = password
        self._login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
        self._hosts = hosts
        self._tasks: set[asyncio.Task[None]] = set()
        self._upstreams: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}
        self.exit = exit
        self.address = ""
        self.requests: list[str] = []
        self.down = False
        self.delay_s = 0.0
        self.alters: tuple[bytes, bytes] | None = None
        self.refuses: set[str] = set()
        self.drops = 0

    @property
    def url(self) -> str:
        """Its URL without the login."""
        return f"http://{self.address}"

    @property
    def url_with_login(self) -> str:
        """Its URL with the login."""
        return f"http://{self._login}{self.address}"

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            while not self.down and await self._serve(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # one side disconnected, or the proxy stops
        finally:
            self._tasks.discard(task)
            for each in (writer, self._upstreams.pop(task, None)):
                if each is not None:
                    each.close()

    async def stop(self) -> None:
        """Cancel the open connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip().split("\r\n")
        method, target, _ = line.split(" ")
        self.requests.append(f"{method} {target}")
        await asyncio.sleep(self.delay_s)
        secret = next((each.partition(":")[2].strip() for each in fields if _is(each, "proxy-authorization")), "")
        if secret != self._secret:
            return await _respond(writer, b'407 Who are you?\r\nProxy-Authenticate: Basic realm="tests"')
        netloc = target if method == "CONNECT" else urlsplit(target).netloc
        if netloc.rpartition(":")[0] in self.refuses or netloc in self.refuses:
            return await _respond(writer, b"403 Not there")
        try:
            upstream = await self._open(netloc)
        except OSError:
            return await _respond(writer, b"502 Not there")
        dropped = self.drops > 0
        self.drops -= dropped
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            if dropped:
                await reader.read(1)
            else:
                await _tunnel((reader, writer), upstream)
            return False
        parts = urlsplit(target)
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        forwarded = [each for each in fields if not _is(each, "proxy-authorization", "proxy-connection", "connection")]
        upstream[1].write(
            "\r\n".join([f"{method} {path} HTTP/1.1", *forwarded, "Via: 1.1 tests", "", ""]).encode("latin-1")
        )
        return await _forward_response(upstream, writer, self.alters, dropped=dropped)

    @property
    def _secret(self) -> str:
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode() if self.user else ""

    async def _open(self, netloc: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = netloc.rpartition(":") if ":" in netloc else (netloc, "", "80")
        local = (self.exit, 0) if self.exit else None
        upstream = await asyncio.open_connection(self._hosts.get(host, host), int(port), local_addr=local)
        self._upstreams[asyncio.current_task()] = upstream[1]
        return upstream


def _is(field: str, *names: str) -> bool:
    return field.partition(":")[0].strip().lower() in names


async def _respond(writer: asyncio.StreamWriter, line: bytes) -> bool:
    """Send a response without a body."""
    writer.write(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    return True


async def _forward_response(
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    writer: asyncio.StreamWriter,
    alters: tuple[bytes, bytes] | None,
    *,
    dropped: bool,
) -> bool:
    """Forward one response, or half of it. Return whether its length was known, so that another request can follow."""
    head = await upstream[0].readuntil(b"\r\n\r\n")
    fields = [field.partition(b":") for field in head.split(b"\r\n")]
    lengths = [int(value) for name, _, value in fields if name.lower() == b"content-length"]
    body = await (upstream[0].readexactly(lengths[0]) if lengths else upstream[0].read())
    if alters is not None:
        body = body.replace(*alters)
        head = re.sub(rb"(?i)content-length: *\d+", b"Content-Length: %d" % len(body), head)
    writer.write(head + (body[: len(body) // 2] if dropped else body))
    await writer.drain()
    upstream[1].close()
    return bool(lengths) and not dropped


async def _tunnel(
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    upstream: tuple[asyncio.StreamReader, asyncio.StreamWriter],
) -> None:
    """Copy bytes in both directions until one side ends."""
    pumps = [asyncio.create_task(_pump(client[0], upstream[1])), asyncio.create_task(_pump(upstream[0], client[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        upstream[1].close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxying(
    *,
    user: str = "",
    password: str = "",
    hosts: Mapping[str, str] | None = None,
    host: str = "127.0.0.1",
    exit: str = "",  # noqa: A002
) -> AsyncIterator[Proxy]:
    """Run a proxy on the running loop while the block runs."""
    proxy = Proxy(user, password, hosts or {}, exit)
    server = await asyncio.start_server(proxy.connected, host, 0, limit=HEAD_MAX)
    proxy.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
