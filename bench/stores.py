"""Which embedded store for the frontier? Measure LMDB, SQLite and RocksDB with the frontier's own access pattern.

    python bench/stores.py [--urls N ...] [--pages N]

For each page, one record is taken out of the queue, its state is updated, and 27 link fingerprints are looked up, of
which about one is new and is queued with a 150-byte record. Keys are 8 random bytes, the links of a page are drawn
evenly from all URLs (the worst case for a cache). A commit follows every 100 pages. Every run is a fresh process and a
fresh folder; `--urls` is how many URLs the store holds before the clock starts. The result is a table in Markdown: own
memory is the anonymous memory at the end, peak RSS counts mapped file pages too; both without the memory that the
process had before it opened the store.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import lmdb
from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch, WriteOptions

LINKS_PER_PAGE = 27
NEW_PER_PAGE = 1.08
PAGES_PER_COMMIT = 100
FILL_BATCH = 2_000
CACHE_BYTES = 64 * 2**20
MAP_BYTES = 16 * 2**30
QUEUED, DONE = b"q", b"d"


class Store(Protocol):
    """What the frontier needs: see the module docstring."""

    def __init__(self, folder: Path, *, sync: bool) -> None: ...
    def page(self, done: int, links: Sequence[int]) -> list[int]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


def key(fingerprint: int) -> bytes:
    return fingerprint.to_bytes(8, "big")


def record(fingerprint: int) -> bytes:
    """Return 150 bytes like those of a stored URL: all records are different, but have much in common."""
    url = b"https://www.example.org/library/%016x/reference.html" % fingerprint
    return (url + b" https www.example.org 443 segment depth priority attempts token").ljust(150, b".")


class Lmdb:
    """One write transaction, open between two commits. No write map: see docs/decisions/0001."""

    def __init__(self, folder: Path, *, sync: bool, writemap: bool = False) -> None:
        self.env = lmdb.open(
            str(folder), max_dbs=2, map_size=MAP_BYTES, sync=sync, metasync=sync, writemap=writemap, map_async=writemap
        )
        self.seen = self.env.open_db(b"seen")
        self.records = self.env.open_db(b"records")
        self.txn = self.env.begin(write=True)

    def page(self, done: int, links: Sequence[int]) -> list[int]:
        txn, seen, records = self.txn, self.seen, self.records
        if done:
            taken = key(done)
            txn.delete(taken, db=records)
            txn.put(taken, DONE, db=seen)
        new = [link for link in links if txn.put(key(link), QUEUED, overwrite=False, db=seen)]
        for link in new:
            txn.put(key(link), record(link), db=records)
        return new

    def commit(self) -> None:
        self.txn.commit()
        self.txn = self.env.begin(write=True)

    def close(self) -> None:
        self.txn.commit()
        self.env.close()


class LmdbWritemap(Lmdb):
    def __init__(self, folder: Path, *, sync: bool) -> None:
        super().__init__(folder, sync=sync, writemap=True)


class Sqlite:
    """WAL, the key is the row id (faster here than WITHOUT ROWID with a blob), one query for the links of a page."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self.db = sqlite3.connect(folder / "store.db", isolation_level=None, cached_statements=32)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute(f"PRAGMA synchronous={'FULL' if sync else 'OFF'}")
        self.db.execute(f"PRAGMA cache_size=-{CACHE_BYTES // 1024}")
        self.db.execute("CREATE TABLE seen (fp INTEGER PRIMARY KEY, state BLOB)")
        self.db.execute("CREATE TABLE records (fp INTEGER PRIMARY KEY, record BLOB)")
        self.db.execute("BEGIN")
        self.known = f"SELECT fp FROM seen WHERE fp IN ({','.join('?' * LINKS_PER_PAGE)})"

    def page(self, done: int, links: Sequence[int]) -> list[int]:
        execute = self.db.execute
        if done:
            execute("DELETE FROM records WHERE fp = ?", (done - 2**63,))
            execute("UPDATE seen SET state = ? WHERE fp = ?", (DONE, done - 2**63))
        signed = [link - 2**63 for link in links]
        known = {row[0] for row in execute(self.known, signed)} if done else set()
        new = [(fp, QUEUED) for fp in set(signed) if fp not in known]
        self.db.executemany("INSERT INTO seen VALUES (?, ?)", new)
        self.db.executemany("INSERT INTO records VALUES (?, ?)", [(fp, record(fp + 2**63)) for fp, _ in new])
        return [fp + 2**63 for fp, _ in new]

    def commit(self) -> None:
        self.db.execute("COMMIT")
        self.db.execute("BEGIN")

    def close(self) -> None:
        self.db.execute("COMMIT")
        self.db.close()


class Rocks:
    """One write batch between two commits, with a set of its keys; batched gets, Bloom filter."""

    def __init__(self, folder: Path, *, sync: bool) -> None:
        blocks = BlockBasedOptions()
        blocks.set_block_cache(Cache(CACHE_BYTES))
        blocks.set_bloom_filter(10, block_based=False)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_block_based_table_factory(blocks)
        options.set_write_buffer_size(CACHE_BYTES)
        self.db = Rdict(str(folder), options)
        self.write_options = WriteOptions()
        self.write_options.sync = sync
        self.pending: set[int] = set()
        self.batch = WriteBatch(raw_mode=True)

    def page(self, done: int, links: Sequence[int]) -> list[int]:
        if done:
            self.batch.delete(b"r" + key(done))
            self.batch.put(b"s" + key(done), DONE)
        found = self.db[[b"s" + key(link) for link in links]] if done else [None] * len(links)
        new = [link for link, state in zip(links, found, strict=True) if state is None and link not in self.pending]
        for link in new:
            self.batch.put(b"s" + key(link), QUEUED)
            self.batch.put(b"r" + key(link), record(link))
        self.pending.update(new)
        return new

    def commit(self) -> None:
        self.db.write(self.batch, self.write_options)
        self.batch = WriteBatch(raw_mode=True)
        self.pending.clear()

    def close(self) -> None:
        self.commit()
        self.db.close()


STORES: dict[str, type[Store]] = {"LMDB": Lmdb, "LMDB, write map": LmdbWritemap, "SQLite": Sqlite, "RocksDB": Rocks}


def memory_mb(field: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


def disk_mb(folder: Path) -> float:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*")) / 2**20


def plan_pages(known: Sequence[int], pages: int, chance: random.Random) -> list[tuple[int, list[int]]]:
    """Draw the done URL and the links of every page."""
    plan = []
    for done in chance.sample(known, pages):
        new = int(NEW_PER_PAGE + chance.random())
        links = [chance.getrandbits(64) | 1 for _ in range(new)]
        plan.append((done, links + chance.choices(known, k=LINKS_PER_PAGE - new)))
    return plan


def crawl(store: Store, plan: list[tuple[int, list[int]]]) -> None:
    for number, (done, links) in enumerate(plan, 1):
        store.page(done, links)
        if number % PAGES_PER_COMMIT == 0:
            store.commit()


def measure(name: str, urls: int, pages: int, *, sync: bool) -> dict[str, float]:
    """Run one store in this process; return the figures of one row. Memory is the growth of the process."""
    chance = random.Random(7)
    known = array("Q", (chance.getrandbits(64) | 1 for _ in range(urls)))
    plan = plan_pages(known, pages, chance)
    anonymous, resident = memory_mb("RssAnon"), memory_mb("VmRSS")
    folder = Path(tempfile.mkdtemp(prefix="lycosa-stores-", dir=Path.cwd()))
    try:
        store = STORES[name](folder, sync=sync)
        for start in range(0, urls, FILL_BATCH):
            store.page(0, known[start : start + FILL_BATCH])
            store.commit()
        wall, cpu = time.perf_counter(), time.process_time()
        crawl(store, plan)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        memory = {"own_mb": memory_mb("RssAnon") - anonymous, "peak_mb": memory_mb("VmHWM") - resident}
        store.close()
        return {"us": wall / pages * 1e6, "cpu_us": cpu / pages * 1e6, "disk_mb": disk_mb(folder), **memory}
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--urls", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--pages", type=int, default=20_000)
    parser.add_argument("--one", nargs=2, metavar=("STORE", "SYNC"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, sync = options.one
        print(json.dumps(measure(name, options.urls[0], options.pages, sync=sync == "sync")))
        return
    print("| store | URLs | fsync per commit | us/page | CPU us/page | disk MB | own memory MB | peak RSS MB |")
    print("|---|---|---|---|---|---|---|---|")
    for urls in options.urls:
        for sync in ("no", "sync"):
            for name in STORES if sync == "no" else [name for name in STORES if name != "LMDB, write map"]:
                size = ["--urls", str(urls), "--pages", str(options.pages)]
                command = [sys.executable, __file__, *size, "--one", name, sync]
                row = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                cells = [row[each] for each in ("us", "cpu_us", "disk_mb", "own_mb", "peak_mb")]
                yes = "yes" if sync == "sync" else "no"
                print(
                    f"| {name} | {urls:,} | {yes} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |", flush=True
                )


if __name__ == "__main__":
    main()
