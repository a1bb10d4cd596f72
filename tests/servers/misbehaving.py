"""A web server that misbehaves, one resource per sin (`sins.py`, and for the engine `sins_engine.py`), on raw sockets.

    async with serving() as server:           # on the running loop, on a free port of 127.0.0.1
        server.robots = "503"                 # how /robots.txt answers; see `robots_txt` in sins.py
        ... server.url("/drop") ...
        server.hits                           # every request, in order

    with running() as server:                 # the same on a loop in a thread of its own, for tests that block

In a process of its own: `python -m tests.servers.misbehaving --bind 127.0.0.1:0 [--log FILE] [--robots WAY]`
prints its address, logs requests as JSON lines, and ends when standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from typing import IO, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from tests.servers import sins_engine  # noqa: F401  adds to SINS
from tests.servers.ports import ReservedPort
from tests.servers.sins import SINS, robots_txt

HEAD_MAX = 256 * 1024
BODY_MAX = 64 * 2**20
HITS_MAX = 1_000_000
REASONS = {
    200: "OK",
    204: "No Content",
    302: "Found",
    304: "Not Modified",
    404: "Not Found",
    503: "Service Unavailable",
}


class Hit(NamedTuple):
    """One request. `at` is in monotonic seconds, names in `headers` are in lower case, `target` is as it was sent;
    `connection` numbers the connections of the server.
    """

    at: float
    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        """The path of the target."""
        return urlsplit(self.target).path


class Exchange:
    """A request, and the methods to respond to it. The connection is kept after `answer`, and closed after raw
    bytes.
    """

    def __init__(self, server: Server, hit: Hit, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.server = server
        self.hit = hit
        self.rest = ""
        self.keep = False
        self.reader = reader
        self.writer = writer

    def query(self, name: str, default: str = "") -> str:
        """Return a parameter of the query."""
        return parse_qs(urlsplit(self.hit.target).query).get(name, [default])[0]

    def tries(self) -> int:
        """Return how often this target was requested, including this time."""
        return self.server.tries[self.hit.target]

    async def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(
        self, status: int, body: bytes | str = b"", *, kind: str = "text/html; charset=utf-8", **more: Any
    ):
        """Send a proper response. `more` are header fields, with `_` for `-`; a list sends a field several times."""
        data = body.encode() if isinstance(body, str) else body
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"Content-Type: {kind}"] if kind else []
        lines += [f"Content-Length: {len(data)}"] if status not in {204, 304} else []
        for name, values in more.items():
            lines += [
                f"{name.replace('_', '-')}: {each}" for each in (values if isinstance(values, list) else [values])
            ]
        head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
        await self.send(head if self.hit.method == "HEAD" else head + data)
        self.keep = True

    def abort(self) -> None:
        """Reset the connection."""
        at_once = struct.pack("ii", 1, 0)
        self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, at_once)
        self.writer.transport.abort()


class Server:
    """A running server. `delay_ms` precedes each response of /tree; `out` is the target of /redirect-out.

    `busiest` is the largest number of requests in progress at the same time.
    """

    def __init__(
        self, *, robots: str = "404", delay_ms: float = 0.0, out: str = "", log: IO[str] | None = None
    ) -> None:
        self.robots = robots
        self.delay_ms = delay_ms
        self.out = out
        self.hits: list[Hit] = []
        self.tries: Counter[str] = Counter()
        self.memory: dict[str, Any] = {}  # state of the sins
        self.connections = 0
        self.open_connections = 0
        self.busy = 0
        self.busiest = 0
        self.address = ""
        self.scheme = "http"
        self._log = log
        self._tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/") -> str:
        """Return the URL of a path."""
        return f"{self.scheme}://{self.address}{path}"

    def paths(self) -> list[str]:
        """Return the requested targets, in order."""
        return [hit.target for hit in self.hits]

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None) -> asyncio.Server:
        """Start to listen."""
        server = await asyncio.start_server(self._connected, host, port, limit=HEAD_MAX, backlog=1024, ssl=tls)
        self.scheme = "https" if tls else "http"
        self.address = "{}:{}".format(*server.sockets[0].getsockname()[:2])
        port = server.sockets[0].getsockname()[1]
        self.out = self.out or f"http://127.0.0.2:{port}/"
        return server

    async def stop(self) -> None:
        """Cancel the open connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        self.open_connections += 1
        try:
            await self._converse(reader, writer, self.connections)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the client disconnected, or the server stops
        finally:
            self._tasks.discard(task)
            self.open_connections -= 1
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        keep = True
        while keep:
            hit = await _read(reader, connection)
            self._record(hit)
            exchange = Exchange(self, hit, reader, writer)
            self.busy += 1
            self.busiest = max(self.busiest, self.busy)
            try:
                await self._dispatch(exchange)
            finally:
                self.busy -= 1
            keep = exchange.keep

    def _record(self, hit: Hit) -> None:
        assert len(self.hits) < HITS_MAX
        self.hits.append(hit)
        self.tries[hit.target] += 1
        if self._log:
            entry = {"at": hit.at, "method": hit.method, "target": hit.target, "headers": hit.headers}
            print(json.dumps(entry), file=self._log, flush=True)

    async def _dispatch(self, exchange: Exchange) -> None:
        path = exchange.hit.path
        if exchange.hit.method == "CONNECT":
            await _tunnel(exchange)
        elif path == "/robots.txt":
            await robots_txt(exchange)
        elif path in SINS:
            await SINS[path](exchange)
        else:
            name, exchange.rest = "/" + path.split("/")[1], path.partition("/")[2].partition("/")[2]
            await SINS.get(name, SINS["/404"])(exchange)


async def _read(reader: asyncio.StreamReader, connection: int) -> Hit:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    line, *fields = head.rstrip().split("\r\n")
    method, target, _ = line.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
    size = int(headers.get("content-length", 0))
    assert size <= BODY_MAX
    return Hit(time.monotonic(), method, target, headers, await reader.readexactly(size), connection)


async def _tunnel(exchange: Exchange) -> None:
    """Tunnel to a loopback address like a proxy; refuse other addresses with 403."""
    host, _, port = exchange.hit.target.rpartition(":")
    if not host.startswith("127."):
        return await exchange.answer(403, "loopback addresses only")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        await exchange.send(b"HTTP/1.1 200 Connection established\r\nProxy-Agent: tests\r\n\r\n")
        async with asyncio.TaskGroup() as group:
            group.create_task(_pump(exchange.reader, writer))
            group.create_task(_pump(reader, exchange.writer))
    finally:
        writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.write_eof() if writer.can_write_eof() else writer.close()


@asynccontextmanager
async def serving(
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    beside: Collection[str] = (),
    robots: str = "404",
    delay_ms: float = 0.0,
    out: str = "",
    log: IO[str] | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Server]:
    """Serve on the running loop while the block runs. The port is also reserved at the addresses in `beside`."""
    server = Server(robots=robots, delay_ms=delay_ms, out=out, log=log)
    with ReservedPort(host, *beside, port=port) as reserved:
        listening = await server.start(host, reserved.number, tls)
        try:
            yield server
        finally:
            listening.close()
            await server.stop()


@contextmanager
def running(**options: Any) -> Iterator[Server]:
    """Serve on a loop in its own thread while the block runs, with the options of `serving`."""
    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="misbehaving")
        thread.start()
        try:
            with _in_thread(loop, options) as server:
                yield server
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()


@contextmanager
def _in_thread(loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> Iterator[Server]:
    opened = serving(**options)
    server = asyncio.run_coroutine_threadsafe(opened.__aenter__(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(opened.__aexit__(None, None, None), loop).result()


async def _main(options: argparse.Namespace) -> None:
    host, _, port = options.bind.rpartition(":")
    async with AsyncExitStack() as stack:
        log = stack.enter_context(open(options.log, "a", encoding="utf-8")) if options.log else None  # noqa: ASYNC230, PTH123, SIM115
        server_options = {"robots": options.robots, "delay_ms": options.delay_ms, "out": options.out, "log": log}
        server = await stack.enter_async_context(serving(host=host, port=int(port), **server_options))
        print(server.url(), flush=True)
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(sys.stdin, lambda: sys.stdin.buffer.read1() or ended.set())
        await ended.wait()


def main() -> None:
    """Serve until standard input ends or Ctrl-C."""
    parser = argparse.ArgumentParser(description="A web server that misbehaves.")
    parser.add_argument("--bind", default="127.0.0.1:0")
    parser.add_argument(
        "--robots", default="404", help="404, 500, 503, redirect, loop, hang, html, sitemaps, or the text of robots.txt"
    )
    parser.add_argument("--delay-ms", type=float, default=0.0, help="before each page of /tree")
    parser.add_argument("--out", default="", help="where /redirect-out leads")
    parser.add_argument("--log", default="", help="file for the access log")
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
