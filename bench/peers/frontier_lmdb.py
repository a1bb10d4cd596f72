"""Bare LMDB with the least Python that does the cycle: the floor under any frontier built on this store.

There are two tables, and one write transaction from commit to commit. Push: put the fingerprint unless it is there, and
the URL at the end of the queue. Lease: read on in the queue. Ack: delete the row, mark the fingerprint. This is as
crash-safe as our frontier, and has the same flags (no write map). It has no hosts and no politeness: first come, first
served; no tokens, no priorities, no counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from struct import Struct

import lmdb
from workload import Page

from lycosa.core.url import fingerprint

MAP_BYTES = 1 << 40
KEY = Struct(">Q")
QUEUED, DONE = b"q", b"d"


class Peer:
    """See `cycle.Peer`."""

    SAFE = True

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._folder = folder
        self._sync = sync
        self._lent = b""

    async def open(self) -> None:
        sync = self._sync
        self._env = lmdb.open(str(self._folder), map_size=MAP_BYTES, max_dbs=2, sync=sync, metasync=sync, lock=False)
        self._txn = self._env.begin(write=True)
        self._seen = self._env.open_db(b"seen", txn=self._txn)
        self._queue = self._env.open_db(b"queue", txn=self._txn)
        with self._txn.cursor(db=self._queue) as cursor:
            self._arrivals = KEY.unpack(cursor.key())[0] if cursor.last() else 0

    def prepare(self, pages: Sequence[Page]) -> list[tuple[bytes, bytes]]:
        keys = [KEY.pack(fingerprint("GET", url)) for url, _ in pages]
        return [(key, key + page.url.encode()) for key, page in zip(keys, pages, strict=True)]

    async def push(self, batch: list[tuple[bytes, bytes]]) -> int:
        put, seen, queue, pack = self._txn.put, self._seen, self._queue, KEY.pack
        before = arrivals = self._arrivals
        for key, row in batch:
            if put(key, QUEUED, overwrite=False, db=seen):
                arrivals += 1
                put(pack(arrivals), row, append=True, db=queue)
        self._arrivals = arrivals
        return arrivals - before

    async def lease(self, limit: int, now: float) -> list[tuple[bytes, bytes]]:
        with self._txn.cursor(db=self._queue) as cursor:
            if not cursor.set_range(self._lent):
                return []
            rows = list(islice(cursor, limit + 1))
        rows = rows[1:] if rows[0][0] == self._lent else rows[:limit]
        if rows:
            self._lent = rows[-1][0]
        return rows

    async def ack(self, leases: list[tuple[bytes, bytes]], now: float) -> None:
        delete, put, seen, queue = self._txn.delete, self._txn.put, self._seen, self._queue
        for key, row in leases:
            delete(key, db=queue)
            put(row[:8], DONE, db=seen)

    async def commit(self) -> None:
        self._txn.commit()
        self._txn = self._env.begin(write=True)

    async def close(self) -> None:
        self._txn.abort()
        self._env.close()
