"""The cost of the forward proxy, compared with direct runs: `python bench/gateway.py [--runs 3] [--quick] [--write]`.

Three processes run: the other side (one server that is both an HTTP proxy and the sites behind it, on many addresses,
with canned answers), the gateway with a pool in memory, and this process, which sends the requests. On two cores, the
gateway has one of them; the other two processes share the second one and slow each other down, so CPU time is reported,
too.

    requests    GET of 1 KiB over kept connections, as fast as possible; a lease for each request
    added       the median time of requests that follow each other on one connection, less that of direct requests
    tunnels     bytes through several CONNECT tunnels at a time, one way
    at a time   tunnels that are open together, each of which returns an echo; memory of the gateway for each tunnel

Exit 1: a floor is not held.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import report
import uvloop
from finishing import finish, in_order
from running import ROOT, Figures, count, on_cores, progress

sys.path.insert(0, str(ROOT))

from tests.servers.children import started

BODY = b"x" * 1024
OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 1024\r\n\r\n" + BODY
BLOCK = b"x" * 262_144
ASKS = (
    b"GET http://shop.example/some/page HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: Mozilla/5.0 (X11)\r\n"
    b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip\r\nAccept-Language: en\r\n\r\n"
)
CONNECT = b"CONNECT %b.example:443 HTTP/1.1\r\nHost: %b.example:443\r\n\r\n"
REQUESTS_MIN, ADDED_MAX_MS, TUNNELS_MIN_MB, OPEN_MIN = 3_000, 2.0, 500, 1_000
RUNS, QUICK = 3, 5
TICKS = os.sysconf("SC_CLK_TCK")
WARM_UP_S = 1.0
PROXIES = 200
Child = subprocess.Popen[str]


# --- the other side


class Other(asyncio.Protocol):
    """An HTTP proxy whose sites have one page; `gush.example` sends endlessly, all other tunnels echo."""

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
    from lycosa.app.proxies.gateway import gateway_context, raise_open_files_limit
    from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy
    from lycosa.proxies.core.gateway.limits import Limits
    from lycosa.proxies.core.policy import TargetPolicy
    from lycosa.proxies.core.proxy import parse_proxy
    from lycosa.proxies.gateway.gateway import open_listener, run_gateway
    from lycosa.proxies.memory.pool import LocalPool

    pool = LocalPool(lambda _: TargetPolicy(concurrency=0))
    await pool.add(parse_proxy(f"127.1.{number // 250}.{1 + number % 250}:{port}") for number in range(PROXIES))
    raise_open_files_limit(Limits())
    with open_listener("127.0.0.1:0", has_accounts=False) as listener:
        async with run_gateway(gateway_context(pool, access=AccessRules(names=NamePolicy.TRUST)), listener):
            print(listener.getsockname()[1], flush=True)
            await asyncio.Event().wait()


@contextmanager
def process(role: str, argument: str, core: int):
    """Run a role on a core while the block runs. Yield its process and the port it listens on."""
    command = [sys.executable, str(ROOT / "bench" / "gateway.py"), "--role", role, argument]
    with ExitStack() as stack:
        with on_cores(core):
            child = stack.enter_context(started(command))
        assert child.stdout
        yield child, int(child.stdout.readline())


# --- clients


class Requester(asyncio.Protocol):
    """Sends one request after the other. `took`: seconds of each."""

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


@asynccontextmanager
async def timed(gateway: Child | None, seconds: float) -> AsyncIterator[Figures]:
    """Run the block after a warm-up, then wait for `seconds`. The figures are `wall_s`, and `cpu_s` of the gateway."""
    await asyncio.sleep(WARM_UP_S)
    figures: Figures = {}
    began, cpu = time.perf_counter(), cpu_s(gateway)
    yield figures
    await asyncio.sleep(seconds)
    figures["wall_s"], figures["cpu_s"] = time.perf_counter() - began, cpu_s(gateway) - cpu


async def requests(port: int, connections: int, seconds: float, gateway: Child | None = None) -> Figures:
    """Return the requests a second, the median and the 99th percentile of their times, and the CPU time of each."""
    took: list[float] = []
    loop = asyncio.get_running_loop()
    requesters = [
        (await loop.create_connection(lambda: Requester(took), "127.0.0.1", port))[1] for _ in range(connections)
    ]
    async with timed(gateway, seconds) as figures:
        took.clear()
    found = sorted(took)
    for asker in requesters:
        asker.ended = True
        asker.transport.abort()
    if not found:
        raise SystemExit(f"bench/gateway.py: not one answer in {seconds:g} s")
    rate, each_us = len(found) / figures["wall_s"], figures["cpu_s"] / len(found) * 1e6
    return {
        "rate": rate,
        "median_ms": median(found) * 1e3,
        "p99_ms": found[-len(found) // 100] * 1e3,
        "cpu_us": each_us,
    }


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


async def stream_bytes(port: int, tunnels: int, seconds: float, gateway: Child | None = None) -> Figures:
    """Return the megabytes a second through this number of tunnels, and the CPU time for a gigabyte."""
    counted = [0]
    loop = asyncio.get_running_loop()
    asks = CONNECT % (b"gush", b"gush")
    sinks = [(await loop.create_connection(lambda: Sink(counted, asks), "127.0.0.1", port))[1] for _ in range(tunnels)]
    async with timed(gateway, seconds) as figures:
        counted[0] = 0
    for sink in sinks:
        sink.transport.abort()
    return {"mb": counted[0] / figures["wall_s"] / 1e6, "cpu_gb_s": figures["cpu_s"] / counted[0] * 1e9}


async def many(port: int, tunnels: int) -> tuple[int, float]:
    """Open tunnels one after the other, keep all of them open, and let each return an echo.

    Return how many tunnels returned their echo, and how many seconds all this took.
    """
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


# --- measuring


def cpu_s(child: Child | None) -> float:
    """Return the processor time of a process, 0 for none."""
    if child is None:
        return 0.0
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_kb(child: Child) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e3


def main() -> int:
    """Measure, print, judge."""
    chosen = _options()
    if chosen.role:
        uvloop.run({"other": be_other, "gateway": be_gateway}[chosen.role[0]](chosen.role[1]))
        return 0
    runs = [measure(chosen) for _ in range(chosen.runs)]
    return finish("gateway", {"gateway": table(runs)}, verdicts(runs), write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=count, default=RUNS, help="runs of each; medians count (%(default)s)")
    options.add_argument("--seconds", type=float, default=5.0, help="for each figure of a run (%(default)s)")
    options.add_argument("--connections", type=count, default=32, help="clients at a time (%(default)s)")
    options.add_argument("--tunnels", type=count, default=OPEN_MIN, help="open together (%(default)s)")
    options.add_argument("--quick", action="store_true", help="one run, a fifth of everything: does it work at all?")
    options.add_argument("--write", action="store_true", help="put the tables into docs/benchmarks.md")
    options.add_argument("--role", nargs=2, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.write and chosen.quick:
        options.error("--write is for the whole: leave out --quick")
    if chosen.quick:
        chosen.runs, chosen.seconds, chosen.tunnels = 1, chosen.seconds / QUICK, chosen.tunnels // QUICK or 1
    return chosen


def measure(chosen: argparse.Namespace) -> Figures:
    """Return all figures of a run: those with `direct_` are without the gateway."""
    cores = sorted(os.sched_getaffinity(0))
    with (
        process("other", "", cores[0]) as (_, other),
        process("gateway", str(other), cores[-1]) as (gateway, port),
        on_cores(cores[0]),
    ):
        found = {**_requests(gateway, other, port, chosen), **_tunnels(gateway, other, port, chosen)}
    progress(
        f"{found['rate']:,.0f} requests/s of {found['cpu_us']:.0f} us CPU, +{found['added_ms']:.2f} ms; "
        f"{found['mb']:,.0f} MB/s of {found['cpu_gb_s']:.2f} s CPU a GB; {found['open']:,} tunnels"
    )
    return found


def _requests(gateway: Child, other: int, port: int, chosen: argparse.Namespace) -> Figures:
    seconds, connections = chosen.seconds, chosen.connections
    direct = uvloop.run(requests(other, connections, seconds))
    through = uvloop.run(requests(port, connections, seconds, gateway))
    one_direct = uvloop.run(requests(other, 1, seconds))
    one = uvloop.run(requests(port, 1, seconds, gateway))
    return {
        "direct_rate": direct["rate"], "rate": through["rate"], "cpu_us": through["cpu_us"],
        "direct_ms": one_direct["median_ms"], "added_ms": one["median_ms"] - one_direct["median_ms"],
        "p99_ms": one["p99_ms"],
    }  # fmt: skip


def _tunnels(gateway: Child, other: int, port: int, chosen: argparse.Namespace) -> Figures:
    direct = uvloop.run(stream_bytes(other, 8, chosen.seconds))
    through = uvloop.run(stream_bytes(port, 8, chosen.seconds, gateway))
    before = memory_kb(gateway)
    good, took_s = uvloop.run(many(port, chosen.tunnels))
    each_kb, each_ms = (memory_kb(gateway) - before) / chosen.tunnels, took_s / chosen.tunnels * 1e3
    return {"direct_mb": direct["mb"], **through, "open": good, "each_kb": each_kb, "each_ms": each_ms}


# --- results


def table(runs: Sequence[Mapping[str, float]]) -> str:
    """Return the medians."""
    at = _medians(runs)
    lines = (
        (
            "requests",
            f"{at['direct_rate']:,.0f}/s",
            f"{at['rate']:,.0f}/s",
            f"{REQUESTS_MIN:,}/s",
            f"{at['cpu_us']:,.0f} us CPU each",
        ),
        (
            "sequential requests, median",
            f"{at['direct_ms']:.2f} ms",
            f"+{at['added_ms']:.2f} ms",
            f"+{ADDED_MAX_MS:.0f} ms",
            f"{at['p99_ms']:.2f} ms at the 99th percentile",
        ),
        (
            "bytes through 8 tunnels",
            f"{at['direct_mb']:,.0f} MB/s",
            f"{at['mb']:,.0f} MB/s",
            f"{TUNNELS_MIN_MB} MB/s",
            f"{at['cpu_gb_s']:.2f} s CPU a GB",
        ),
        (
            "concurrent tunnels",
            "",
            f"{at['open']:,.0f}",
            f"{OPEN_MIN:,}",
            f"{at['each_kb']:.0f} KB each, {at['each_ms']:.2f} ms to open one and get an echo",
        ),
    )
    head = ["| | direct | through the gateway | floor | of the gateway |", "|---|---:|---:|---:|---|"]
    return "\n".join([*head, *(f"| {' | '.join(line)} |" for line in lines)])


def verdicts(runs: Sequence[Mapping[str, float]]) -> list[report.Verdict]:
    """Return the floors."""
    at = _medians(runs)
    return [
        report.Verdict(at["rate"] >= REQUESTS_MIN, f"{at['rate']:,.0f} requests a second (at least {REQUESTS_MIN:,})"),
        report.Verdict(at["added_ms"] <= ADDED_MAX_MS, f"{at['added_ms']:.2f} ms added (at most {ADDED_MAX_MS:.0f})"),
        report.Verdict(at["mb"] >= TUNNELS_MIN_MB, f"{at['mb']:,.0f} MB/s through tunnels (at least {TUNNELS_MIN_MB})"),
        report.Verdict(at["open"] >= OPEN_MIN, f"{at['open']:,.0f} concurrent tunnels (at least {OPEN_MIN:,})"),
    ]


def _medians(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: median(run[name] for run in runs) for name in runs[0]}


if __name__ == "__main__":
    sys.exit(in_order(main))
