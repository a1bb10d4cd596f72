"""Stores the records of an embedded frontier in LMDB.

A leased record keeps its row in the queue until its ack or nack. So nothing needs repair after a crash: the next owner
finds the records in the queue. Only the next few records of each host are in memory (`Window`), so memory use depends
on the number of active hosts, not of URLs.

`add` runs for every link of a crawl, so it writes its rows inline instead of calling other methods.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush
from pathlib import Path

import msgspec

from lycosa.core.bloom import EXPECTED
from lycosa.frontier.core.model import FrontierStats, UrlRecord
from lycosa.frontier.local import NOT_READY, HostWork
from lycosa.frontier.lsm.done_rows import done_row
from lycosa.frontier.lsm.filters import append_to_all
from lycosa.frontier.lsm.hosts import HostTable
from lycosa.frontier.lsm.infohash_rows import (
    HOST,
    arrival_of,
    decode_delayed,
    decode_queued,
    delayed_key,
    delayed_row,
    due_ms,
    mark_of,
    queued_row,
)
from lycosa.frontier.lsm.lmdb import DELAYED, KINDS, META, SEEN_L1, table_number
from lycosa.frontier.lsm.memtable import Memtable, Writes
from lycosa.frontier.lsm.open_segment import OpenSegment, count, totals
from lycosa.frontier.lsm.rows import ARRIVAL_BYTES, Counters, DeadRow, decode_counters, encode
from lycosa.frontier.lsm.segments import SegmentRegistry
from lycosa.frontier.lsm.window import Window
from lycosa.http.core.model import Validators

BUFFER_MAX = 128
"""Maximum number of records read ahead per host, while few hosts are active."""

BUFFERED_MAX = 50_000
"""Maximum number of records read ahead for all hosts together; but every host may have BUFFER_MIN of them."""

BUFFER_MIN = 4

WINDOWS_KEPT_MAX = 20_000
"""Empty windows stay in memory while there are at most this many windows: most of their hosts get work again soon."""

DELAYED_MAX = 1000
"""Maximum number of delayed records read ahead."""

PROMOTE_MAX = 1000
"""Maximum number of delayed records of started segments that one call of `promote_due` queues."""

FILTERS_DELETED_MAX = 16
"""Maximum number of archived segments whose filter files one checkpoint deletes, to keep the checkpoint short."""

COUNTERS = b"counters"
META_TABLE, DELAYED_TABLE = table_number(META), table_number(DELAYED)


def ignore(step: str) -> None:
    """The default `on_step`."""


class LmdbCrawlStore:
    """The part of `frontier.local.FrontierStore` that a crawl needs. `key` is the key of a queue row."""

    def __init__(
        self, path: Path, *, sync: bool = False, on_step: Callable[[str], None] = ignore, expected: int = EXPECTED
    ) -> None:
        self.path = path
        self._sync = sync
        self.memtable = Memtable(path, sync=sync, before_checkpoint=self._append_to_filters, on_step=on_step)
        value = self.memtable.database.get(META_TABLE, COUNTERS)
        self.counters = decode_counters(value) if value else Counters()
        self.counters.epoch += 1
        self.arrivals = self.counters.arrivals
        """The latest arrival number; `counters.arrivals` is its value at the last commit."""
        self.host_table = HostTable(self.memtable, self.counters)
        self.load_host = self.host_table.load
        self.save_host = self.host_table.save
        self.registry = SegmentRegistry(self.memtable, self.counters, self.host_table, sync=sync, expected=expected)
        self._live = self.registry.live
        self._create_segment = self.registry.create
        self._leased: set[bytes] = set()
        self._delayed = Window(DELAYED_TABLE, None, complete=False)
        self._dirty = True
        self._limit = BUFFER_MAX
        self.run_at = math.inf

    def add(self, record: UrlRecord) -> float | None:
        segment = self._live.get(record.segment) or self._create_segment(record.segment)
        if segment is None or not segment.is_open:
            return None
        fingerprint = record.fingerprint
        if record.dont_filter:
            return self._add_new(segment, record)
        memtable = self.memtable
        active = memtable.active
        queue, seen, known = segment.queue, segment.seen, active[segment.seen]
        if fingerprint in known:
            segment.maybes += 1
            return None
        for bits in segment.filter.bits:
            if fingerprint in bits:
                if segment.knows(fingerprint, memtable):
                    return None
                break
        segment.admitted.append(fingerprint)
        if record.not_before > 0:
            return self._add_new(segment, record)
        self.arrivals = arrival = self.arrivals + 1
        window = segment.windows.get(record.host) or self._window(segment, record.host)
        key = window.key(record.priority, arrival)
        known[fingerprint] = mark = key[-ARRIVAL_BYTES:]
        row = queued_row(record) if record.host == HOST else record
        active[queue][key] = row
        memtable.writes += (queue, key, row, seen, fingerprint, mark)
        heappush(window.heap, (key, record))
        window.count += 1
        segment.pending += 1
        segment.changed = True
        return segment.rank if segment.started else NOT_READY

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        live = self.registry.live.get(segment)
        return live.known(fingerprints, self.memtable) if live else set()

    def stored(self, segment: str, prefix: bytes) -> list[bytes]:
        live = self.registry.live.get(segment)
        return self.memtable.levels.keys(live.seen, prefix) if live else []

    def take(self, host: str) -> tuple[bytes, UrlRecord, float | None] | None:
        serving = self.registry.serving
        for segment in serving:
            window = segment.windows.get(host)
            if window is None or not (window.is_ready or self._read_ahead(window)):
                continue
            key, record = heappop(window.heap)
            window.count -= 1
            self._leased.add(key)
            if window.complete and (window.heap or len(serving) == 1):
                return key, record, segment.rank if window.heap else None
            return key, record, self._next_rank(host)
        return None

    def peek(self, host: str) -> UrlRecord | None:
        for segment in self.registry.serving:
            window = segment.windows.get(host)
            if window is not None and (window.is_ready or self._read_ahead(window)):
                return window.heap[0][1]
        return None

    def put_back(self, key: bytes, record: UrlRecord) -> float:
        self._leased.discard(key)
        segment = self.registry.live.get(record.segment)
        if segment is None:
            return NOT_READY
        if record.attempts:  # an expired lease may have increased the attempts
            self.memtable.put(segment.queue, key, record)
        self._window(segment, record.host).put_back(key, record, self.memtable)
        return segment.rank if segment.started else NOT_READY

    def mark_done(self, key: bytes, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        segment = self._dequeue(key, record)
        if segment is None:
            return
        row = done_row(record, int.from_bytes(key[:4], "big"), reason, now, validators)
        self.memtable.put(segment.done, key[-ARRIVAL_BYTES:], row)
        count(segment.row.reasons, reason)

    def mark_retry(self, key: bytes, record: UrlRecord) -> None:
        segment = self._dequeue(key, record)
        if segment is not None:
            arrival = int.from_bytes(key[-ARRIVAL_BYTES:], "big")
            self._delay(segment, record, arrival)

    def mark_dead(self, key: bytes, record: UrlRecord, reason: str, now: float) -> None:
        segment = self._dequeue(key, record)
        if segment is None:
            return
        self.memtable.put(segment.dead, key[-ARRIVAL_BYTES:], DeadRow(record, reason, now))
        segment.row.dead += 1
        count(segment.row.dead_reasons, reason)

    def promote_due(self, now: float) -> Sequence[HostWork]:
        work = list(self.registry.start_due(now))
        while len(work) < PROMOTE_MAX:
            due = self._next_delayed()
            if due is None or due > now:
                break
            work += self._promote_first()
        return work

    def next_due(self) -> float | None:
        times = (self._next_delayed(), self.registry.next_start())
        return min((at for at in times if at is not None), default=None)

    def commit(self, positions: Mapping[str, int]) -> None:
        counters = self.counters
        archived = self.registry.archive_finished(self.run_at)
        if not (archived or self._dirty or self.memtable.writes) and positions.items() <= counters.positions.items():
            return
        counters.positions.update(positions)
        counters.arrivals = self.arrivals
        self.registry.write_changed()
        self.memtable.put(META_TABLE, COUNTERS, msgspec.Raw(encode(counters)))
        self._dirty = False
        checkpoint_done = self.memtable.commit()
        if self.registry.to_delete:
            self.memtable.checkpoint()
            self.registry.delete_dropped()
            checkpoint_done = True
        if checkpoint_done:
            self._trim()

    def positions(self) -> dict[str, int]:
        return dict(self.counters.positions)

    def stats(self) -> FrontierStats:
        return totals(list(self.registry.live.values()), len(self._leased))

    def checkpoint(self) -> None:
        self._dirty = True
        self.commit({})
        self.memtable.checkpoint()
        self._trim()

    def close(self) -> None:
        self.memtable.close()

    def enqueue(self, segment: OpenSegment, record: UrlRecord, arrival: int) -> None:
        window = self._window(segment, record.host)
        key = window.key(record.priority, arrival)
        self.memtable.put(segment.queue, key, queued_row(record))
        if not record.dont_filter:
            self.memtable.put(segment.seen, record.fingerprint, key[-ARRIVAL_BYTES:])
        window.put(key, record)
        segment.pending += 1
        segment.changed = True

    def _add_new(self, segment: OpenSegment, record: UrlRecord) -> float:
        """The record is delayed or has `dont_filter`."""
        self.arrivals += 1
        if record.not_before > 0:
            self._delay(segment, record, self.arrivals)
            return NOT_READY
        self.enqueue(segment, record, self.arrivals)
        return segment.rank if segment.started else NOT_READY

    def _dequeue(self, key: bytes, record: UrlRecord) -> OpenSegment | None:
        """Return the segment of the record; None if the segment was dropped."""
        self._leased.discard(key)
        segment = self._live.get(record.segment)
        if segment is None:
            return None
        memtable, queue = self.memtable, segment.queue
        rows = memtable.active[queue]
        # A row first written since the last freeze is only in `rows`; any other row must be deleted in LMDB. The row of
        # a record with attempts may have been rewritten: it may be in `rows` and in LMDB.
        if rows.pop(key, None) is None or record.attempts:
            rows[key] = None
        memtable.writes += (queue, key, None)
        segment.pending -= 1
        segment.changed = True
        return segment

    def _delay(self, segment: OpenSegment, record: UrlRecord, arrival: int) -> None:
        key = delayed_key(record.not_before, arrival)
        self.memtable.put(DELAYED_TABLE, key, delayed_row(record))
        if not record.dont_filter:
            self.memtable.put(segment.seen, record.fingerprint, mark_of(key))
        self._delayed.put(key, record)
        segment.row.delayed += 1
        segment.changed = True

    def _next_delayed(self) -> float | None:
        window, live = self._delayed, self.registry.live
        for _ in range(PROMOTE_MAX):
            if window.is_empty or not (window.is_ready or self._read_ahead(window)):
                return None
            key, record = window.heap[0]
            due = due_ms(key)
            if record.segment in live:
                return due / 1000
            heappop(window.heap)  # its segment was dropped
            self.memtable.put(DELAYED_TABLE, key, None)
        # All these records belonged to dropped segments. If no live segment has delayed records, then the remaining
        # ones belong to dropped segments, too: do not wait for them.
        return due / 1000 if any(segment.row.delayed for segment in live.values()) else None

    def _promote_first(self) -> list[HostWork]:
        key, record = heappop(self._delayed.heap)
        self.memtable.put(DELAYED_TABLE, key, None)
        segment = self.registry.live.get(record.segment)
        if segment is None:  # dropped
            return []
        segment.row.delayed -= 1
        self.enqueue(segment, record, arrival_of(key))
        return [HostWork(record.host, segment.rank, 1)] if segment.started else []

    def _read_ahead(self, window: Window) -> bool:
        if window is self._delayed:
            return window.first(self.memtable, self._leased, decode_delayed, DELAYED_MAX) is not None
        return window.first(self.memtable, self._leased, decode_queued, self._limit) is not None

    def _next_rank(self, host: str) -> float | None:
        for segment in self.registry.serving:
            window = segment.windows.get(host)
            if window is not None and not window.is_empty and (window.is_ready or self._read_ahead(window)):
                return segment.rank
        return None

    def _window(self, segment: OpenSegment, host: str) -> Window:
        window = segment.windows.get(host)
        if window is None:
            # A host without a window has nothing queued, except in a segment whose queues were not scanned yet.
            complete = segment.started or not segment.pending
            window = segment.windows[host] = Window(segment.queue, self.host_table.id(host), complete=complete)
        return window

    def _trim(self) -> None:
        """Release the memory of rows that are now in LMDB."""
        live = self.registry.live.values()
        windows = sum(not window.is_empty for segment in live for window in segment.windows.values())
        many = sum(len(segment.windows) for segment in live) > WINDOWS_KEPT_MAX
        self._limit = max(BUFFER_MIN, min(BUFFER_MAX, BUFFERED_MAX // (windows + 1)))
        self._delayed.trim(self.memtable, DELAYED_MAX)
        for segment in live:
            for window in segment.windows.values():
                window.trim(self.memtable, self._limit)
            if many:
                segment.windows = {host: window for host, window in segment.windows.items() if not window.is_empty}
            self.host_table.save_queued({host: w.count for host, w in segment.windows.items() if not w.complete})
            if segment.is_open and segment.file.is_long(len(segment.filter)):
                segment.file.save(segment.filter, self.memtable.applied)
        for segment in [segment for segment in live if segment.has_unused_file][:FILTERS_DELETED_MAX]:
            segment.file.delete()
            segment.has_unused_file = False

    def _append_to_filters(self, first: int, last: int, frozen: Writes) -> None:
        added = {table // KINDS: list(rows) for table, rows in frozen.items() if table % KINDS == SEEN_L1}
        append_to_all(self.path, first - 1, last, added, sync=self._sync)
