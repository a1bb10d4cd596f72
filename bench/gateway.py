"""What the forward proxy costs: `python bench/gateway.py [--seconds 3]`. Prints a table, each figure beside a direct run.

Three processes: the other side (an HTTP proxy and the sites behind it in one, on many addresses, whose answers are
canned), the gateway with a pool in memory, and this one, which asks. On two cores the gateway has one of them; the
others share the second one and are in its way, so that processor time is told, too.

    requests    GET of 1 KiB over kept connections, as fast as it goes; a lease for each request
    added       the median of one request after the other over one connection, less that of a direct one
    tunnels     bytes through several CONNECT tunnels at a time, one way
    at a time   tunnels that are open together, each brings an echo; memory of the gateway for each
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from statistics import median
from typing import Any, NamedTuple

import uvloop
from running import ROOT, count, on_cores, say

sys.path.insert(0, str(ROOT))

BODY = b"x" * 1024
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1024\r\n\r\n" + BODY
BLOCK = b"x" * 262_144
ASKS = (
    b"GET http://shop.example/some/page HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\n"
    b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip\r\nAccept-Language: en\r\n\r\n"
)
CONNECT = b"CONNECT %b.example:443 HTTP/1.1\r\nHost: %b.example:443\r\n\r\n"
FLOORS = {"requests": 3_000.0, "added": 2.0, "tunnels": 500.0, "at a time": 1_000.0}
TICKS = os.sysconf("SC_CLK_TCK")
PROXIES = 200


class Row(NamedTuple):
    """One figure: direct, through the gateway, CPU seconds of the gateway, and what that is for one."""

    name: str
    direct: str
    through: str
    cost: str


# ------------------------------------------------------------------------------------------------------- the other side


class Other(asyncio.Protocol):
    """An HTTP proxy whose sites have one page; `gush.example` sends without end, all other tunnels echo."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self.tunnel, self.paused = transport, b"", False

    def data_received(self, data: bytes) -> None:
        if self.tunnel:
            self.transport.write(data)
        elif data.startswith(b"CONNECT"):
            self.tunnel = data
            self.transport.write(b"HTTP/1.1 200 OK\r\n\r\n")
            if data.startswith(b"CONNECT gush"):
                self.gush()
        else:
            self.transport.write(OK * data.count(b"\r\n\r\n"))

    def gush(self) -> None:
        while not self.paused and not self.transport.is_closing():
            self.transport.write(BLOCK)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.tunnel.startswith(b"CONNECT gush"):
            asyncio.get_running_loop().call_soon(self.gush)


async def be_other(_: str) -> None:
    """Serve on all addresses of 127.0.0.0/8."""
    server = await asyncio.get_running_loop().create_server(Other, "0.0.0.0", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


async def be_gateway(port: str) -> None:
    """Serve a pool in memory with PROXIES proxies."""
    from lycosa.app.gateway import allow_connections, parts_of
    from lycosa.core.proxies.destination import Names, Reach
    from lycosa.core.proxies.policy import TargetPolicy
    from lycosa.core.proxies.proxy import parse_proxy
    from lycosa.gateway.gateway import listening, serving
    from lycosa.gateway.limits import Limits
    from lycosa.proxies.local import LocalPool

    pool = LocalPool(lambda _: TargetPolicy(concurrency=0))
    await pool.add(parse_proxy(f"127.1.{number // 250}.{1 + number % 250}:{port}") for number in range(PROXIES))
    allow_connections(Limits())
    with listening("127.0.0.1:0", has_accounts=False) as listener:
        async with serving(parts_of(pool, reach=Reach(names=Names.TRUST)), listener):
            print(listener.getsockname()[1], flush=True)
            await asyncio.Event().wait()


@contextmanager
def process(role: str, argument: str, core: int):
    """Run a role on a core while the block runs. Yield its process and the port it listens on."""
    with on_cores(core):
        child = subprocess.Popen(
            [sys.executable, __file__, "--role", role, argument], stdout=subprocess.PIPE, text=True
        )
    try:
        assert child.stdout
        yield child, int(child.stdout.readline())
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()


# ---------------------------------------------------------------------------------------------------------- who asks


class Asker(asyncio.Protocol):
    """Asks again and again, one request at a time. `took`: seconds of each."""

    def __init__(self, took: list[float]) -> None:
        self.took, self.came, self.ended = took, b"", False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        self.at = time.perf_counter()
        self.transport.write(ASKS)

    def data_received(self, data: bytes) -> None:
        self.came += data
        if self.came.endswith(BODY):
            assert self.came.startswith(b"HTTP/1.1 200"), self.came[:200]
            self.took.append(time.perf_counter() - self.at)
            self.came = b""
            if not self.ended:
                self.ask()


async def requests(port: int, connections: int, seconds: float) -> list[float]:
    """Return the seconds of all requests."""
    took: list[float] = []
    loop = asyncio.get_running_loop()
    askers = [(await loop.create_connection(lambda: Asker(took), "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.sleep(min(1.0, seconds / 3))
    took.clear()
    await asyncio.sleep(seconds)
    found = list(took)
    for asker in askers:
        asker.ended = True
        asker.transport.abort()
    return found


class Sink(asyncio.BufferedProtocol):
    """Reads, and counts."""

    view = memoryview(bytearray(1 << 20))

    def __init__(self, count_: list[int], asks: bytes) -> None:
        self.count, self.asks = count_, asks

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        transport.write(self.asks)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view

    def buffer_updated(self, nbytes: int) -> None:
        self.count[0] += nbytes


async def gushed(port: int, tunnels: int, seconds: float) -> float:
    """Return megabytes a second through so many tunnels."""
    counted = [0]
    loop = asyncio.get_running_loop()
    asks = CONNECT % (b"gush", b"gush")
    sinks = [(await loop.create_connection(lambda: Sink(counted, asks), "127.0.0.1", port))[1] for _ in range(tunnels)]
    await asyncio.sleep(min(1.0, seconds / 3))
    counted[0], began = 0, time.perf_counter()
    await asyncio.sleep(seconds)
    speed = counted[0] / (time.perf_counter() - began) / 1e6
    for sink in sinks:
        sink.transport.abort()
    return speed


async def many(port: int, tunnels: int) -> tuple[int, float]:
    """Open tunnels one after the other, keep all, and let each bring an echo. Return how many did, and the seconds."""
    began = time.perf_counter()
    opened = []
    for number in range(tunnels):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        site = b"s%d" % (number % 50)
        writer.write(CONNECT % (site, site))
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
        opened.append((reader, writer))
    for number, (_, writer) in enumerate(opened):
        writer.write(b"%06d" % number)
    echoes = [await reader.readexactly(6) == b"%06d" % number for number, (reader, _) in enumerate(opened)]
    return sum(echoes), time.perf_counter() - began


# ------------------------------------------------------------------------------------------------------------- measuring


def cpu_s(child: subprocess.Popen[str]) -> float:
    """Return the processor time of a process."""
    with open(f"/proc/{child.pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(child: subprocess.Popen[str]) -> float:
    """Return the resident memory of a process."""
    with open(f"/proc/{child.pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def measured(child: subprocess.Popen[str], story: Callable[[], Awaitable[Any]]) -> tuple[Any, float]:
    """Return what a story says, and the processor time of a process meanwhile."""
    before = cpu_s(child)
    found = uvloop.run(story())
    return found, cpu_s(child) - before


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3.0, help="for each figure (%(default)s)")
    options.add_argument("--connections", type=count, default=32, help="clients at a time (%(default)s)")
    options.add_argument("--tunnels", type=count, default=1_000, help="open together (%(default)s)")
    options.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.role:
        uvloop.run({"other": be_other, "gateway": be_gateway}[chosen.role[0]](chosen.role[1]))
        return
    cores = sorted(os.sched_getaffinity(0))
    with (
        process("other", "", cores[0]) as (_, other),
        process("gateway", str(other), cores[-1]) as (gateway, port),
        on_cores(cores[0]),
    ):
        rows = measure(gateway, other, port, chosen)
    print("| | direct | through the gateway | floor | of the gateway |\n|---|---:|---:|---:|---|")
    for row in rows:
        print(f"| {row.name} | {row.direct} | {row.through} | {FLOORS[row.name]:,.0f} | {row.cost} |")


def measure(gateway: subprocess.Popen[str], other: int, port: int, chosen: argparse.Namespace) -> list[Row]:
    """Return all figures."""
    seconds, connections = chosen.seconds, chosen.connections
    say("requests …")
    direct = uvloop.run(requests(other, connections, seconds))
    through, cost = measured(gateway, lambda: requests(port, connections, seconds))
    whole = min(1.0, seconds / 3) + seconds
    rows = [
        Row(
            "requests",
            f"{len(direct) / seconds:,.0f}/s",
            f"{len(through) / seconds:,.0f}/s",
            f"{cost / whole * seconds / len(through) * 1e6:,.0f} us CPU a request",
        )
    ]
    say("added time …")
    direct, through = uvloop.run(requests(other, 1, seconds)), uvloop.run(requests(port, 1, seconds))
    added = (median(through) - median(direct)) * 1e3
    rows.append(
        Row(
            "added",
            f"{median(direct) * 1e3:.2f} ms",
            f"+{added:.2f} ms",
            f"p99 {sorted(through)[-len(through) // 100] * 1e3:.2f} ms",
        )
    )
    say("tunnels …")
    speed = uvloop.run(gushed(other, 8, seconds))
    through, cost = measured(gateway, lambda: gushed(port, 8, seconds))
    rows.append(
        Row("tunnels", f"{speed:,.0f} MB/s", f"{through:,.0f} MB/s", f"{cost / whole / through * 1e3:.2f} s CPU a GB")
    )
    say("many tunnels …")
    before = memory_mb(gateway)
    (good, took), cost = measured(gateway, lambda: many(port, chosen.tunnels))
    more = memory_mb(gateway) - before
    rows.append(
        Row("at a time", "", f"{good:,}", f"{more / max(1, good) * 1e3:.0f} KB each, {took / good * 1e3:.2f} ms each")
    )
    return rows


if __name__ == "__main__":
    main()
