"""Where the durable frontier of one machine keeps its records: what it lends stays stored until it is acked.

A record keeps its place in the queue while it is lent, so a process that dies leaves nothing to repair: its leases are
void, and the next owner finds the records where they were. Of every host with work only the next few records are in
memory (`Window`); the rest is on the disk, so memory depends on active hosts and not on URLs. What is durable when, and
where rows live, is described in `memtable`; which fingerprints are new, in `open_segment`.

`add` is what a crawl does for every link: it writes its rows without a call in between.
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
from lycosa.frontier.lsm.lmdb import DELAYED, DELAYED_KEY, KINDS, META, SEEN_L1, table_number
from lycosa.frontier.lsm.memtable import Memtable, Writes
from lycosa.frontier.lsm.open_segment import OpenSegment, count, totals
from lycosa.frontier.lsm.rows import ARRIVAL, Counters, DeadRow, decode_counters, decode_record, encode
from lycosa.frontier.lsm.segments import SegmentRegistry
from lycosa.frontier.lsm.window import Window
from lycosa.http.core.model import Validators

BUFFER_MAX = 128
"""Records of one host that are read ahead, when few hosts are active."""

BUFFERED_MAX = 50_000
"""Records of all hosts together that are read ahead, as long as each host has its BUFFER_MIN."""

BUFFER_MIN = 4

WINDOWS_KEPT_MAX = 20_000
"""Windows that are kept although their hosts have nothing queued: most get work again soon."""

DELAYED_MAX = 1000
"""Sleepers that are read ahead."""

PROMOTE_MAX = 1000
"""Sleepers woken in one call."""

COUNTERS = b"counters"
META_TABLE, DELAYED_TABLE = table_number(META), table_number(DELAYED)


def ignore(step: str) -> None:
    """Do nothing with a step."""


class LmdbCrawlStore:
    """The part of `frontier.local.Shelf` that a crawl needs. The place of a record is its queue key."""

    def __init__(
        self,
        path: Path,
        *,
        sync: bool = False,
        on_step: Callable[[str], None] = ignore,
        expected: int = EXPECTED,
    ) -> None:
        self.path = path
        self._sync = sync
        self.tables = Memtable(path, sync=sync, before_checkpoint=self._note_added, on_step=on_step)
        value = self.tables.database.stored(META_TABLE, COUNTERS)
        self.counters = decode_counters(value) if value else Counters()
        self.counters.epoch += 1
        self.arrivals = self.counters.arrivals
        """The number of the last arrival; `counters` has that of the last commit."""
        self.known_hosts = HostTable(self.tables, self.counters)
        self.recall_host = self.known_hosts.recall
        self.remember_host = self.known_hosts.remember
        self.stretches = SegmentRegistry(self.tables, self.counters, self.known_hosts, sync=sync, expected=expected)
        self._live = self.stretches.live
        self._begin = self.stretches.begin
        self._lent: set[bytes] = set()
        self._sleepers = Window(DELAYED_TABLE, None, complete=False)
        self._dirty = True
        self._limit = BUFFER_MAX

    @property
    def epoch(self) -> int:
        """How often this state was opened; fences leases of earlier owners."""
        return self.counters.epoch

    def add(self, record: UrlRecord) -> float | None:
        """Store what is new."""
        segment = self._live.get(record.segment) or self._begin(record.segment)
        if segment is None or not segment.is_open:
            return None
        fingerprint = record.fingerprint
        if record.dont_filter:
            return self._add_unseen(segment, record)
        tables = self.tables
        active = tables.active
        queue, seen, known = segment.queue, segment.seen, active[segment.seen]
        if fingerprint in known:
            segment.maybes += 1
            return None
        for bits in segment.filter.bits:
            if fingerprint in bits:
                if segment.knows(fingerprint, tables):
                    return None
                break
        segment.admitted.append(fingerprint)
        if record.not_before > 0:
            return self._add_unseen(segment, record)
        self.arrivals = arrival = self.arrivals + 1
        window = segment.windows.get(record.host) or self._window(segment, record.host)
        key = window.key(record.priority, arrival)
        known[fingerprint] = mark = key[-ARRIVAL:]
        active[queue][key] = record
        tables.writes += (queue, key, record, seen, fingerprint, mark)
        heappush(window.heap, (key, record))
        window.count += 1
        segment.pending += 1
        segment.changed = True
        return segment.rank if segment.started else NOT_READY

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were added lately."""
        live = self.stretches.live.get(segment)
        return live.known(fingerprints, self.tables) if live else set()

    def take(self, host: str) -> tuple[bytes, UrlRecord, float | None] | None:
        """Take the host's next record out of the oldest segment that has one."""
        serving = self.stretches.serving
        for segment in serving:
            window = segment.windows.get(host)
            if window is None or not (window.is_ready or self._read_on(window)):
                continue
            key, record = heappop(window.heap)
            window.count -= 1
            self._lent.add(key)
            if window.complete and (window.heap or len(serving) == 1):
                return key, record, segment.rank if window.heap else None
            return key, record, self._next_rank(host)
        return None

    def peek(self, host: str) -> UrlRecord | None:
        """Look it up."""
        for segment in self.stretches.serving:
            window = segment.windows.get(host)
            if window is not None and (window.is_ready or self._read_on(window)):
                return window.heap[0][1]
        return None

    def put_back(self, place: bytes, record: UrlRecord) -> float:
        """Queue it under its old key. Return its rank."""
        self._lent.discard(place)
        segment = self.stretches.live.get(record.segment)
        if segment is None:
            return NOT_READY
        if record.attempts:
            self.tables.put(segment.queue, place, record)
        self._window(segment, record.host).put_back(place, record, self.tables)
        return segment.rank if segment.started else NOT_READY

    def finish(self, place: bytes, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        """Move the record from the queue to those that are done."""
        segment = self._leave_queue(place, record)
        if segment is None:
            return
        row = done_row(record, int.from_bytes(place[:4], "big"), reason, now, validators)
        self.tables.put(segment.done, place[-ARRIVAL:], row)
        count(segment.row.reasons, reason)

    def retry(self, place: bytes, record: UrlRecord) -> None:
        """Move the record from the queue to the sleepers."""
        segment = self._leave_queue(place, record)
        if segment is not None:
            arrival = int.from_bytes(place[-ARRIVAL:], "big")
            self._put_to_sleep(segment, record, arrival)

    def bury(self, place: bytes, record: UrlRecord, reason: str, now: float) -> None:
        """Move the record from the queue to the dead."""
        segment = self._leave_queue(place, record)
        if segment is None:
            return
        self.tables.put(segment.dead, place[-ARRIVAL:], DeadRow(record, reason, now))
        segment.row.dead += 1
        count(segment.row.dead_reasons, reason)

    def wake(self, now: float) -> Sequence[HostWork]:
        """Queue what is due, and serve the segments that start."""
        woken = list(self.stretches.start(now))
        while len(woken) < PROMOTE_MAX:
            due = self._next_sleeper()
            if due is None or due > now:
                break
            woken += self._wake_first()
        return woken

    def next_due(self) -> float | None:
        """When the first sleeper wakes, or a segment with work starts."""
        times = (self._next_sleeper(), self.stretches.next_start())
        return min((at for at in times if at is not None), default=None)

    def commit(self, positions: Mapping[str, int]) -> None:
        """Write the counters, then everything in one frame; after a checkpoint let go of what LMDB has."""
        counters = self.counters
        archived = self.stretches.archive_finished()
        if not (archived or self._dirty or self.tables.writes) and positions.items() <= counters.positions.items():
            return
        counters.positions.update(positions)
        counters.arrivals = self.arrivals
        self.stretches.write_changed()
        self.tables.put(META_TABLE, COUNTERS, msgspec.Raw(encode(counters)))
        self._dirty = False
        taken_over = self.tables.commit()
        if self.stretches.doomed:
            self.tables.settle()
            self.stretches.finish_dropping()
            taken_over = True
        if taken_over:
            self._trim()

    def positions(self) -> dict[str, int]:
        """Return those of the last commit."""
        return dict(self.counters.positions)

    def stats(self) -> FrontierStats:
        """Count over all segments that were not dropped."""
        return totals(list(self.stretches.live.values()), len(self._lent))

    def settle(self) -> None:
        """Commit, and have LMDB take over everything."""
        self._dirty = True
        self.commit({})
        self.tables.settle()
        self._trim()

    def close(self) -> None:
        """Release the store."""
        self.tables.close()

    def enqueue(self, segment: OpenSegment, record: UrlRecord, arrival: int) -> None:
        """Queue a record under a number of arrival."""
        window = self._window(segment, record.host)
        key = window.key(record.priority, arrival)
        self.tables.put(segment.queue, key, record)
        if not record.dont_filter:
            self.tables.put(segment.seen, record.fingerprint, key[-ARRIVAL:])
        window.put(key, record)
        segment.pending += 1
        segment.changed = True

    def _add_unseen(self, segment: OpenSegment, record: UrlRecord) -> float:
        """Store a record that is due later, or that is never known."""
        self.arrivals += 1
        if record.not_before > 0:
            self._put_to_sleep(segment, record, self.arrivals)
            return NOT_READY
        self.enqueue(segment, record, self.arrivals)
        return segment.rank if segment.started else NOT_READY

    def _leave_queue(self, key: bytes, record: UrlRecord) -> OpenSegment | None:
        """Delete a lent record from its queue. None when its segment was dropped."""
        self._lent.discard(key)
        segment = self._live.get(record.segment)
        if segment is None:
            return None
        tables, queue = self.tables, segment.queue
        rows = tables.active[queue]
        # Written since the last freeze, and for the first time: LMDB will never hear of it.
        if rows.pop(key, None) is None or record.attempts:
            rows[key] = None
        tables.writes += (queue, key, None)
        segment.pending -= 1
        segment.changed = True
        return segment

    def _put_to_sleep(self, segment: OpenSegment, record: UrlRecord, arrival: int) -> None:
        key = DELAYED_KEY.pack(math.ceil(record.not_before * 1000), arrival)
        self.tables.put(DELAYED_TABLE, key, record)
        if not record.dont_filter:
            self.tables.put(segment.seen, record.fingerprint, b"s" + key)
        self._sleepers.put(key, record)
        segment.row.sleeping += 1
        segment.changed = True

    def _next_sleeper(self) -> float | None:
        window, live = self._sleepers, self.stretches.live
        for _ in range(PROMOTE_MAX):
            if window.is_empty or not (window.is_ready or self._read_on(window)):
                return None
            key, record = window.heap[0]
            due: int = DELAYED_KEY.unpack(key)[0]
            if record.segment in live:
                return due / 1000
            heappop(window.heap)
            self.tables.put(DELAYED_TABLE, key, None)
        # Of those that were dropped there are more: they must not keep a crawl waiting that has nothing else.
        return due / 1000 if any(segment.row.sleeping for segment in live.values()) else None

    def _wake_first(self) -> list[HostWork]:
        key, record = heappop(self._sleepers.heap)
        self.tables.put(DELAYED_TABLE, key, None)
        segment = self.stretches.live.get(record.segment)
        if segment is None:  # dropped
            return []
        segment.row.sleeping -= 1
        self.enqueue(segment, record, DELAYED_KEY.unpack(key)[1])
        return [HostWork(record.host, segment.rank, 1)] if segment.started else []

    def _read_on(self, window: Window) -> bool:
        limit = DELAYED_MAX if window is self._sleepers else self._limit
        return window.first(self.tables, self._lent, decode_record, limit) is not None

    def _next_rank(self, host: str) -> float | None:
        for segment in self.stretches.serving:
            window = segment.windows.get(host)
            if window is not None and not window.is_empty and (window.is_ready or self._read_on(window)):
                return segment.rank
        return None

    def _window(self, segment: OpenSegment, host: str) -> Window:
        window = segment.windows.get(host)
        if window is None:
            # Without a window a host has nothing queued, but in a segment that was not looked through yet.
            complete = segment.started or not segment.pending
            window = segment.windows[host] = Window(segment.queue, self.known_hosts.id(host), complete=complete)
        return window

    def _trim(self) -> None:
        """Let go of what LMDB has now."""
        live = self.stretches.live.values()
        windows = sum(not window.is_empty for segment in live for window in segment.windows.values())
        many = sum(len(segment.windows) for segment in live) > WINDOWS_KEPT_MAX
        self._limit = max(BUFFER_MIN, min(BUFFER_MAX, BUFFERED_MAX // (windows + 1)))
        self._sleepers.trim(self.tables, DELAYED_MAX)
        for segment in live:
            for window in segment.windows.values():
                window.trim(self.tables, self._limit)
            if many:
                segment.windows = {host: window for host, window in segment.windows.items() if not window.is_empty}
            self.known_hosts.note_queued({host: w.count for host, w in segment.windows.items() if not w.complete})
            if segment.file.is_long(len(segment.filter)):
                segment.file.save(segment.filter, self.tables.applied)

    def _note_added(self, first: int, last: int, frozen: Writes) -> None:
        seen = {table // KINDS: list(rows) for table, rows in frozen.items() if table % KINDS == SEEN_L1}
        append_to_all(self.path, first - 1, last, seen, sync=self._sync)
