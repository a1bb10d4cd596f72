"""Nodes of the command `lycosa dht` on loopback, for tests."""

from __future__ import annotations

import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lycosa.dht.core.scrape_filter import ScrapeFilter
from tests.cli.command import Running, lycosa, start_command
from tests.servers.proxies import new_address

LISTENS = re.compile(r"node ([0-9a-f]{40}) listens on (\S+) \(UDP\)")
ON_LOOPBACK = ("--allow-private", "127.0.0.0/8")
ANNOUNCE_MAX_S = 120.0


@contextmanager
def dht_node(folder: Path, *options: object, bind: str = "127.0.0.1:0") -> Iterator[tuple[Running, str]]:
    """Run `lycosa dht node` in a folder. Yield the process and the address of its node when the node has joined."""
    folder.mkdir(parents=True, exist_ok=True)
    with start_command("dht", "node", "--bind", bind, *ON_LOOPBACK, *options, cwd=folder) as process:
        addresses = 1 + options.count("--bind")
        assert process.until(lambda: len(listening(process)) == addresses), process.stderr
        if "--metrics" in options:
            assert process.until(lambda: "metrics: " in process.stderr), process.stderr
        if "--bootstrap" in options:
            assert process.until(lambda: "joined: " in process.stderr), process.stderr
        yield process, listening(process)[0][1]


def listening(process: Running) -> list[tuple[str, str]]:
    """Return the id and the address of each node of a process."""
    return LISTENS.findall(process.stderr)


def announce(nodes: int, *words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Announce a peer until this number of nodes store it.

    It is repeated because the nodes may not know each other yet, and because late answers are not awaited.
    """
    deadline = time.monotonic() + ANNOUNCE_MAX_S
    while True:
        done = lycosa("dht", "announce", *words, cwd=cwd)
        if done.stderr.endswith(f"{nodes} of {nodes} nodes store the peer\n"):
            return done
        assert time.monotonic() < deadline, done.stderr


def countable_address() -> str:
    """Return a loopback address that sets two bits of a filter of BEP 33.

    One in 2,048 addresses sets only one bit. One such peer is estimated as half a peer.
    """
    while True:
        seen = ScrapeFilter()
        seen.insert(socket.inet_aton(address := new_address()))
        if round(seen.estimate()) == 1:
            return address
