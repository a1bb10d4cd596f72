"""The embedded frontier: the frontier of one process, stored in LMDB.

This module adds the store operations of `lycosa frontier`: list, requeue, drop, verify, compact. Listings merge the
rows in memory with the rows in LMDB.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lycosa.core.bloom import EXPECTED
from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import (
    HostView,
    RequeueResult,
    Row,
    RowSlice,
    SegmentState,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.rows import Matcher
from lycosa.frontier.core.segments import segment_order
from lycosa.frontier.core.states import Event, Policy, State, requeue, step
from lycosa.frontier.local import NOT_READY, HostWork, LocalFrontier
from lycosa.frontier.lsm.done_rows import record_of
from lycosa.frontier.lsm.infohash_rows import decode_delayed, decode_done_row, decode_queued, due_ms, key_of
from lycosa.frontier.lsm.lmdb import DATA, DEAD, DELAYED, DONE, KINDS, QUEUE, QUEUE_KEY, table_number
from lycosa.frontier.lsm.open_segment import OTHER, OpenSegment, count, view
from lycosa.frontier.lsm.rows import SegmentRow, decode_dead_row
from lycosa.frontier.lsm.store import DELAYED_TABLE, LmdbCrawlStore, ignore
from lycosa.frontier.lsm.verify import find_problems
from lycosa.frontier.lsm.window import Window
from lycosa.frontier.slices import ScanSlice, next_slice, parse_cursor

SCAN_ROWS = 500
QUEUED_MAX = 10_000
"""Maximum number of queued URLs counted per host; beyond it the number is an estimate."""

DECODERS: dict[int, Callable[[bytes, bytes], Any]] = {
    QUEUE: decode_queued,
    DELAYED: decode_delayed,
    DONE: decode_done_row,
    DEAD: decode_dead_row,
}
STATES = {
    QUEUE: {State.QUEUED},
    DELAYED: {State.DELAYED, State.RETRY},
    DONE: {State.DONE, State.ARCHIVED},
    DEAD: {State.DEAD, State.ARCHIVED},
}


class LmdbFrontierStore(LmdbCrawlStore):
    """Implements `frontier.local.FrontierStore`."""

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        found: list[tuple[UrlRecord, str]] = []
        for segment in self.registry.live.values():
            rows = self.memtable.scan(segment.dead, b"", limit - len(found), decode_dead_row)
            found += [(row.record, row.reason) for _, row in rows]
        return found

    def segments(self) -> list[SegmentView]:
        dropped = [row for row in self.registry.rows if row.state is SegmentState.DROPPED]
        dropped.sort(key=lambda row: segment_order(row.name))
        live = [view(segment.current_row()) for segment in self.registry.live.values()]
        return live + [view(row) for row in dropped]

    def hosts(self, after: str, limit: int) -> list[HostView]:
        """`queued` is an estimate above QUEUED_MAX and while a crawl runs."""
        return [replace(found, queued=self._queued_of(found.host)) for found in self.host_table.views(after, limit)]

    def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        found = self._select(selection, cursor, limit)
        return RowSlice([row for _, row in found.rows], found.next_cursor)

    def find(self, fingerprint: int, host: str = "") -> list[Row]:
        found = (self._find_in(segment, fingerprint, host) for segment in self.registry.live.values())
        return [row for row in found if row is not None]

    def requeue(
        self, selection: Selection, into: str | None, cursor: str, limit: int
    ) -> tuple[RequeueResult, Sequence[HostWork]]:
        found = self._select(selection, cursor, limit)
        work: list[HostWork] = []
        requeued = 0
        for at, row in found.rows:
            if row.state in (State.DONE, State.DEAD, State.ARCHIVED):
                rank = self._requeue_row(at, row, into)
                requeued += rank is not None
                work += [HostWork(row.record.host, rank, 1)] if rank is not None and rank != NOT_READY else []
        return RequeueResult(requeued, found.next_cursor), work

    def requeue_ended(self, fingerprint: int) -> Sequence[HostWork]:
        work: list[HostWork] = []
        for segment in self.registry.live.values():
            mark = self.memtable.get(segment.seen, fingerprint, bytes)
            if mark is None or (ended := self._find_ended(segment, mark)) is None:
                continue
            table, row = ended
            rank = self._requeue_row(f"{table}:{mark.hex()}", row, None)
            work += [HostWork(row.record.host, rank, 1)] if rank is not None else []
        return work

    def archive(self, segment: str) -> bool:
        live = self.registry.live.get(segment)
        if live is None or view(live.current_row()).state is not SegmentState.FINISHED:
            return False
        self.registry.archive(live)
        self._dirty = True
        return True

    def drop(self, segment: str) -> int:
        """The next commit deletes the tables of the segment."""
        live = self.registry.live.get(segment)
        if live is None:
            raise UsageError(f"there is no segment {segment!r}: lycosa frontier segments lists them")
        row = live.current_row()
        self.registry.drop(live)
        return row.pending + row.delayed + row.done + row.dead

    def verify(self, report: Callable[[str], None]) -> list[str]:
        self.checkpoint()
        return find_problems(self.memtable, list(self.registry.live.values()), report)

    def compact(self) -> tuple[int, int]:
        self.checkpoint()
        before = (self.path / DATA).stat().st_size
        self.memtable.compact()
        return before, (self.path / DATA).stat().st_size

    def _queued_of(self, host: str) -> int:
        windows = (segment.windows.get(host) for segment in self.registry.live.values())
        return sum(self._queued_in(window) for window in windows if window is not None)

    def _queued_in(self, window: Window) -> int:
        counted = None if window.complete else self.memtable.count(window.table, window.prefix, QUEUED_MAX)
        return max(window.count, 0) if counted is None else max(counted, window.count if counted == QUEUED_MAX else 0)

    def _select(self, selection: Selection, cursor: str, limit: int) -> ScanSlice:
        return next_slice(self._rows_from(selection, cursor), Matcher(selection).matches, limit)

    def _rows_from(self, selection: Selection, cursor: str) -> Iterator[tuple[str, Row]]:
        tables = [table for table in self._all_tables() if self._may_match(table, selection)]
        start, key = parse_cursor(cursor)
        for table in tables:
            if table < start:
                continue
            yield from self._rows_of(table, key if table == start else b"")

    def _rows_of(self, table: int, after: bytes) -> Iterator[tuple[str, Row]]:
        while rows := self.memtable.scan(table, after, SCAN_ROWS, DECODERS[table % KINDS]):
            for key, value in rows:
                if table != DELAYED_TABLE or value.segment in self.registry.live:
                    yield f"{table}:{key.hex()}", self._row(table, key, value)
            after = rows[-1][0]

    def _all_tables(self) -> list[int]:
        kinds = (QUEUE, DONE, DEAD)
        tables = [table_number(kind, segment.row.id) for segment in self.registry.live.values() for kind in kinds]
        return sorted([*tables, DELAYED_TABLE])

    def _may_match(self, table: int, selection: Selection) -> bool:
        kind, segment = table % KINDS, table // KINDS
        wanted = self.registry.live.get(selection.segment) if selection.segment is not None else None
        if selection.segment is not None and (wanted is None or (kind != DELAYED and wanted.row.id != segment)):
            return False
        return not selection.states or bool(STATES[kind] & {*selection.states})

    def _row(self, table: int, key: bytes, value: Any) -> Row:
        kind = table % KINDS
        if kind == QUEUE:
            return Row(State.QUEUED, value)
        if kind == DELAYED:
            return Row(State.RETRY if value.attempts else State.DELAYED, value, due_ms(key) / 1000)
        segment = next(each for each in self.registry.live.values() if each.row.id == table // KINDS)
        state = State.DONE if kind == DONE else State.DEAD
        if segment.row.state is SegmentState.ARCHIVED:
            state = step(state, Event.ARCHIVE)
        if kind == DEAD:
            return Row(state, value.record, value.at, value.reason)
        record = record_of(value, self.host_table.name(value.host), segment.row.name)
        return Row(state, record, float(value.at), str(value.reason))

    def _find_in(self, segment: OpenSegment, fingerprint: int, host: str) -> Row | None:
        mark = self.memtable.get(segment.seen, fingerprint, bytes)
        if mark is None:
            return None
        if (key := key_of(mark)) is not None:
            delayed = self._get(DELAYED_TABLE, key)
            return self._row(DELAYED_TABLE, key, delayed) if delayed else None
        ended = self._find_ended(segment, mark)
        return ended[1] if ended else self._find_queued(segment, mark, host)

    def _get(self, table: int, key: bytes) -> Any:
        decode = DECODERS[table % KINDS]
        return self.memtable.get(table, key, lambda value: decode(key, value))

    def _find_ended(self, segment: OpenSegment, mark: bytes) -> tuple[int, Row] | None:
        for table in (segment.done, segment.dead):
            ended = self._get(table, mark)
            if ended is not None:
                return table, self._row(table, mark, ended)
        return None

    def _find_queued(self, segment: OpenSegment, arrival: bytes, host: str) -> Row | None:
        """Find the queued row of this arrival number in all priorities of `host`, or of all hosts if it is unknown."""
        hosts = [self.host_table.find(host)] if host else []
        ids = [row.id for row in hosts if row] or range(1, self.counters.hosts + 1)
        for host_id in ids:
            for prefix in self._priorities(segment, host_id):
                record = self._get(segment.queue, prefix + arrival.rjust(8, b"\0"))
                if record is not None:
                    return Row(State.QUEUED, record)
        return None

    def _priorities(self, segment: OpenSegment, host_id: int) -> Iterator[bytes]:
        """Yield the prefixes of a host's queue keys, one per priority (some twice), without reading all rows."""
        prefix = host_id.to_bytes(4, "big")
        changed = {**self.memtable.frozen.get(segment.queue, {}), **self.memtable.active.get(segment.queue, {})}
        yield from {key[:8] for key in changed if key[:4] == prefix}
        after = QUEUE_KEY.pack(host_id, 0, 0)
        while rows := self.memtable.database.rows_after(segment.queue, after, prefix, 1):
            yield rows[0][0][:8]
            after = rows[0][0][:8] + b"\xff" * 8

    def _requeue_row(self, cursor: str, row: Row, into: str | None) -> float | None:
        """Queue a done or dead URL again, or a copy of it in segment `into`. Return its rank; None if it is refused."""
        record = requeue(row.record)
        if into is not None:
            return self.add(replace(record, segment=into, dont_filter=False))
        segment = self.registry.live[record.segment]
        if not segment.is_open:
            return None
        table, key = parse_cursor(cursor)
        step(State(row.state), Event.REQUEUE if row.state == State.DEAD else Event.REFRESH)
        self.memtable.put(table, key, None)
        self._uncount(segment.row, row)
        # A new arrival number puts the URL at the end of its queue.
        self.arrivals += 1
        self.enqueue(segment, record, self.arrivals)
        return segment.rank if segment.started else NOT_READY

    def _uncount(self, segment: SegmentRow, row: Row) -> None:
        reasons = segment.dead_reasons if row.state == State.DEAD else segment.reasons
        segment.dead -= row.state == State.DEAD
        count(reasons, row.reason if row.reason in reasons else OTHER, -1)


def embedded_frontier(
    path: Path,
    policy: Policy,
    *,
    sync: bool = False,
    now: float = math.inf,
    on_step: Callable[[str], None] = ignore,
    expected: int = EXPECTED,
) -> LocalFrontier[bytes]:
    """Open the frontier in this folder at `now` (unix seconds), with a Bloom filter for `expected` URLs.

    The caller must hold the lock of the state directory. `on_step` gets each step of every commit (`memtable.STEPS`).
    """
    store = LmdbFrontierStore(path, sync=sync, on_step=on_step, expected=expected)
    # The epoch makes the lease tokens of earlier owners invalid.
    return LocalFrontier(policy, store, store.counters.epoch << 32, now)
