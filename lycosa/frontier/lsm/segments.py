"""The segments of an embedded frontier: which exist, which are served, when they start and end.

The oldest segment is served first, none before its start. A finished time segment is archived once a later one of its
period has started. Dropping a segment deletes its tables; if a crash leaves some, the next opening deletes them.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from lycosa.core.errors import StorageError
from lycosa.frontier.core.model import SegmentState
from lycosa.frontier.core.segments import is_followed, latest_starts, segment_order
from lycosa.frontier.local import HostWork
from lycosa.frontier.lsm.filters import FilterFile
from lycosa.frontier.lsm.hosts import HostTable
from lycosa.frontier.lsm.lmdb import META, QUEUE_KEY, SEEN_L1, SEGMENT_KINDS, SEGMENTS_MAX, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.open_segment import OpenSegment
from lycosa.frontier.lsm.rows import Counters, SegmentRow, decode_segment, encode
from lycosa.frontier.lsm.window import Window

SEGMENT = b"segment:"
META_TABLE = table_number(META)
ROWS_MAX = 1 << 20
"""Maximum number of segment rows read at the opening, including those of dropped segments."""


class SegmentRegistry:
    """Records are leased only from the segments that are `serving`."""

    def __init__(self, memtable: Memtable, counters: Counters, hosts: HostTable, *, sync: bool, expected: int) -> None:
        self._memtable = memtable
        self._counters = counters
        self._hosts = hosts
        self._sync = sync
        self._expected = expected
        self.rows = [
            decode_segment(value) for _, value in memtable.database.rows_after(META_TABLE, SEGMENT, SEGMENT, ROWS_MAX)
        ]
        self.live: dict[str, OpenSegment] = {}
        """The segments that were not dropped, in serving order."""
        for row in self.rows:
            if row.state is not SegmentState.DROPPED:
                self.live[row.name] = self._open(row)
        self._sort()
        self.to_delete = [row for row in self.rows if row.state is SegmentState.DROPPED and not row.tables_deleted]
        self.delete_dropped()

    def create(self, name: str) -> OpenSegment | None:
        """Create a segment; None if the name is taken, even by a dropped segment.

        Raises `StorageError` if there are SEGMENTS_MAX segments.
        """
        if any(row.name == name for row in self.rows):
            return None
        if len(self.live) >= SEGMENTS_MAX:
            path = self._memtable.path
            raise StorageError(f"{path} already has {SEGMENTS_MAX} segments; drop old ones with lycosa frontier drop")
        row = SegmentRow(self._counters.segments, name)
        self._counters.segments += 1
        self.rows.append(row)
        segment = self.live[name] = self._open(row)
        segment.changed = True
        segment.started = segment.rank <= 0
        self._sort()
        return segment

    def start_due(self, now: float) -> Iterator[HostWork]:
        """Start serving the segments that are due. Yield their hosts with work."""
        starting = [segment for segment in self.live.values() if not segment.started and segment.rank <= now]
        for segment in starting:
            segment.started = True
        if starting:
            self._sort()
        for segment in starting:
            yield from self._work_of(segment)

    def next_start(self) -> float | None:
        starts = (segment.rank for segment in self.live.values() if not segment.started and segment.pending)
        return min(starts, default=None)

    def archive_finished(self, run_at: float) -> bool:
        """Archive finished time segments followed by a later one (see `FrontierStore.run_at`).

        Return whether there were any.
        """
        finished = [each for each in self.serving if each.rank > 0 and not each.unfinished]
        if not finished or len(self.live) == 1:  # the usual case; every commit calls this method
            return False
        latest = latest_starts([each.row.name for each in self.live.values() if each.started], run_at)
        finished = [each for each in finished if is_followed(each.row.name, latest)]
        for segment in finished:
            self.archive(segment)
        return bool(finished)

    def archive(self, segment: OpenSegment) -> None:
        segment.archive()
        self._sort()

    def write_changed(self) -> None:
        for segment in self.live.values():
            if segment.changed:
                segment.changed = False
                segment.update_filter()
                self.write(segment.current_row())

    def write(self, row: SegmentRow) -> None:
        self._memtable.put(META_TABLE, _key(row), msgspec.Raw(encode(row)))

    def drop(self, segment: OpenSegment) -> None:
        """Stop serving a segment; `delete_dropped` deletes its tables."""
        segment.row.state = SegmentState.DROPPED
        self.to_delete.append(segment.row)
        del self.live[segment.row.name]
        self._sort()
        self.write(segment.row)

    def delete_dropped(self) -> None:
        """Delete the tables and filters of dropped segments. Call `Memtable.checkpoint` first."""
        database = self._memtable.database
        for row in self.to_delete:
            for kind in SEGMENT_KINDS:
                database.drop(table_number(kind, row.id))
            self._memtable.levels.forget(table_number(SEEN_L1, row.id))
            FilterFile(self._memtable.path, row.id, sync=self._sync).delete()
            row.tables_deleted = True
            database.put(META_TABLE, [(_key(row), encode(row))])
            database.commit()
        self.to_delete.clear()

    def _open(self, row: SegmentRow) -> OpenSegment:
        return OpenSegment(row, self._memtable, sync=self._sync, expected=self._expected)

    def _sort(self) -> None:
        for name in sorted(self.live, key=segment_order):
            self.live[name] = self.live.pop(name)
        self.serving = [each for each in self.live.values() if each.started and each.is_open]

    def _work_of(self, segment: OpenSegment) -> Iterator[HostWork]:
        if not segment.is_open or not segment.pending:
            return
        # Skip from the first record of a host to that of the next host: queue keys begin with the host id.
        rows = self._memtable.database.skip_scan(
            segment.queue, lambda key: QUEUE_KEY.pack(QUEUE_KEY.unpack(key)[0] + 1, 0, 0)
        )
        for host_id in [QUEUE_KEY.unpack(key)[0] for key, _ in rows]:
            host = self._hosts.name(host_id)
            if host not in segment.windows:
                window = Window(segment.queue, host_id, complete=False, count=self._hosts.queued(host))
                segment.windows[host] = window
        for host, window in segment.windows.items():
            yield HostWork(host, segment.rank, max(1, window.count))


def _key(row: SegmentRow) -> bytes:
    return SEGMENT + row.id.to_bytes(4, "big")
