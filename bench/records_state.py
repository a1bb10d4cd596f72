"""A state folder as `lycosa dht crawl` leaves it, and the bytes of each of its tables. `records.py` uses this.

Of every three infohashes, one is stored in the end, and two fail each of their tries. The infohashes arrive as in a
crawl of some days, and failed ones are tried again when they are due; half of the stored ones fail their first try. The
folder is measured while the crawl is open, with its logs.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
from running import progress

from lycosa.app.dht_state import TORRENTS, RecordsLocation, open_hash_frontier, open_records
from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import infohash_of, to_record
from lycosa.dht.crawler.core.retries import retry_at
from lycosa.frontier.core.model import Lease
from lycosa.frontier.lsm import lmdb as tables
from lycosa.frontier.ports import Frontier
from lycosa.storage.core.torrent_record import Popularity, TorrentRecord
from lycosa.storage.ports import RecordStore

BATCH = 250
SECONDS = 75
"""Time between two batches: 600 infohashes a minute."""
FAILED_AGAIN = range(3, 8)
"""Numbers of earlier failures, so that the next try follows after 6 hours to 30 days."""
PAGE_BYTES = 4096
QUEUE_TABLES = {getattr(tables, name): name for name in ["QUEUE", "SEEN_L1", "SEEN_L0A", "SEEN_L0B", "DONE", "DELAYED"]}


class StateCrawl:
    """The crawl. `make` returns the torrent with a number; the torrents whose numbers are divisible by 3 are stored."""

    def __init__(self, queue: Frontier, store: RecordStore, make: Callable[[int], TorrentRecord], now: float) -> None:
        self._queue, self._store, self._make, self.now = queue, store, make, now
        self._chance = random.Random(19)
        self._numbers: dict[bytes, int] = {}
        """Numbers of the infohashes that are still to be stored."""
        self._stored_later = Counter[bytes]()

    async def discover(self, infohashes: list[tuple[int, bytes]]) -> None:
        """Queue these infohashes, then try all that are due."""
        self._numbers |= {infohash: number for number, infohash in infohashes if number % 3 == 0}
        await self._queue.push([to_record(infohash, 0, self.now) for _, infohash in infohashes])
        await self.try_due()
        await self._queue.commit({"sweep": infohashes[-1][0]})
        self.now += SECONDS

    async def try_due(self) -> None:
        """Try all infohashes that are due."""
        while leases := await self._queue.lease(BATCH, self.now):
            fetched = [each for each in leases if self._is_fetched(each)]
            for lease in leases:
                if lease not in fetched:
                    await self._fail(lease)
            await self._keep(fetched)

    def _is_fetched(self, lease: Lease) -> bool:
        return infohash_of(lease.record) in self._numbers and (
            lease.record.attempts > 0 or self._chance.random() < 1 / 2
        )

    async def _fail(self, lease: Lease) -> None:
        earlier = 0 if infohash_of(lease.record) in self._numbers else self._chance.choice(FAILED_AGAIN)
        at = retry_at(earlier, self.now, self._chance.random(), CrawlOutcome.NO_PEERS)
        await self._queue.nack(lease, "no_peers", at, self.now)

    async def _keep(self, leases: list[Lease]) -> None:
        records = [self._make(self._numbers.pop(infohash_of(each.record))) for each in leases]
        await self._store.put(records, self.now)
        counts = [Popularity(each.keys[0], int(self._chance.expovariate(0.1)), 3, int(self.now)) for each in records]
        await self._store.set_popularity(counts)
        for lease in leases:
            await self._queue.ack(lease, "fetched", (), self.now)


async def state_bytes(
    folder: Path, torrents: int, make: Callable[[int], TorrentRecord], infohash: Callable[[int], bytes], now: float
) -> dict[str, float]:
    """Return the bytes of each part of a state, for each of its torrents."""
    async with (
        open_hash_frontier(folder, now) as queue,
        open_records(RecordsLocation(str(folder), None), create=True) as store,
    ):
        crawl = StateCrawl(queue, store, make, now)
        for start in range(0, 3 * torrents, BATCH):
            await crawl.discover([(each, infohash(each)) for each in range(start, min(start + BATCH, 3 * torrents))])
            if start // BATCH % 200 == 0:
                progress(f"state: {start:,} infohashes")
        crawl.now += 3600
        await crawl.try_due()
        await queue.commit({})
        stored = (await queue.stats()).reasons["fetched"]
        assert stored == torrents, f"{stored:,} stored"
        files = _file_bytes(folder)
    found = {"torrents.sqlite: " + name: size for name, size in _sqlite_bytes(folder / TORRENTS).items()}
    found |= {"queue: " + name: size for name, size in _queue_bytes(folder).items()}
    databases = sum(size for name, size in files.items() if name in {TORRENTS, tables.DATA})
    found["unused pages of both"] = databases - sum(found.values())
    for kind in ("journal", "filter", TORRENTS + "-"):
        found[f"files {kind}*"] = sum(size for name, size in files.items() if name.startswith(kind))
    found["all"] = sum(files.values())
    return {name: size / torrents for name, size in found.items()}


def _file_bytes(folder: Path) -> Counter[str]:
    """Return the space that files take, by name."""
    return Counter({each.name: each.stat().st_blocks * 512 for each in folder.rglob("*") if each.is_file()})


def _sqlite_bytes(path: Path) -> dict[str, int]:
    with sqlite3.connect(path) as database:
        return dict(database.execute("SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC LIMIT 4"))


def _queue_bytes(folder: Path) -> dict[str, int]:
    path = next(folder.rglob(tables.DATA)).parent
    found: dict[str, int] = {}
    options: dict[str, Any] = {"readonly": True, "lock": False, "max_dbs": 1000, "map_size": tables.MAP_BYTES}
    with lmdb.open(str(path), **options) as database, database.begin() as transaction:
        for name in list(transaction.cursor().iternext(values=False)):
            stat = transaction.stat(database.open_db(name, txn=transaction, create=False))
            kind = QUEUE_TABLES.get(int(name) % tables.KINDS, "others")
            pages = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]
            found[kind] = found.get(kind, 0) + pages * PAGE_BYTES
    return found
