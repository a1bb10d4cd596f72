"""The segments of an embedded frontier: which there are, which are served, when they begin and end.

The oldest is served first; one whose time has not come sleeps as a whole. A finished stretch of time is archived when a
later one has started. To drop a segment is to delete its tables, never row by row; what a crash leaves of a segment
that was being dropped goes when the state is opened again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lycosa.core.errors import StorageError
from lycosa.frontier.core.model import SegmentState
from lycosa.frontier.core.segments import segment_order
from lycosa.frontier.local import HostWork
from lycosa.frontier.lsm.filters import FilterFile
from lycosa.frontier.lsm.hosts import HostTable
from lycosa.frontier.lsm.lmdb import META, OF_SEGMENTS, QUEUE_KEY, SEEN_L1, SEGMENTS_MAX, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.open_segment import OpenSegment
from lycosa.frontier.lsm.rows import Counters, SegmentRow, decode_segment, encode
from lycosa.frontier.lsm.window import Window

SEGMENT = b"segment:"
META_TABLE = table_number(META)
ROWS_MAX = 1 << 20
"""Segments there may ever have been, the dropped ones too."""


class SegmentRegistry:
    """All segments; `serving` are those that may lend."""

    def __init__(self, tables: Memtable, counters: Counters, hosts: HostTable, *, sync: bool, expected: int) -> None:
        self._tables = tables
        self._counters = counters
        self._hosts = hosts
        self._sync = sync
        self._expected = expected
        self.rows = [
            decode_segment(value) for _, value in tables.database.behind(META_TABLE, SEGMENT, SEGMENT, ROWS_MAX)
        ]
        self.live: dict[str, OpenSegment] = {}
        """The segments that were not dropped, in the order in which they are served."""
        for row in self.rows:
            if row.state is not SegmentState.DROPPED:
                self.live[row.name] = self._stretch(row)
        self._sort()
        self.doomed = [row for row in self.rows if row.state is SegmentState.DROPPED and not row.gone]
        """Segments that were dropped, with tables that are still to be deleted."""
        self.finish_dropping()

    def begin(self, name: str) -> OpenSegment | None:
        """Make the segment of a name that is new. None for one that was dropped."""
        if any(row.name == name for row in self.rows):
            return None
        if len(self.live) >= SEGMENTS_MAX:
            path = self._tables.path
            raise StorageError(f"{path}: {SEGMENTS_MAX} segments; drop old ones with lycosa frontier drop")
        row = SegmentRow(self._counters.segments, name)
        self._counters.segments += 1
        self.rows.append(row)
        segment = self.live[name] = self._stretch(row)
        segment.changed = True
        segment.started = segment.rank <= 0
        self._sort()
        return segment

    def start(self, now: float) -> Iterator[HostWork]:
        """Serve the segments whose time has come. Yield the hosts they have work for."""
        begun = [segment for segment in self.live.values() if not segment.started and segment.rank <= now]
        for segment in begun:
            segment.started = True
        if begun:
            self._sort()
        for segment in begun:
            yield from self._work_of(segment)

    def next_start(self) -> float | None:
        """When the next segment with work starts."""
        asleep = (segment.rank for segment in self.live.values() if not segment.started and segment.pending)
        return min(asleep, default=None)

    def archive_finished(self) -> bool:
        """Archive the stretches of time that are finished and have a successor that started. Return if there were."""
        last = max((segment.rank for segment in self.live.values() if segment.started), default=0.0)
        finished = [each for each in self.serving if 0 < each.rank < last and not each.unfinished]
        for segment in finished:
            self.archive(segment)
        return bool(finished)

    def archive(self, segment: OpenSegment) -> None:
        """Make a finished segment read only."""
        segment.archive()
        self._sort()

    def write_changed(self) -> None:
        """Write what is counted of segments that changed."""
        for segment in self.live.values():
            if segment.changed:
                segment.changed = False
                segment.note_admitted()
                self.write(segment.counted())

    def write(self, row: SegmentRow) -> None:
        """Write what is counted of a segment."""
        self._tables.put(META_TABLE, _key(row), msgspec.Raw(encode(row)))

    def forget(self, segment: OpenSegment) -> None:
        """Stop serving a segment that is dropped; its tables go with `finish_dropping`."""
        segment.row.state = SegmentState.DROPPED
        self.doomed.append(segment.row)
        del self.live[segment.row.name]
        self._sort()
        self.write(segment.row)

    def finish_dropping(self) -> None:
        """Delete the tables and the filters of dropped segments; settle first."""
        database = self._tables.database
        for row in self.doomed:
            for kind in OF_SEGMENTS:
                database.drop(table_number(kind, row.id))
            self._tables.levels.forget(table_number(SEEN_L1, row.id))
            FilterFile(self._tables.path, row.id, sync=self._sync).delete()
            row.gone = True
            database.put(META_TABLE, [(_key(row), encode(row))])
            database.commit()
        self.doomed.clear()

    def _stretch(self, row: SegmentRow) -> OpenSegment:
        return OpenSegment(row, self._tables, sync=self._sync, expected=self._expected)

    def _sort(self) -> None:
        for name in sorted(self.live, key=segment_order):
            self.live[name] = self.live.pop(name)
        self.serving = [each for each in self.live.values() if each.started and each.is_open]

    def _work_of(self, segment: OpenSegment) -> Iterator[HostWork]:
        """Look at the queues of a segment that starts, leaping from the first record of a host to that of the next."""
        if not segment.is_open or not segment.pending:
            return
        rows = self._tables.database.walk(segment.queue, lambda key: QUEUE_KEY.pack(QUEUE_KEY.unpack(key)[0] + 1, 0, 0))
        for host_id in [QUEUE_KEY.unpack(key)[0] for key, _ in rows]:
            host = self._hosts.name(host_id)
            if host not in segment.windows:
                window = Window(segment.queue, host_id, complete=False, count=self._hosts.queued(host))
                segment.windows[host] = window
        for host, window in segment.windows.items():
            yield HostWork(host, segment.rank, max(1, window.count))


def _key(row: SegmentRow) -> bytes:
    return SEGMENT + row.id.to_bytes(4, "big")
