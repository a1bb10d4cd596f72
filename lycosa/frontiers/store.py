"""Where the durable frontier of one machine keeps its records: what it lends stays stored until it is acked.

A record keeps its place in the queue while it is lent, so a process that dies leaves nothing to repair: its leases are
void, and the next owner finds the records where they were. Of every host with work only the next few records are in
memory (`Window`); the rest is on the disk, so memory depends on active hosts and not on URLs. What is durable when, and
where rows live, is told in `tables`; which fingerprints are new, in `stretch`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from struct import Struct

import msgspec

from lycosa.core.bloom import EXPECTED
from lycosa.core.errors import StorageError
from lycosa.core.model import FrontierStats, SegmentState, UrlRecord, Validators
from lycosa.core.segments import order
from lycosa.frontiers.filters import append_to_all
from lycosa.frontiers.hosts import Hosts
from lycosa.frontiers.local import NOT_YET, HostMemory, HostWork
from lycosa.frontiers.rows import (
    ARRIVAL,
    PRIORITY_ZERO,
    Counters,
    DeadRow,
    SegmentRow,
    decode_counters,
    decode_dead,
    decode_record,
    decode_segment,
    done_row,
    encode,
)
from lycosa.frontiers.stretch import Stretch, count, delete_filters, stretches
from lycosa.frontiers.tables import (
    KINDS,
    META,
    OF_SEGMENTS,
    QUEUE_KEY,
    SEEN,
    SEGMENTS_MAX,
    SLEEP,
    SLEEP_KEY,
    Tables,
    Writes,
    number,
)
from lycosa.frontiers.window import Window

BUFFER_MAX = 128
"""Records of one host that are read ahead, when few hosts are active."""

BUFFERED_MAX = 50_000
"""Records of all hosts together that are read ahead, as long as each host has its BUFFER_MIN."""

BUFFER_MIN = 4

SLEEPERS_MAX = 1000
"""Sleepers that are read ahead."""

WAKE_MAX = 1000
"""Sleepers woken in one call."""

COUNTERS = b"counters"
SEGMENT = b"segment:"
META_TABLE, SLEEP_TABLE = number(META), number(SLEEP)
_behind_host = Struct(">IQ").pack


def ignore(step: str) -> None:
    """Do nothing with a step."""


class LmdbStore:
    """The part of `local.Shelf` that a crawl needs. The place of a record is its queue key."""

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
        self._expected = expected
        self.tables = Tables(path, sync=sync, before_checkpoint=self._note_added, on_step=on_step)
        self.counters = self._read_counters()
        self.counters.epoch += 1
        self.known_hosts = Hosts(self.tables, self.counters)
        self.rows_of_segments = self._read_segments()
        self.live = stretches(self.rows_of_segments, self.tables, sync=sync, expected=expected)
        self._serving: list[Stretch] = []
        self._lent: set[bytes] = set()
        self._sleepers = Window(SLEEP_TABLE, b"", complete=False)
        self._queued = sum(segment.row.pending for segment in self.live.values())
        self._dirty = True
        self._finish_dropping()

    @property
    def epoch(self) -> int:
        """How often this state was opened; fences leases of earlier owners."""
        return self.counters.epoch

    def add(self, record: UrlRecord) -> float | None:
        """Store what is new."""
        segment = self.live.get(record.segment) or self._begin_segment(record.segment)
        if segment is None or not segment.is_open:
            return None
        fingerprint = record.fingerprint
        if not record.dont_filter and segment.knows(fingerprint, self.tables):
            return None
        counters = self.counters
        counters.arrivals += 1
        if record.not_before > 0:
            key = SLEEP_KEY.pack(math.ceil(record.not_before * 1000), counters.arrivals)
            self._put_to_sleep(segment, key, record)
            if not record.dont_filter:
                segment.filter.add(fingerprint)
            return NOT_YET
        key = self._enqueue(segment, record, counters.arrivals)
        if not record.dont_filter:
            self.tables.put(segment.seen, fingerprint, key[-ARRIVAL:])
            segment.filter.add(fingerprint)
        return segment.rank if segment.started else NOT_YET

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were added lately."""
        live = self.live.get(segment)
        return live.known(fingerprints, self.tables) if live else set()

    def take(self, host: str) -> tuple[bytes, UrlRecord, float | None] | None:
        """Take the host's next record out of the oldest segment that has one."""
        serving = self._serving
        for at, segment in enumerate(serving):
            window = segment.windows.get(host)
            if window is None or self._first(window) is None:
                continue
            key, record = window.pop()
            self._lent.add(key)
            return key, record, self._next_rank(host, at)
        return None

    def put_back(self, place: bytes, record: UrlRecord) -> float:
        """Queue it under its old key. Return its rank."""
        self._lent.discard(place)
        segment = self.live.get(record.segment)
        if segment is None:
            return NOT_YET
        if record.attempts:
            self.tables.put(segment.queue, place, record)
        self._window(segment, record.host).put(place, record)
        return segment.rank if segment.started else NOT_YET

    def finish(self, place: bytes, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        """Move the record from the queue to those that are done."""
        segment = self._leave_queue(place, record)
        if segment is None:
            return
        host = QUEUE_KEY.unpack(place)[0]
        self.tables.put(segment.done, place[-ARRIVAL:], done_row(record, host, reason, now, validators))
        count(segment.row.reasons, reason)

    def retry(self, place: bytes, record: UrlRecord) -> None:
        """Move the record from the queue to the sleepers."""
        segment = self._leave_queue(place, record)
        if segment is not None:
            arrival = int.from_bytes(place[-ARRIVAL:], "big")
            self._put_to_sleep(segment, SLEEP_KEY.pack(math.ceil(record.not_before * 1000), arrival), record)

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
        woken: list[HostWork] = []
        for segment in self.live.values():
            if not segment.started and segment.rank <= now:
                woken += self._start(segment)
        while len(woken) < WAKE_MAX:
            due = self._next_sleeper()
            if due is None or due > now:
                break
            woken += self._wake_first()
        return woken

    def next_due(self) -> float | None:
        """When the first sleeper wakes, or a segment with work starts."""
        times = [segment.rank for segment in self.live.values() if not segment.started and segment.row.pending]
        due = self._next_sleeper()
        return min([*times, due] if due is not None else times, default=None)

    def recall_host(self, host: str) -> HostMemory:
        """Look it up."""
        return self.known_hosts.recall(host)

    def remember_host(self, host: str, memory: HostMemory) -> None:
        """Store it."""
        self._dirty = True
        self.known_hosts.remember(host, memory)

    def commit(self, positions: Mapping[str, int]) -> None:
        """Write the counters, then everything in one frame; after a checkpoint let go of what LMDB has."""
        counters = self.counters
        if not (self._dirty or self.tables.writes) and positions.items() <= counters.positions.items():
            return
        counters.positions.update(positions)
        self._archive_finished()
        self.tables.put(META_TABLE, COUNTERS, msgspec.Raw(encode(counters)))
        for segment in self.live.values():
            if segment.changed:
                self.write_row(segment.row)
                segment.changed = False
        self._dirty = False
        if self.tables.commit():
            self._trim()

    def write_row(self, row: SegmentRow) -> None:
        """Write what is counted of a segment."""
        self.tables.put(META_TABLE, SEGMENT + row.id.to_bytes(4, "big"), msgspec.Raw(encode(row)))

    def positions(self) -> dict[str, int]:
        """Return those of the last commit."""
        return dict(self.counters.positions)

    def stats(self) -> FrontierStats:
        """Count over all segments that were not dropped."""
        reasons: dict[str, int] = {}
        dead_reasons: dict[str, int] = {}
        rows = [segment.row for segment in self.live.values()]
        for row in rows:
            for reason, number_ in row.reasons.items():
                reasons[reason] = reasons.get(reason, 0) + number_
            for reason, number_ in row.dead_reasons.items():
                dead_reasons[reason] = dead_reasons.get(reason, 0) + number_
        asleep = sum(each.row.pending for each in self.live.values() if not each.started)
        return FrontierStats(
            queued=sum(row.pending for row in rows) - asleep - len(self._lent),
            delayed=sum(row.sleeping for row in rows) + asleep,
            done=sum(reasons.values()),
            dead=sum(row.dead for row in rows),
            reasons=reasons,
            dead_reasons=dead_reasons,
            lookups=sum(each.lookups for each in self.live.values()),
            lookups_settled=sum(each.settled for each in self.live.values()),
        )

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the first ones."""
        found: list[tuple[UrlRecord, str]] = []
        for segment in self.live.values():
            rows = self.tables.scan(segment.dead, b"", limit - len(found), decode_dead)
            found += [(row.record, row.reason) for _, row in rows]
        return found

    def close(self) -> None:
        """Release the store."""
        self.tables.close()

    def settle(self) -> None:
        """Have LMDB take over everything that was committed."""
        self.tables.settle()
        self._trim()

    def _enqueue(self, segment: Stretch, record: UrlRecord, arrival: int) -> bytes:
        window = segment.windows.get(record.host) or self._window(segment, record.host)
        priority = max(1 - PRIORITY_ZERO, min(PRIORITY_ZERO, record.priority)) if record.priority else 0
        key = window.prefix + _behind_host(PRIORITY_ZERO - priority, arrival)
        self.tables.put(segment.queue, key, record)
        window.put(key, record)
        segment.row.pending += 1
        segment.changed = True
        return key

    def _leave_queue(self, key: bytes, record: UrlRecord) -> Stretch | None:
        """Delete a lent record from its queue. None when its segment was dropped."""
        self._lent.discard(key)
        segment = self.live.get(record.segment)
        if segment is None:
            return None
        tables = self.tables
        rows = tables.active[segment.queue]
        # Written since the last freeze for the first time: LMDB will never hear of it.
        if rows.pop(key, None) is None or record.attempts:
            rows[key] = None
        tables.writes += (segment.queue, key, None)
        segment.row.pending -= 1
        segment.changed = True
        return segment

    def _put_to_sleep(self, segment: Stretch, key: bytes, record: UrlRecord) -> None:
        self.tables.put(SLEEP_TABLE, key, record)
        if not record.dont_filter:
            self.tables.put(segment.seen, record.fingerprint, b"s" + key)
        self._sleepers.put(key, record)
        segment.row.sleeping += 1
        segment.changed = True

    def _next_sleeper(self) -> float | None:
        window = self._sleepers
        if window.complete and not window.heap:
            return None
        first = window.first(self.tables, (), decode_record, SLEEPERS_MAX)
        return SLEEP_KEY.unpack(first[0])[0] / 1000 if first else None

    def _wake_first(self) -> list[HostWork]:
        key, record = self._sleepers.pop()
        self.tables.put(SLEEP_TABLE, key, None)
        segment = self.live.get(record.segment)
        if segment is None:
            return []
        segment.row.sleeping -= 1
        queue_key = self._enqueue(segment, record, SLEEP_KEY.unpack(key)[1])
        if not record.dont_filter:
            self.tables.put(segment.seen, record.fingerprint, queue_key[-ARRIVAL:])
        return [HostWork(record.host, segment.rank, 1)] if segment.started else []

    def _first(self, window: Window) -> tuple[bytes, UrlRecord] | None:
        if window.heap and window.complete:
            return window.heap[0]
        return window.first(self.tables, self._lent, decode_record, self._limit())

    def _next_rank(self, host: str, start: int) -> float | None:
        serving = self._serving
        for segment in serving[start:] if start else serving:
            window = segment.windows.get(host)
            if window is not None and self._first(window) is not None:
                return segment.rank
        return None

    def _limit(self) -> int:
        windows = sum(len(segment.windows) for segment in self._serving)
        return max(BUFFER_MIN, min(BUFFER_MAX, BUFFERED_MAX // (windows + 1)))

    def _window(self, segment: Stretch, host: str) -> Window:
        window = segment.windows.get(host)
        if window is None:
            prefix = self.known_hosts.id(host).to_bytes(4, "big")
            complete = segment.started or not segment.row.pending
            window = segment.windows[host] = Window(segment.queue, prefix, complete=complete)
        return window

    def _begin_segment(self, name: str) -> Stretch | None:
        if any(row.name == name for row in self.rows_of_segments):
            return None  # dropped
        if len(self.live) >= SEGMENTS_MAX:
            raise StorageError(f"{self.path}: {SEGMENTS_MAX} segments; drop old ones with lycosa frontier drop")
        row = SegmentRow(self.counters.segments, name)
        self.counters.segments += 1
        self.rows_of_segments.append(row)
        segment = Stretch(row, self.tables, sync=self._sync, expected=self._expected)
        segment.changed = True
        named = {**self.live, name: segment}
        self.live = {each: named[each] for each in sorted(named, key=order)}
        if segment.rank <= 0:
            self._start(segment)
        return segment

    def _start(self, segment: Stretch) -> list[HostWork]:
        """Serve a segment from now on. Return the hosts it has work for."""
        segment.started = True
        self._serving = [each for each in self.live.values() if each.started and each.is_open]
        if not segment.is_open or not segment.row.pending:
            return []
        for host_id, _ in self._hosts_on_disk(segment):
            host = self.known_hosts.name(host_id)
            if host not in segment.windows:
                window = Window(segment.queue, host_id.to_bytes(4, "big"), complete=False)
                window.count = self.known_hosts.queued(host)
                segment.windows[host] = window
        return [HostWork(host, segment.rank, max(1, window.count)) for host, window in segment.windows.items()]

    def _hosts_on_disk(self, segment: Stretch) -> list[tuple[int, bytes]]:
        rows = self.tables.walk(segment.queue, lambda key: QUEUE_KEY.pack(QUEUE_KEY.unpack(key)[0] + 1, 0, 0))
        return [(QUEUE_KEY.unpack(key)[0], key) for key, _ in rows]

    def _archive_finished(self) -> None:
        """A finished stretch of time is archived when a later one has started."""
        if len(self.live) < 2:
            return
        last = max((each.rank for each in self._serving), default=0.0)
        for segment in list(self._serving):
            if 0 < segment.rank < last and not segment.unfinished:
                self._archive(segment)

    def _archive(self, segment: Stretch) -> None:
        segment.row.state = SegmentState.ARCHIVED
        segment.changed = True
        segment.windows.clear()
        self._serving = [each for each in self._serving if each is not segment]

    def _finish_dropping(self) -> None:
        """Delete what is left of dropped segments, also of one that a crash left half deleted."""
        for row in self.rows_of_segments:
            if row.state is SegmentState.DROPPED:
                for kind in OF_SEGMENTS:
                    self.tables.drop(number(kind, row.id))
                delete_filters(self.path, row.id)

    def _trim(self) -> None:
        limit = self._limit()
        self._sleepers.trim(self.tables, SLEEPERS_MAX)
        for segment in self.live.values():
            for window in segment.windows.values():
                window.trim(self.tables, limit)
            segment.windows = {host: window for host, window in segment.windows.items() if not window.is_empty}
            self.known_hosts.note_queued({host: w.count for host, w in segment.windows.items() if not w.complete})
            if segment.file.is_long:
                segment.file.save(segment.filter, self.tables.applied)

    def _note_added(self, first: int, last: int, frozen: Writes) -> None:
        seen = {table // KINDS: list(rows) for table, rows in frozen.items() if table % KINDS == SEEN}
        append_to_all(self.path, first - 1, last, seen, sync=self._sync)

    def _read_counters(self) -> Counters:
        value = self.tables.stored(META_TABLE, COUNTERS)
        return decode_counters(value) if value else Counters()

    def _read_segments(self) -> list[SegmentRow]:
        return [decode_segment(value) for _, value in self.tables.behind(META_TABLE, SEGMENT, SEGMENT, 1 << 32)]
