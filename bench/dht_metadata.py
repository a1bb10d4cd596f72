"""How many info dicts a second does one core fetch? Lycosa and libtorrent, from the same canned seeders.

`measure` starts the seeders on one core, and each contender in a process of its own on another one. Each infohash has
one peer, at an address of its own, because Lycosa connects to an address only a few times a minute.
"""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from running import ROOT, Figures, on_cores, progress

sys.path.insert(0, str(ROOT))

from tests.servers.children import started
from tests.servers.seeders import canned

CONCURRENT = 500
TIMEOUT_S = 60.0


def measure(fetches: int, size: int) -> Figures:
    """Return the figures of each contender that is installed."""
    cores = sorted(os.sched_getaffinity(0))
    names = ["lycosa", *(["libtorrent"] if importlib.util.find_spec("libtorrent") else [])]
    figures: Figures = {}
    for name in names:
        with _seeders(fetches, size, cores[0]) as port, on_cores(cores[-1]):
            command = [sys.executable, __file__, name, str(port), str(fetches), str(size)]
            with started(command) as process:
                output, _ = process.communicate()
        figures[name] = json.loads(output)
        progress(f"{name}: {figures[name]['rate']:,.0f} metadata fetches/s of {figures[name]['cpu_us']:,.0f} us CPU")
    return figures


@contextmanager
def _seeders(count: int, size: int, core: int) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.servers.seeders", str(count), str(size)]
    with ExitStack() as stack:
        with on_cores(core):
            process = stack.enter_context(started(command, cwd=ROOT))
        yield int(process.stdout.readline())


def address(number: int) -> str:
    """Return the address of the peer that has the metadata of this number."""
    return f"127.{20 + number // 62_500}.{number // 250 % 250}.{1 + number % 250}"


async def run_lycosa(infohashes: list[bytes], port: int) -> float:
    """Return the seconds in which all were fetched."""
    from lycosa.dht.core.endpoints import AllowedNetworks, pack
    from lycosa.dht.peers import MetadataFetcher

    numbers = iter(range(len(infohashes)))
    async with MetadataFetcher(os.urandom, allowed=AllowedNetworks(["127.0.0.0/8"])) as fetcher:

        async def work() -> None:
            for number in numbers:
                await fetcher.fetch(infohashes[number], [pack(address(number), port)])

        began = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENT):
                tasks.create_task(work())
        return time.perf_counter() - began


def run_libtorrent(infohashes: list[bytes], port: int) -> float:
    """Return the seconds in which all were fetched."""
    import libtorrent

    flags = libtorrent.torrent_flags
    session = libtorrent.session(
        {
            "listen_interfaces": "127.0.0.1:0",
            "alert_mask": libtorrent.alert.category_t.status_notification,
            "alert_queue_size": 10 * len(infohashes),
            "connections_limit": 10 * CONCURRENT,
            "connection_speed": 10_000,  # connections a second; 30 by default
            "torrent_connect_boost": 1,
            "allow_multiple_connections_per_ip": True,
            "out_enc_policy": 2,  # no encryption: the seeders have none
            "in_enc_policy": 2,
            "ssrf_mitigation": False,
            **dict.fromkeys(("enable_dht", "enable_lsd", "enable_upnp", "enable_natpmp", "enable_outgoing_utp"), False),
        }
    )

    def add(number: int) -> None:
        parameters = libtorrent.add_torrent_params()
        parameters.info_hashes = libtorrent.info_hash_t(libtorrent.sha1_hash(infohashes[number]))
        parameters.save_path = "/nonexistent"
        parameters.peers = [(address(number), port)]
        parameters.flags = flags.upload_mode
        session.async_add_torrent(parameters)

    numbers = iter(range(len(infohashes)))
    began = time.perf_counter()
    for _, number in zip(range(CONCURRENT), numbers, strict=False):
        add(number)
    fetched = 0
    while fetched < len(infohashes) and time.perf_counter() - began < TIMEOUT_S:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, libtorrent.metadata_received_alert):
                fetched += 1
                session.remove_torrent(alert.handle)
                if (number := next(numbers, None)) is not None:
                    add(number)
    if fetched < len(infohashes):
        raise SystemExit(f"libtorrent fetched only {fetched} of {len(infohashes)} info dicts in {TIMEOUT_S:g} s")
    return time.perf_counter() - began


def main() -> None:
    """Run one contender: NAME PORT FETCHES SIZE. Print the figures as JSON."""
    import uvloop

    name, port, fetches, size = sys.argv[1], *map(int, sys.argv[2:])
    infohashes = [hashlib.sha1(canned(number, size)).digest() for number in range(fetches)]
    cpu = time.process_time()
    wall_s = uvloop.run(run_lycosa(infohashes, port)) if name == "lycosa" else run_libtorrent(infohashes, port)
    cpu_us = (time.process_time() - cpu) / fetches * 1e6
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"rate": fetches / wall_s, "cpu_us": cpu_us, "peak_mb": peak_mb}))


if __name__ == "__main__":
    main()
