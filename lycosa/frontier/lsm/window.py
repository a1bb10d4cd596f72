"""The part of an ordered table that is in memory: its first rows, and rows that LMDB does not have yet.

There is a window on the queue of each host in each segment, and one on the delayed records.

All rows up to `horizon` are in memory or leased. Beyond the horizon, LMDB may have rows that are not in memory, unless
the window is `complete`. So if the first row of the heap is within the horizon, it is the first row of the table;
otherwise the window must read ahead. After a checkpoint, LMDB has all rows, and `trim` removes those beyond the horizon
from memory. So memory use depends on the number of windows, not of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heapify, heappush

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.lsm.lmdb import PRIORITY_ZERO, QUEUE_KEY
from lycosa.frontier.lsm.memtable import Memtable


class Window:
    """A window on the queue of the host with the id `host`; on the whole table if `host` is None.

    `count` is the approximate number of rows.
    """

    __slots__ = ("complete", "count", "heap", "horizon", "host", "prefix", "table")

    def __init__(self, table: int, host: int | None, *, complete: bool, count: int = 0) -> None:
        self.table = table
        self.host = host or 0
        self.prefix = b"" if host is None else host.to_bytes(4, "big")
        self.heap: list[tuple[bytes, UrlRecord]] = []
        self.horizon = self.prefix
        self.complete = complete
        self.count = count

    @property
    def is_ready(self) -> bool:
        """Whether the first row of the heap is the first row of the table."""
        return bool(self.heap) and (self.complete or self.heap[0][0] <= self.horizon)

    @property
    def is_empty(self) -> bool:
        return self.complete and not self.heap

    def key(self, priority: int, arrival: int) -> bytes:
        """Highest priority first, then first come, first served."""
        rank = PRIORITY_ZERO
        if priority:
            rank -= max(1 - PRIORITY_ZERO, min(PRIORITY_ZERO, priority))
        return QUEUE_KEY.pack(self.host, rank, arrival)

    def put(self, key: bytes, record: UrlRecord) -> None:
        """Add a row that was just written to the memtable."""
        heappush(self.heap, (key, record))
        self.count += 1

    def put_back(self, key: bytes, record: UrlRecord, memtable: Memtable) -> None:
        """Add a row that is no longer leased."""
        # A row beyond the horizon is in LMDB unless it changed: reading ahead will find it.
        if self.complete or key <= self.horizon or memtable.is_changed(self.table, key):
            heappush(self.heap, (key, record))
        self.count += 1

    def first(
        self, memtable: Memtable, leased: Container[bytes], decode: Callable[[bytes, bytes], UrlRecord], limit: int
    ) -> tuple[bytes, UrlRecord] | None:
        """Return the first row, reading ahead if needed."""
        heap = self.heap
        while not self.complete and not (heap and heap[0][0] <= self.horizon):
            self._read_ahead(memtable, leased, decode, limit)
        if heap:
            return heap[0]
        self.count = 0
        return None

    def trim(self, memtable: Memtable, limit: int) -> None:
        """Keep about the first `limit` rows, and the rows changed since the last checkpoint."""
        if self.complete:
            if len(self.heap) <= 2 * limit:
                return
            self.heap.sort()
            self.horizon = self.heap[limit - 1][0]
            self.complete = False
        changed = memtable.active.get(self.table, {})
        kept = [entry for entry in self.heap if entry[0] <= self.horizon or entry[0] in changed]
        if len(kept) < len(self.heap):
            heapify(kept)
            self.heap = kept

    def _read_ahead(
        self, memtable: Memtable, leased: Container[bytes], decode: Callable[[bytes, bytes], UrlRecord], limit: int
    ) -> None:
        rows = memtable.database.rows_after(self.table, self.horizon, self.prefix, limit)
        self.heap += [
            (key, decode(key, value))
            for key, value in rows
            if key not in leased and not memtable.is_changed(self.table, key)
        ]
        heapify(self.heap)
        self.complete = len(rows) < limit
        if rows:
            self.horizon = rows[-1][0]
