"""What of an ordered table is in memory: its first rows, and those that LMDB does not have yet.

One window looks at the queue of one host, another at everything that sleeps. Up to `horizon` everything is in memory,
or lent; behind it lie rows that are only in LMDB, unless the window is `complete`. So the first row of the heap may be
taken when it lies before the horizon; otherwise the window reads on first. After a checkpoint LMDB has what only memory
had, and `trim` lets go of it: memory depends on how many windows there are, not on how many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from heapq import heapify, heappush

from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.lsm.lmdb import PRIORITY_ZERO, QUEUE_KEY
from lycosa.frontier.lsm.memtable import Memtable


class Window:
    """The window on the queue of one host in a table, or on the whole of it when the host is None.

    `count` is how many rows there are, about.
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
        """Whether the first row is the first of the heap, without reading on."""
        return bool(self.heap) and (self.complete or self.heap[0][0] <= self.horizon)

    @property
    def is_empty(self) -> bool:
        """Whether there is certainly nothing."""
        return self.complete and not self.heap

    def key(self, priority: int, arrival: int) -> bytes:
        """Return where a record of the host is queued: best priority first, then first come, first served."""
        rank = PRIORITY_ZERO
        if priority:
            rank -= max(1 - PRIORITY_ZERO, min(PRIORITY_ZERO, priority))
        return QUEUE_KEY.pack(self.host, rank, arrival)

    def put(self, key: bytes, record: UrlRecord) -> None:
        """A row was written."""
        heappush(self.heap, (key, record))
        self.count += 1

    def put_back(self, key: bytes, record: UrlRecord, tables: Memtable) -> None:
        """A row is lent no more. One behind the horizon that LMDB has is found there when the window reads on."""
        if self.complete or key <= self.horizon or tables.is_changed(self.table, key):
            heappush(self.heap, (key, record))
        self.count += 1

    def first(
        self, tables: Memtable, lent: Container[bytes], decode: Callable[[bytes], UrlRecord], limit: int
    ) -> tuple[bytes, UrlRecord] | None:
        """Return the first row, reading on if need be."""
        heap = self.heap
        while not self.complete and not (heap and heap[0][0] <= self.horizon):
            self._read_on(tables, lent, decode, limit)
        if heap:
            return heap[0]
        self.count = 0
        return None

    def trim(self, tables: Memtable, limit: int) -> None:
        """LMDB has taken over: keep the first rows, and what changed since."""
        if self.complete:
            if len(self.heap) <= 2 * limit:
                return
            self.heap.sort()
            self.horizon = self.heap[limit - 1][0]
            self.complete = False
        changed = tables.active.get(self.table, {})
        kept = [entry for entry in self.heap if entry[0] <= self.horizon or entry[0] in changed]
        if len(kept) < len(self.heap):
            heapify(kept)
            self.heap = kept

    def _read_on(
        self, tables: Memtable, lent: Container[bytes], decode: Callable[[bytes], UrlRecord], limit: int
    ) -> None:
        rows = tables.database.behind(self.table, self.horizon, self.prefix, limit)
        self.heap += [
            (key, decode(value)) for key, value in rows if key not in lent and not tables.is_changed(self.table, key)
        ]
        heapify(self.heap)
        self.complete = len(rows) < limit
        if rows:
            self.horizon = rows[-1][0]
