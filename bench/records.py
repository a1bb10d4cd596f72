"""The record store: `python bench/records.py [--torrents 1_000_000] [--only sqlite] [--write]`.

    stored/s        torrents with 30 files each, in batches of 250, each durable when its call returns
    bytes           of all tables and indexes with their logs, per torrent; each torrent has a count of its peers
    state bytes     of the whole state folder of a DHT crawl, per torrent, with two failed infohashes for each
    look-up         of a torrent by its infohash, drawn by lot; median and 99th percentile
    dedup check     of 200 infohashes, half of them stored

The servers run with their durable defaults and 256 MB of buffers. Exit 1: a floor is not held.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from statistics import median, quantiles
from typing import Any

import report
from finishing import finish, in_order
from running import ROOT, Figures, kept, progress, read_torrent_options, torrent_options

sys.path.insert(0, str(ROOT))

from records_state import state_bytes

from lycosa.storage.core.torrent_record import Popularity, TorrentRecord
from lycosa.storage.records.sql import open_sql_records
from lycosa.storage.records.sqlite import SqliteRecordStore
from lycosa.storage.records.tables import TableRecordStore
from tests.servers.mariadb import mariadb_process
from tests.servers.postgresql import postgresql_process
from tests.storage.torrents import torrent

BATCH = 250
DISTINCT = 10_000
"""Number of torrents with different names; beyond it they are repeated with other infohashes."""
LOOK_UPS, CHECKS, CHECKED = 2_000, 200, 200
NOW = 1_790_000_000.0
BYTES_MAX, STATE_BYTES_MAX = 600, 1_000
POSTGRESQL = ("-c", "listen_addresses=", "-c", "shared_buffers=256MB", "-c", "max_wal_size=1GB")
MARIADB = ("--no-defaults", "--skip-networking", "--skip-grant-tables", "--innodb-buffer-pool-size=256M")
STATE = "state"
STORES = ("sqlite", "postgresql", "mariadb", STATE)


def main() -> int:
    """Measure, print, judge."""
    chosen = _options()
    names = chosen.only or STORES
    runs = {name: asyncio.run(measure(name, chosen.torrents)) for name in names if name != STATE}
    state = asyncio.run(measure_state(chosen.torrents)) if STATE in names else {}
    blocks = {"records": table(runs, chosen.torrents), "records-state": state_table(state, chosen.torrents)}
    return finish("records", blocks, verdicts(runs, state), write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = torrent_options(__doc__, keep=False)
    options.add_argument("--only", action="append", choices=STORES, help="one of them; may be repeated")
    return read_torrent_options(options)


# ------------------------------------------------------------------------------------------------------------ measuring


@contextmanager
def places(name: str) -> Iterator[Callable[[], TableRecordStore]]:
    """Yield a function that opens a store, which is empty at first; its data are deleted at the end of the block."""
    if name == "sqlite":
        with kept() as folder:
            yield lambda: SqliteRecordStore(folder / "torrents.sqlite", sync=True)
    elif name == "postgresql":
        with postgresql_process(POSTGRESQL) as server:
            yield lambda: open_sql_records(server.url)
    else:
        with mariadb_process(MARIADB) as server:
            yield lambda: open_sql_records(server.url)


async def measure(name: str, torrents: int) -> Figures:
    """Return the figures of a store. Its size is measured after it was closed, so that its log is empty."""
    with places(name) as make:
        async with opened(make()) as store:
            figures = await fill(name, store, torrents)
        async with opened(make()) as store:
            return figures | {"bytes": await store.used_bytes() / torrents} | await look(store, torrents)


@asynccontextmanager
async def opened(store: TableRecordStore) -> AsyncIterator[TableRecordStore]:
    """Open a store, and close it."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def fill(name: str, store: TableRecordStore, torrents: int) -> Figures:
    """Store the torrents, with a count of the peers of each."""
    templates = [torrent(number) for number in range(min(DISTINCT, torrents))]
    stored_s = cpu_s = 0.0
    chance = random.Random(0)
    for start in range(0, torrents, BATCH):
        some = [numbered(templates, number) for number in range(start, min(start + BATCH, torrents))]
        began, began_cpu = time.perf_counter(), time.process_time()
        result = await store.put(some, NOW + start)
        stored_s += time.perf_counter() - began
        cpu_s += time.process_time() - began_cpu
        assert result.new == len(some)
        counts = [Popularity(each.keys[0], int(chance.expovariate(0.1)), 3, int(NOW)) for each in some]
        await store.set_popularity(counts)
        if start // BATCH % 200 == 0:
            progress(f"{name}: {start + len(some):,} torrents, {stored_s:.0f} s")
    return {"rate": torrents / stored_s, "cpu_us": cpu_s / torrents * 1e6}


async def look(store: TableRecordStore, torrents: int) -> Figures:
    """Return how long a look-up and a dedup check take."""
    chance = random.Random(1)
    stored = [infohash(number) for number in chance.sample(range(torrents), min(torrents, LOOK_UPS))]

    async def check() -> None:
        known = {infohash(chance.randrange(torrents)) for _ in range(CHECKED // 2)}
        asked = [*known, *(chance.randbytes(20) for _ in range(CHECKED // 2))]
        assert len(await store.standing(asked, NOW)) == len(known)

    gets = [await timed(lambda each=each: store.get(each)) for each in stored]
    checks = [await timed(check) for _ in range(CHECKS)]
    return {
        "get_ms": median(gets),
        "get_99_ms": quantiles(gets, n=100)[-1],
        "check_ms": median(checks),
        "check_99_ms": quantiles(checks, n=100)[-1],
    }


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Return the milliseconds that this takes."""
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


async def measure_state(torrents: int) -> dict[str, float]:
    """Return the bytes of each part of a state with two failed infohashes for each torrent."""
    templates = [torrent(number) for number in range(min(DISTINCT, torrents))]
    with kept() as folder:
        return await state_bytes(folder, torrents, lambda number: numbered(templates, number), infohash, NOW)


def numbered(templates: Sequence[TorrentRecord], number: int) -> TorrentRecord:
    """Return the torrent of this number."""
    return replace(templates[number % len(templates)], infohash_v1=infohash(number))


def infohash(number: int) -> bytes:
    """Return the infohash of this number."""
    return hashlib.sha1(b"%d" % number).digest()


# ------------------------------------------------------------------------------------------------------------ reporting


def table(runs: dict[str, Figures], torrents: int) -> str:
    """Return the figures."""
    lines = [
        f"{torrents:,} torrents with 30 files each:",
        "",
        "| | stored/s | CPU us each | bytes each | look-up ms (99 %) | dedup check of 200, ms (99 %) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, at in runs.items():
        look_up = f"{at['get_ms']:.2f} ({at['get_99_ms']:.2f})"
        check = f"{at['check_ms']:.1f} ({at['check_99_ms']:.1f})"
        lines.append(f"| {name} | {at['rate']:,.0f} | {at['cpu_us']:,.0f} | {at['bytes']:,.0f} | {look_up} | {check} |")
    return "\n".join(lines)


def state_table(state: dict[str, float], torrents: int) -> str:
    """Return the bytes of each part."""
    lines = [f"| {torrents:,} torrents, {2 * torrents:,} failed infohashes | bytes per torrent |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {size:,.0f} |" for name, size in state.items())])


def verdicts(runs: dict[str, Figures], state: dict[str, float]) -> list[report.Verdict]:
    """Return the floors."""
    found: list[report.Verdict] = []
    if "sqlite" in runs:
        stored = runs["sqlite"]["bytes"]
        text = f"{stored:.0f} bytes per torrent in SQLite (at most {BYTES_MAX})"
        found.append(report.Verdict(stored <= BYTES_MAX, text))
    if state:
        text = f"{state['all']:.0f} bytes per torrent with two failures each (at most {STATE_BYTES_MAX})"
        found.append(report.Verdict(state["all"] <= STATE_BYTES_MAX, text))
    return found


if __name__ == "__main__":
    sys.exit(in_order(main))
