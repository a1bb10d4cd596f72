"""A segment of an embedded frontier, until it is dropped: its counts, queue windows and Bloom filter.

The filter recognizes most new fingerprints without disk access. `knows` settles a "maybe known" from memory or LMDB: a
false positive never drops a URL.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lycosa.core.bloom import Filter
from lycosa.frontier.core.model import FrontierStats, SegmentState, SegmentView
from lycosa.frontier.core.segments import starts_at, total_stats
from lycosa.frontier.lsm.filters import FilterFile, load_or_rebuild
from lycosa.frontier.lsm.lmdb import DEAD, DONE, QUEUE, SEEN_L1, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.rows import SegmentRow
from lycosa.frontier.lsm.window import Window

RECENT_MAX = 30_000
"""Maximum number of cached fingerprints that were found on disk, in each of two generations."""

REASONS_MAX = 200
"""Maximum number of reasons counted separately. Further reasons count as OTHER, except HTTP statuses."""

STATUS_DIGITS = 3
OTHER = "other"


class OpenSegment:
    """A segment that is open, finished or archived.

    `pending` URLs are queued or leased; `current_row` copies their number to `row.pending`. `admitted` fingerprints are
    in the memtable; the next commit adds them to the filter. `certain` counts the look-ups that the filter answered
    alone, `maybes` all others. `false_positives` counts the new fingerprints among the `maybes` since the last commit.
    `has_unused_file`: the segment is archived, but the files of its filter still exist.
    """

    def __init__(self, row: SegmentRow, memtable: Memtable, *, sync: bool, expected: int) -> None:
        self.row = row
        self.rank = starts_at(row.name)
        self.started = self.changed = False
        self.is_open = row.state is SegmentState.OPEN
        self.queue, self.seen, self.done, self.dead = (
            table_number(kind, row.id) for kind in (QUEUE, SEEN_L1, DONE, DEAD)
        )
        self.windows: dict[str, Window] = {}
        self.pending = row.pending
        self.admitted: list[int] = []
        self.maybes = self.certain = self.false_positives = 0
        self.file = FilterFile(memtable.path, row.id, sync=sync)
        self.filter = self._filter(memtable, expected) if self.is_open else Filter(1)
        self.has_unused_file = not self.is_open and self.file.exists()
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def knows(self, fingerprint: int, memtable: Memtable) -> bool:
        """Call this only after the filter said "maybe" and the fingerprint was not in `memtable.active`."""
        self.maybes += 1
        if fingerprint in self._recent or fingerprint in self._older:
            return True
        if fingerprint in memtable.frozen.get(self.seen, ()):
            return True
        if not memtable.levels.has(self.seen, fingerprint):
            self.false_positives += 1
            return False
        if len(self._recent) >= RECENT_MAX:
            self._older, self._recent = self._recent, set()
        self._recent.add(fingerprint)
        return True

    def known(self, fingerprints: Sequence[int], memtable: Memtable) -> set[int]:
        """Return the fingerprints known in memory; the others may be on disk."""
        wanted = set(fingerprints)
        found = (wanted & self._recent) | (wanted & self._older)
        for writes in (memtable.active, memtable.frozen):
            rows = writes.get(self.seen)
            if rows:
                found |= wanted & rows.keys()
        return found

    def update_filter(self) -> None:
        self.certain += len(self.admitted) - self.false_positives
        self.filter.update(self.admitted)
        self.admitted = []
        self.false_positives = 0

    def current_row(self) -> SegmentRow:
        self.row.pending = self.pending
        return self.row

    def archive(self) -> None:
        self.update_filter()
        self.row.state = SegmentState.ARCHIVED
        self.is_open = False
        self.changed = True
        self.windows.clear()
        self.filter = Filter(1)
        self.has_unused_file = True
        self._recent, self._older = set(), set()

    @property
    def unfinished(self) -> int:
        return self.pending + self.row.delayed

    def _filter(self, memtable: Memtable, expected: int) -> Filter:
        fingerprints = partial(memtable.levels.fingerprints, self.seen)
        return load_or_rebuild(self.file, memtable.applied, expected, fingerprints, self.row.name)


def view(row: SegmentRow) -> SegmentView:
    """Return the view of a segment. Leased URLs count as queued."""
    state = row.state
    if state is SegmentState.DROPPED:
        return SegmentView(row.name, state, starts_at(row.name))
    if state is SegmentState.OPEN and not (row.pending or row.delayed):
        state = SegmentState.FINISHED
    return SegmentView(
        row.name,
        state,
        starts_at(row.name),
        queued=row.pending,
        delayed=row.delayed,
        done=row.done,
        dead=row.dead,
        reasons=dict(row.reasons),
        dead_reasons=dict(row.dead_reasons),
    )


def totals(live: Sequence[OpenSegment], leased: int) -> FrontierStats:
    """Return the sums over all segments. `leased` URLs are among the pending ones."""
    certain = sum(segment.certain + len(segment.admitted) - segment.false_positives for segment in live)
    lookups = certain + sum(segment.maybes for segment in live)
    stats = total_stats([view(segment.current_row()) for segment in live], leased)
    return stats._replace(lookups=lookups, lookups_settled=certain)


def count(reasons: dict[str, int], reason: str, by: int = 1) -> None:
    """Add `by` to the count of a reason, or of OTHER (see REASONS_MAX)."""
    key = reason
    if reason not in reasons and len(reasons) >= REASONS_MAX:
        key = reason if len(reason) == STATUS_DIGITS and reason.isdecimal() else OTHER
    counted = reasons.get(key, 0) + by
    if counted > 0:
        reasons[key] = counted
    else:
        reasons.pop(key, None)
