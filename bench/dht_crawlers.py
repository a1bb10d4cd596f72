"""Our DHT crawler beside bitmagnet: `python bench/dht_crawlers.py [--bitmagnet PROGRAM] [--torrents N] [--write]`.

The crawlers run one after the other, each in a new private DHT on loopback: `--sessions` libtorrent sessions that share
`--torrents` torrents and keep libtorrent's default flood limits. Each crawler starts with an empty store, and is
stopped when it has stored every torrent, or after `--max-time` seconds. The table shows when 50, 90 and 100 % of the
torrents were stored, the processor time and memory of the crawler (with its database server), and the disk space of
its state.

bitmagnet is built with `go install github.com/bitmagnet-io/bitmagnet@latest`, and needs PostgreSQL. It can bootstrap
only from a DNS name, not from an IPv4 address. So `Introducer` sends it a query, and answers its queries with the
addresses of the network's nodes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from finishing import finish
from running import ROOT, count, progress

sys.path.insert(0, str(ROOT))

import psutil
import psycopg

from lycosa.dht.core.bencode import decode, encode
from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.krpc import encode_query, find_node_arguments
from tests.servers.postgresql import postgresql_process
from tests.servers.torrent_swarm import TorrentSwarm, torrent_swarm

ADDRESS, HOST = "127.0.0.77", "127.0.0.1"
START_MAX_S = 60.0
POLL_S = 0.25
LEVELS = (50, 90, 100)
"""Percentages of the torrents."""
SERVER_OPTIONS = ("-c", "listen_addresses=", "-c", "shared_buffers=64MB")


class Outcome(NamedTuple):
    """What a crawler did. `reached_s` has the seconds for each level, None where it was not reached."""

    stored: int
    reached_s: dict[int, float | None]
    cpu_s: float
    memory_mb: float
    disk_bytes: int


class Crawler(NamedTuple):
    """A running crawler: its processes, its number of stored torrents, and the size of its state."""

    processes: list[int]
    stored: Callable[[], int]
    disk_bytes: Callable[[], int]


def main() -> int:
    """Measure and print."""
    options = _options()
    contenders = {"Lycosa": lycosa}
    if options.bitmagnet:
        contenders["bitmagnet"] = lambda swarm: bitmagnet(swarm, options.bitmagnet)
    outcomes = {}
    for name, start in contenders.items():
        with torrent_swarm(sessions=options.sessions, torrents=options.torrents, strict=True) as swarm:
            progress(f"{name}: {options.sessions} sessions share {options.torrents} torrents")
            with start(swarm) as crawler:
                outcomes[name] = watch(crawler, options.torrents, options.max_time)
    return finish("dht-crawlers", {"dht-crawlers": table(outcomes, options.torrents)}, [], write=options.write)


def watch(crawler: Crawler, torrents: int, max_s: float) -> Outcome:
    """Wait until the crawler has stored all torrents, at most `max_s`. Return its outcome."""
    started_at = time.monotonic()
    reached_s: dict[int, float | None] = dict.fromkeys(LEVELS)
    memory_mb = 0.0
    while (now_s := time.monotonic() - started_at) < max_s:
        stored = crawler.stored()
        memory_mb = max(memory_mb, _memory_mb(crawler))
        for level in LEVELS:
            if reached_s[level] is None and stored * 100 >= torrents * level:
                reached_s[level] = now_s
                progress(f"  {stored} of {torrents} after {now_s:.1f} s")
        if stored >= torrents:
            break
        time.sleep(POLL_S)
    return Outcome(crawler.stored(), reached_s, _cpu_s(crawler), memory_mb, crawler.disk_bytes())


@contextmanager
def lycosa(swarm: TorrentSwarm) -> Iterator[Crawler]:
    """Run our crawler with its embedded store."""
    with tempfile.TemporaryDirectory(prefix="lycosa-bench-") as name:
        home = Path(name)
        options = ("--bind", f"{ADDRESS}:0", "--bootstrap", swarm.bootstrap, "--allow-private", "127.0.0.0/8")
        command = [sys.executable, "-m", "lycosa", "dht", "crawl", "--state", "state", "--profile", "server", *options]
        database = home / "state" / "torrents.sqlite"

        def stored() -> int:
            with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
                return int(connection.execute("SELECT count(*) FROM torrents").fetchone()[0])
            return 0

        with _process(command, home, {"PYTHONPATH": str(ROOT)}) as process:
            yield Crawler([process.pid], stored, lambda: _size(home / "state"))


class Introducer(threading.Thread):
    """Sends a node one query, and answers each of its queries with the addresses of the network's nodes."""

    def __init__(self, port: int, nodes: list[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((ADDRESS, 0))
        self._nodes = b"".join(random.randbytes(ID_BYTES) + pack(*node) for node in nodes)
        self._id = random.randbytes(ID_BYTES)
        self._socket.sendto(encode_query(b"aa", b"find_node", self._id, find_node_arguments(self._id)), (HOST, port))

    def run(self) -> None:
        """Answer until the process ends."""
        while True:
            data, sender = self._socket.recvfrom(4096)
            message = decode(data)
            if isinstance(message, dict) and message.get(b"y") == b"q":
                answer = {b"t": message[b"t"], b"y": b"r", b"r": {b"id": self._id, b"nodes": self._nodes}}
                self._socket.sendto(encode(answer), sender)


def _introduce(pid: int, nodes: list[tuple[str, int]]) -> None:
    deadline = time.monotonic() + START_MAX_S
    while not (sockets := psutil.Process(pid).net_connections("udp4")):
        if time.monotonic() > deadline:
            raise TimeoutError("bitmagnet has not started")
        time.sleep(POLL_S)
    Introducer(sockets[0].laddr.port, nodes).start()


@contextmanager
def bitmagnet(swarm: TorrentSwarm, program: str) -> Iterator[Crawler]:
    """Run bitmagnet with a PostgreSQL server."""
    with ExitStack() as stack:
        server = stack.enter_context(postgresql_process(SERVER_OPTIONS))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lycosa-bench-")))
        connection = stack.enter_context(closing(psycopg.connect(server.database, autocommit=True)))
        connection.execute("CREATE DATABASE bitmagnet")
        database = server.database.replace("dbname=postgres", "dbname=bitmagnet")
        environment = {
            "POSTGRES_DSN": f"{database} sslmode=disable",
            "DHT_CRAWLER_BOOTSTRAP_NODES": swarm.bootstrap,  # instead of the public routers
            "DHT_SERVER_PORT": "0",
            "TMDB_ENABLED": "false",
        }
        command = [program, "worker", "run", "--keys=dht_crawler,queue_server"]
        empty = _database_bytes(connection)

        def stored() -> int:
            with suppress(psycopg.Error), closing(psycopg.connect(database)) as own:
                row = own.execute("SELECT count(*) FROM torrents").fetchone()
                return int(row[0]) if row else 0
            return 0

        process = stack.enter_context(_process(command, home, environment))
        _introduce(process.pid, swarm.nodes)
        yield Crawler(
            [process.pid, *_processes_of(server.database)], stored, lambda: _database_bytes(connection) - empty
        )


@contextmanager
def _process(command: list[str], home: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=home, env=os.environ | environment, stdout=log, stderr=log)
        try:
            yield process
            if process.poll() is not None:
                progress((home / "log").read_text(errors="replace")[-2000:])
        finally:
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _processes_of(database: str) -> list[int]:
    """Return the main process of a database server."""
    with closing(psycopg.connect(database)) as connection:
        row = connection.execute("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'").fetchone()
        return [psutil.Process(row[0]).ppid()] if row else []


def _members(crawler: Crawler) -> list[psutil.Process]:
    found = []
    for pid in crawler.processes:
        with suppress(psutil.NoSuchProcess):
            parent = psutil.Process(pid)
            found += [parent, *parent.children(recursive=True)]
    return found


def _cpu_s(crawler: Crawler) -> float:
    total = 0.0
    for each in _members(crawler):
        with suppress(psutil.NoSuchProcess):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def _memory_mb(crawler: Crawler) -> float:
    """Return the proportional memory of its processes: pages that they share count once."""
    total = 0
    for each in _members(crawler):
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            total += each.memory_full_info().pss
    return total / 1e6


def _size(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.rglob("*") if each.is_file())


def _database_bytes(connection: psycopg.Connection) -> int:
    row = connection.execute("SELECT sum(pg_database_size(oid)) FROM pg_database").fetchone()
    return int(row[0]) if row else 0


def table(outcomes: dict[str, Outcome], torrents: int) -> str:
    """Return a Markdown table with a row for each crawler."""
    head = "".join(f" {level} % after s |" for level in LEVELS)
    lines = [
        f"| | stored of {torrents} |{head} CPU s | memory MB | disk kB |",
        "|---|---:|" + "---:|" * (len(LEVELS) + 3),
    ]
    for name, each in outcomes.items():
        reached = "".join(f" {'-' if s is None else f'{s:.1f}'} |" for s in each.reached_s.values())
        used = f"{each.cpu_s:.1f} | {each.memory_mb:.0f} | {each.disk_bytes / 1000:,.0f}"
        lines.append(f"| {name} | {each.stored} |{reached} {used} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Our DHT crawler beside bitmagnet.")
    parser.add_argument("--bitmagnet", default=shutil.which("bitmagnet"), help="the program (default: the one on PATH)")
    parser.add_argument("--sessions", type=count, default=30)
    parser.add_argument("--torrents", type=count, default=500)
    parser.add_argument("--max-time", type=float, default=900.0, help="seconds for each crawler (default: 900)")
    parser.add_argument("--write", action="store_true", help="write the table into docs/benchmarks.md")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
