"""Users of the site in `bench/search_load.py`: each has a connection, and sends requests at random times."""

from __future__ import annotations

import asyncio
import gzip
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import mean, quantiles
from typing import NamedTuple
from urllib.parse import urlencode

from running import Figures, children
from search_corpus import infohash

PAUSE_S = 5.0
"""Mean time between two requests of a user."""
SEARCHES = (
    {},
    {},
    {},
    {"type": "video", "sort": "date"},
    {"size": "1GB..4GB", "sort": "seeders"},
    {"page": "2"},
)


class Answer(NamedTuple):
    """A response: status, headers as sent, body as sent and unpacked."""

    status: int
    head: bytes
    sent: bytes

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.sent) if b"content-encoding: gzip" in self.head else self.sent


class Connection:
    """A connection that is kept, and opened again when the server has closed it, as browsers do."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> None:
        """Connect, or connect again after the server has closed the connection."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def close(self) -> None:
        """Disconnect."""
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()

    async def get(self, path: str) -> Answer:
        """Request a page. Raises an error unless it is there."""
        try:
            answer = await self._get(path)
        except (asyncio.IncompleteReadError, ConnectionError):
            await self.close()
            await self.open()
            answer = await self._get(path)
        assert answer.status == 200, (path, answer)
        return answer

    async def _get(self, path: str) -> Answer:
        self._writer.write(f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\naccept-encoding: gzip\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return Answer(int(head.split()[1]), head, await self._reader.readexactly(length))


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Connection]:
    """Connect to the site."""
    connection = Connection(port)
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


def search_path(text: str, **values: str) -> str:
    """Return the path of a page of results."""
    return "/search?" + urlencode({"q": text, **values})


def detail_path(number: int) -> str:
    """Return the path of the page of the torrent with this number."""
    return f"/torrent/{infohash(number).hex()}"


def visited(chance: random.Random, queries: Iterator[str], torrents: int) -> Iterator[str]:
    """Yield what users request: mostly results, some of them filtered, and torrents; at times the other pages."""
    while True:
        lot = chance.random()
        if lot < 0.6:
            yield search_path(next(queries), **chance.choice(SEARCHES))
        elif lot < 0.85:
            yield detail_path(chance.randrange(torrents))
        else:
            yield chance.choice(
                ("/", "/browse", f"/search?type=audio&date={day(chance)}", f"/suggest?q={word(queries)}")
            )


def day(chance: random.Random) -> str:
    """Return one of the last days."""
    return time.strftime("%Y-%m-%d", time.gmtime(time.time() - 86_400 * chance.randrange(1, 20)))


def word(queries: Iterator[str]) -> str:
    """Return the beginning of a query."""
    return urlencode({"": next(queries)[:4]})[1:]


async def users(port: int, count: int, seconds: float, paths: Iterator[str], seed: int) -> Figures:
    """Let this many users visit the site. Return the times of their requests, which are a Poisson process.

    The time of a request counts from when the user sends it, even if an earlier one of this user is not answered yet.
    """
    took: list[float] = []
    until = time.perf_counter() + seconds

    async def user(chance: random.Random) -> None:
        at = time.perf_counter() + chance.expovariate(1 / PAUSE_S)
        async with connected(port) as connection:
            while at < until:
                await asyncio.sleep(max(at - time.perf_counter(), 0))
                await connection.get(next(paths))
                took.append((time.perf_counter() - at) * 1000)
                at += chance.expovariate(1 / PAUSE_S)

    await asyncio.gather(*(user(random.Random(f"{seed} {number}")) for number in range(count)))
    return percentiles(took) | {"requests": len(took), "rate": len(took) / seconds}


def percentiles(took: Sequence[float]) -> Figures:
    """Return the percentiles of these times."""
    if len(took) < 2:
        took = [*took, *took] or [0.0, 0.0]
    cuts = quantiles(took, n=100, method="inclusive")
    return {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": max(took), "mean": mean(took)}


def cpu_clock(pid: int) -> Callable[[], float]:
    """Return a function that reads the CPU seconds of a process and its children."""
    clocks = [~each << 3 | 2 for each in (pid, *children(pid))]  # as clock_getcpuclockid(3) makes them
    return lambda: sum(map(time.clock_gettime, clocks))


def peak_mb(pid: int) -> float:
    """Return the largest resident set of a process; with children, the sum of theirs."""
    statuses = [Path(f"/proc/{each}/status").read_text() for each in (pid, *children(pid))]
    return sum(int(status.partition("VmHWM:")[2].split()[0]) for status in statuses) / 1024
