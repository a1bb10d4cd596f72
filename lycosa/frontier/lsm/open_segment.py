"""One live segment of an embedded frontier: its tables, its windows on the queues of hosts, its Bloom filter.

Which fingerprint is new: the filter says "certainly new" without a look at the disk. A "maybe" is settled by `knows`:
fingerprints found on the disk lately, changes that wait for a checkpoint, then LMDB. Nothing is dropped on a "maybe".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lycosa.core.bloom import Filter
from lycosa.frontier.core.model import FrontierStats, SegmentState, SegmentView
from lycosa.frontier.core.segments import starts_at
from lycosa.frontier.lsm.filters import FilterFile, load_or_rebuild
from lycosa.frontier.lsm.lmdb import DEAD, DONE, QUEUE, SEEN_L1, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.rows import SegmentRow
from lycosa.frontier.lsm.window import Window

RECENT_MAX = 30_000
"""Fingerprints found on the disk that are remembered, in each of two generations."""

REASONS_MAX = 200
"""Different reasons that are counted apart, besides HTTP statuses; the rest is counted as OTHER."""

STATUS_DIGITS = 3
OTHER = "other"


class OpenSegment:
    """A segment that is open, finished or archived.

    `pending` is how many URLs are queued or lent; `row` has the number of the last commit. `admitted` are fingerprints
    that the filter gets with the next commit, until then memory knows them; `maybes` is how often the filter could not
    tell, or was not asked since memory could, and `certain` how often it could.
    """

    __slots__ = (
        "_older",
        "_recent",
        "admitted",
        "certain",
        "changed",
        "dead",
        "done",
        "false",
        "file",
        "filter",
        "is_open",
        "maybes",
        "pending",
        "queue",
        "rank",
        "row",
        "seen",
        "started",
        "windows",
    )

    def __init__(self, row: SegmentRow, tables: Memtable, *, sync: bool, expected: int) -> None:
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
        self.maybes = self.certain = self.false = 0
        self.file = FilterFile(tables.path, row.id, sync=sync)
        self.filter = self._filter(tables, expected) if self.is_open else Filter(1)
        self._recent: set[int] = set()
        self._older: set[int] = set()

    def knows(self, fingerprint: int, tables: Memtable) -> bool:
        """Settle a "maybe" about a fingerprint that is not in `active`: whether it was added before."""
        self.maybes += 1
        if fingerprint in self._recent or fingerprint in self._older:
            return True
        if fingerprint in tables.frozen.get(self.seen, ()):
            return True
        if not tables.levels.has(self.seen, fingerprint):
            self.false += 1
            return False
        if len(self._recent) >= RECENT_MAX:
            self._older, self._recent = self._recent, set()
        self._recent.add(fingerprint)
        return True

    def known(self, fingerprints: Sequence[int], tables: Memtable) -> set[int]:
        """Return those of which memory alone can tell that they were added."""
        given = set(fingerprints)
        found = (given & self._recent) | (given & self._older)
        for writes in (tables.active, tables.frozen):
            rows = writes.get(self.seen)
            if rows:
                found |= given & rows.keys()
        return found

    def note_admitted(self) -> None:
        """Add what is new to the filter."""
        self.certain += len(self.admitted) - self.false
        self.filter.update(self.admitted)
        self.admitted = []
        self.false = 0

    def counted(self) -> SegmentRow:
        """Return the row with the counts of now."""
        self.row.pending = self.pending
        return self.row

    def archive(self) -> None:
        """Take no more URLs."""
        self.note_admitted()
        self.row.state = SegmentState.ARCHIVED
        self.is_open = False
        self.changed = True
        self.windows.clear()
        self.filter = Filter(1)
        self._recent, self._older = set(), set()

    @property
    def unfinished(self) -> int:
        """URLs that still have to be fetched."""
        return self.pending + self.row.sleeping

    def _filter(self, tables: Memtable, expected: int) -> Filter:
        everything = partial(tables.levels.fingerprints, self.seen)
        return load_or_rebuild(self.file, tables.applied, expected, everything, self.row.name)


def view(row: SegmentRow) -> SegmentView:
    """Return what users see of a segment; what is lent counts as queued."""
    state = row.state
    if state is SegmentState.DROPPED:
        return SegmentView(row.name, state, starts_at(row.name))
    if state is SegmentState.OPEN and not (row.pending or row.sleeping):
        state = SegmentState.FINISHED
    return SegmentView(
        row.name,
        state,
        starts_at(row.name),
        queued=row.pending,
        delayed=row.sleeping,
        done=row.done,
        dead=row.dead,
        reasons=dict(row.reasons),
        dead_reasons=dict(row.dead_reasons),
    )


def totals(live: Sequence[OpenSegment], lent: int) -> FrontierStats:
    """Return the counts of all segments together, `lent` of whose queued URLs are lent."""
    reasons: dict[str, int] = {}
    dead_reasons: dict[str, int] = {}
    for segment in live:
        for total, each in ((reasons, segment.row.reasons), (dead_reasons, segment.row.dead_reasons)):
            for reason, times in each.items():
                total[reason] = total.get(reason, 0) + times
    certain = sum(segment.certain + len(segment.admitted) - segment.false for segment in live)
    return FrontierStats(
        queued=sum(segment.pending for segment in live) - lent,
        delayed=sum(segment.row.sleeping for segment in live),
        done=sum(reasons.values()),
        dead=sum(segment.row.dead for segment in live),
        reasons=reasons,
        dead_reasons=dead_reasons,
        lookups=certain + sum(segment.maybes for segment in live),
        lookups_settled=certain,
    )


def count(reasons: dict[str, int], reason: str, by: int = 1) -> None:
    """Add to a count, keeping the number of different reasons bounded."""
    key = reason
    if reason not in reasons and len(reasons) >= REASONS_MAX:
        key = reason if len(reason) == STATUS_DIGITS and reason.isdecimal() else OTHER
    counted = reasons.get(key, 0) + by
    if counted > 0:
        reasons[key] = counted
    else:
        reasons.pop(key, None)
