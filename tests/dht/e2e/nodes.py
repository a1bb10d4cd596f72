"""Nodes of the command `lycosa dht` on loopback, for tests."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cli.command import Running, start_command

LISTENS = re.compile(r"node ([0-9a-f]{40}) listens on (\S+) \(UDP\)")
ON_LOOPBACK = ("--allow-private", "127.0.0.0/8")


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
