"""How many queries a second does one core answer, and how many lookups does it do? What does an idle node cost?

    queries     a mix of find_node, get_peers and ping from thousands of addresses of 127.0.0.0/8, each under the limit
                of queries per host; the node has a full table, 10,000 peers, and all limits but the bandwidth cap
    lookups     get_peers in a network of 50 nodes of ours, which run on the other core
    idle        processor time and memory of a process with an IPv4 and an IPv6 node, full tables and 10,000 peers

libtorrent answers the same queries, with its limits raised; its table is empty, because the contacts do not answer, so
its answers are shorter. The generator runs on one core, the program that is measured on the other one.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Any

from running import ROOT, Figures, on_cores, progress

sys.path.insert(0, str(ROOT))

from tests.servers.children import started

SOURCES = 20_000
"""At 40,000 queries a second, each address sends two."""
PACKETS = 8192
WINDOW = 160
"""Number of queries in flight: as many as fit into the receive buffer of an unprivileged socket."""
SILENT_S = 0.05
WARM_UP_S = 1.0
INFOHASHES, PEERS_EACH = 2000, 5
BUCKETS = 40
NETWORK, LOOKUPS_AT_ONCE = 50, 32
IDLE_S = 20.0
IP_PKTINFO = 8
TICKS = os.sysconf("SC_CLK_TCK")
Child = subprocess.Popen[str]


def measure(seconds: float, idle_s: float = IDLE_S) -> Figures:
    """Return the figures of each program, and those of lookups and of an idle node."""
    cores = sorted(os.sched_getaffinity(0))
    names = ["lycosa", *(["libtorrent"] if importlib.util.find_spec("libtorrent") else [])]
    figures: Figures = {}
    for name in names:
        with role(name, cores[-1]) as (child, port), on_cores(cores[0]):
            figures[name] = ask(port, seconds, child)
        progress(f"{name}: {figures[name]['rate']:,.0f} queries/s of {figures[name]['cpu_us']:.1f} us CPU")
    with role("network", cores[0]) as (_, port), role("lookups", cores[-1], str(port), str(seconds)) as (_, rate):
        figures["lookups"] = {"rate": rate}
    progress(f"lookups: {rate:,.0f}/s")
    with role("idle", cores[-1]) as (child, _):
        time.sleep(WARM_UP_S)
        before = cpu_s(child)
        time.sleep(idle_s)
        figures["idle"] = {"cpu_percent": (cpu_s(child) - before) / idle_s * 100, "memory_mb": memory_mb(child)}
    progress(f"idle: {figures['idle']['cpu_percent']:.2f} % CPU, {figures['idle']['memory_mb']:.0f} MB")
    return figures


@contextmanager
def role(name: str, core: int, *arguments: str) -> Iterator[tuple[Child, int]]:
    """Run a role of this file on a core while the block runs. Yield its process and the number that it prints."""
    with ExitStack() as stack:
        with on_cores(core):
            process = stack.enter_context(started([sys.executable, __file__, name, *arguments]))
        yield process, int(process.stdout.readline())


# --- the generator


def queries(chance: random.Random) -> list[bytes]:
    """Return queries: of 100, 48 find_node, 24 get_peers with peers and 24 without, 4 pings."""
    found = []
    for number in range(PACKETS):
        node_id, target, kind = chance.randbytes(20), chance.randbytes(20), number % 25
        transaction = struct.pack(">H", number)
        if kind == 0:
            body, method = b"", b"4:ping"
        elif kind % 2:
            body, method = b"6:target20:" + target, b"9:find_node"
        else:
            infohash = infohash_of(chance.randrange(INFOHASHES)) if kind % 4 else target
            body, method = b"9:info_hash20:" + infohash, b"9:get_peers"
        found.append(b"d1:ad2:id20:%b%be1:q%b1:t2:%b1:v4:LT\x02\x011:y1:qe" % (node_id, body, method, transaction))
    return found


def ask(port: int, seconds: float, child: Child) -> Figures:
    """Keep WINDOW queries in flight. Return the answers per second, and the processor time of each."""
    chance = random.Random(1)
    packets = queries(chance)
    # The address that a datagram leaves from; ifindex 0 is any interface.
    sources = [
        [(socket.IPPROTO_IP, IP_PKTINFO, struct.pack("=I4s4s", 0, socket.inet_aton(address(number)), b"\0" * 4))]
        for number in range(SOURCES)
    ]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind(("0.0.0.0", 0))
        sock.setblocking(False)
        poller = select.poll()
        poller.register(sock, select.POLLIN)
        generator = Generator(sock, poller, packets, sources, ("127.0.0.1", port))
        generator.run(WARM_UP_S)
        before, began = cpu_s(child), time.perf_counter()
        answered = generator.run(seconds)
        wall_s, used_s = time.perf_counter() - began, cpu_s(child) - before
    if not answered:
        raise SystemExit("bench/dht_queries.py: not one answer")
    return {"rate": answered / wall_s, "cpu_us": used_s / answered * 1e6, "bytes": generator.bytes / generator.answers}


class Generator:
    """Sends queries from many addresses, and counts the answers."""

    def __init__(self, sock: socket.socket, poller: Any, packets: list[bytes], sources: list[Any], to: Any) -> None:
        self.sock, self.poller, self.packets, self.sources, self.to = sock, poller, packets, sources, to
        self.sent = self.answers = self.bytes = 0

    def run(self, seconds: float) -> int:
        """Send queries for this time. Return the number of answers."""
        before, ends = self.answers, time.perf_counter() + seconds
        self.send(WINDOW)
        while time.perf_counter() < ends:
            if not self.poller.poll(SILENT_S * 1000):
                self.send(WINDOW)  # the queries in flight are lost
                continue
            self.send(self.receive())
        while self.poller.poll(SILENT_S * 1000):
            self.receive()
        return self.answers - before

    def send(self, count: int) -> None:
        packets, sources, sent = self.packets, self.sources, self.sent
        for number in range(sent, sent + count):
            self.sock.sendmsg((packets[number % PACKETS],), sources[number % SOURCES], 0, self.to)
        self.sent += count

    def receive(self) -> int:
        count = 0
        try:
            while count < WINDOW:
                data = self.sock.recv(2048)
                if data.endswith(b"1:y1:re"):
                    count += 1
                    self.bytes += len(data)
        except BlockingIOError:
            pass
        self.answers += count
        return count


def address(number: int) -> str:
    """Return an address of 127.0.0.0/8."""
    return f"127.{1 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


def infohash_of(number: int) -> bytes:
    """Return an infohash that has peers."""
    return random.Random(number).randbytes(20)


# --- the measured programs


def cpu_s(child: Child) -> float:
    """Return the processor time of a process."""
    fields = Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def memory_mb(child: Child) -> float:
    """Return the resident memory of a process."""
    return int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def limits(**changed: Any) -> Any:
    """Return the default limits without the bandwidth cap."""
    from lycosa.dht.core.limits import NodeLimits

    return NodeLimits(bytes_per_s=1e9, **changed)


def fill(session: Any) -> None:
    """Fill the tables and the store of peers of all nodes."""
    from lycosa.dht.core.endpoints import IPV4, Contact, pack

    chance = random.Random(2)
    for shell in session.shells:
        node, now = shell.node, shell.now()
        own = int.from_bytes(node.node_id)
        for bucket in range(BUCKETS):
            for number in range(8):
                other = own ^ (1 << (159 - bucket)) ^ chance.getrandbits(159 - bucket)
                ip = f"127.200.{bucket}.{1 + number}" if node.family == IPV4 else f"fd00:{bucket:x}:{number:x}::1"
                node.table.responded(Contact(other.to_bytes(20), pack(ip, 6881)), now)
        for number in range(INFOHASHES * PEERS_EACH // len(session.shells)):
            ip = address(number) if node.family == IPV4 else f"fd00:0:{number:x}::1"
            node.peers.announce(infohash_of(number % INFOHASHES), pack(ip, 6881), now, seed=False)


async def be_lycosa() -> None:
    """Answer queries."""
    from lycosa.dht import open_node

    async with open_node(["127.0.0.1:0"], allow_private=["127.0.0.0/8"], limits=limits()) as session:
        fill(session)
        show(session.endpoints[0])
        await asyncio.Event().wait()


async def be_idle() -> None:
    """Do nothing, with full tables."""
    from lycosa.dht import open_node

    async with open_node(["127.0.0.1:0", "[::1]:0"], allow_private=["127.0.0.0/8", "::1", "fd00::/8"]) as session:
        fill(session)
        show(session.endpoints[0])
        await asyncio.Event().wait()


async def be_network() -> None:
    """Run a network of nodes that know each other."""
    from lycosa.dht import open_node

    async with AsyncExitStack() as stack:
        fast = limits(queries_per_s=1e6, queries_burst=10**6, answers_per_s=1e6, answers_burst=10**6)
        entry: list[str] = []
        for number in range(NETWORK):
            opening = open_node(
                [f"127.0.1.{1 + number}:0"], bootstrap=entry, allow_private=["127.0.0.0/8"], limits=fast
            )
            session = await stack.enter_async_context(opening)
            if not entry:
                first = session
                entry = [f"127.0.1.1:{int.from_bytes(session.endpoints[0][-2:])}"]
            else:
                await session.joined()
        show(first.endpoints[0])
        await asyncio.Event().wait()


async def be_lookups(port: str, seconds: str) -> None:
    """Look up many random infohashes at a time. Print the lookups per second."""
    from lycosa.dht import open_node

    fast = limits(queries_per_s=1e6, queries_burst=10**6)
    bootstrap = [f"127.0.1.1:{port}"]
    async with open_node(["127.0.0.1:0"], bootstrap=bootstrap, allow_private=["127.0.0.0/8"], limits=fast) as session:
        await session.joined()
        ends = time.perf_counter() + float(seconds)
        done = 0

        async def work() -> None:
            nonlocal done
            while time.perf_counter() < ends:
                async for _ in session.lookup(os.urandom(20)):
                    pass
                done += 1

        began = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(LOOKUPS_AT_ONCE)))
        print(round(done / (time.perf_counter() - began)), flush=True)


async def be_libtorrent() -> None:
    """Answer queries with libtorrent."""
    import libtorrent

    session = libtorrent.session(
        {
            "listen_interfaces": "127.0.0.1:0",
            "outgoing_interfaces": "127.0.0.1",
            "enable_dht": True,
            "dht_bootstrap_nodes": "",
            "dht_restrict_routing_ips": False,
            "dht_restrict_search_ips": False,
            "dht_ignore_dark_internet": False,
            "dht_block_ratelimit": 10**6,
            "dht_upload_rate_limit": 10**9,
            "alert_mask": 0,
            **dict.fromkeys(("enable_lsd", "enable_upnp", "enable_natpmp", "enable_ip_notifier"), False),
        }
    )
    print(session.listen_port(), flush=True)
    await asyncio.Event().wait()


def show(endpoint: bytes) -> None:
    """Print the port as the sign that all is ready."""
    print(int.from_bytes(endpoint[-2:]), flush=True)


def main() -> None:
    """Run one role: NAME [ARGUMENT...]."""
    import uvloop

    name, *arguments = sys.argv[1:]
    if name == "measure":
        print(json.dumps(measure(*map(float, arguments)), indent=1))
        return
    roles: dict[str, Any] = {
        "lycosa": be_lycosa,
        "libtorrent": be_libtorrent,
        "network": be_network,
        "lookups": be_lookups,
        "idle": be_idle,
    }
    uvloop.run(roles[name](*arguments))


if __name__ == "__main__":
    main()
