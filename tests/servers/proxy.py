"""A small forward proxy on raw sockets: plain HTTP by absolute URL, all else by CONNECT, and Basic authentication.

    async with proxying(user="ann", password="secret", hosts={"www.example": "127.0.0.1"}) as proxy:
        proxy.url, proxy.url_with_secrets
        proxy.asked         # "GET http://...", "CONNECT host:port", in order, those that it refused (407) too

It finds hosts in `hosts` and connects to all others as they are; `exit` is the address it connects from. What it does
wrong can be changed at any time:

    proxy.down = True                   ends what comes in without an answer
    proxy.delay_s = 0.5                 slow: so long before each answer of its own, and before each connection
    proxy.alters = (b"old", b"new")     lying: puts that into the bodies of plain HTTP
    proxy.refuses.add("shop.example")   answers 403 for this host, to GET and to CONNECT
    proxy.drops = 3                     the next answers break off within the body, tunnels at their first bytes
    proxy.password = "other"            nobody gets in any more: 407

Real ones are in `proxies.py`.
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
        self._there: dict[asyncio.Task[Any] | None, asyncio.StreamWriter] = {}
        self.exit = exit
        self.address = ""
        self.asked: list[str] = []
        self.down = False
        self.delay_s = 0.0
        self.alters: tuple[bytes, bytes] | None = None
        self.refuses: set[str] = set()
        self.drops = 0

    @property
    def url(self) -> str:
        """Where it is."""
        return f"http://{self.address}"

    @property
    def url_with_secrets(self) -> str:
        """Where it is, and how to get in."""
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
            pass  # somebody went, or the proxy stops
        finally:
            self._tasks.discard(task)
            for each in (writer, self._there.pop(task, None)):
                if each is not None:
                    each.close()

    async def stop(self) -> None:
        """End what is under way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.rstrip().split("\r\n")
        method, target, _ = line.split(" ")
        self.asked.append(f"{method} {target}")
        await asyncio.sleep(self.delay_s)
        secret = next((each.partition(":")[2].strip() for each in fields if _is(each, "proxy-authorization")), "")
        if secret != self._secret:
            return await _said(writer, b'407 Who are you?\r\nProxy-Authenticate: Basic realm="tests"')
        netloc = target if method == "CONNECT" else urlsplit(target).netloc
        if netloc.rpartition(":")[0] in self.refuses or netloc in self.refuses:
            return await _said(writer, b"403 Not there")
        try:
            there = await self._open(netloc)
        except OSError:
            return await _said(writer, b"502 Not there")
        dropped = self.drops > 0
        self.drops -= dropped
        if method == "CONNECT":
            writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            if dropped:
                await reader.read(1)
            else:
                await _both_ways((reader, writer), there)
            return False
        parts = urlsplit(target)
        path = (parts.path or "/") + ("?" + parts.query if parts.query else "")
        kept = [each for each in fields if not _is(each, "proxy-authorization", "proxy-connection", "connection")]
        there[1].write("\r\n".join([f"{method} {path} HTTP/1.1", *kept, "Via: 1.1 tests", "", ""]).encode("latin-1"))
        return await _answered(there, writer, self.alters, dropped=dropped)

    @property
    def _secret(self) -> str:
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode() if self.user else ""

    async def _open(self, netloc: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, _, port = netloc.rpartition(":") if ":" in netloc else (netloc, "", "80")
        local = (self.exit, 0) if self.exit else None
        there = await asyncio.open_connection(self._hosts.get(host, host), int(port), local_addr=local)
        self._there[asyncio.current_task()] = there[1]
        return there


def _is(field: str, *names: str) -> bool:
    return field.partition(":")[0].strip().lower() in names


async def _said(writer: asyncio.StreamWriter, line: bytes) -> bool:
    """Give an answer without a body."""
    writer.write(b"HTTP/1.1 " + line + b"\r\nContent-Length: 0\r\n\r\n")
    await writer.drain()
    return True


async def _answered(
    there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    writer: asyncio.StreamWriter,
    alters: tuple[bytes, bytes] | None,
    *,
    dropped: bool,
) -> bool:
    """Pass on one answer, or half of it. Return whether its end is known, so that another request can follow."""
    head = await there[0].readuntil(b"\r\n\r\n")
    fields = [field.partition(b":") for field in head.split(b"\r\n")]
    lengths = [int(value) for name, _, value in fields if name.lower() == b"content-length"]
    body = await (there[0].readexactly(lengths[0]) if lengths else there[0].read())
    if alters is not None:
        body = body.replace(*alters)
        head = re.sub(rb"(?i)content-length: *\d+", b"Content-Length: %d" % len(body), head)
    writer.write(head + (body[: len(body) // 2] if dropped else body))
    await writer.drain()
    there[1].close()
    return bool(lengths) and not dropped


async def _both_ways(
    one: tuple[asyncio.StreamReader, asyncio.StreamWriter], other: tuple[asyncio.StreamReader, asyncio.StreamWriter]
) -> None:
    """Carry bytes until one side ends."""
    pumps = [asyncio.create_task(_pump(one[0], other[1])), asyncio.create_task(_pump(other[0], one[1]))]
    try:
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)
        other[1].close()


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
    """Be a proxy on the running loop while the block runs."""
    proxy = Proxy(user, password, hosts or {}, exit)
    server = await asyncio.start_server(proxy.connected, host, 0, limit=HEAD_MAX)
    proxy.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
    try:
        yield proxy
    finally:
        server.close()
        await proxy.stop()
