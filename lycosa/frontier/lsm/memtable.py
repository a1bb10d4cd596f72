"""The tables of an embedded frontier: what changed lately in memory and in the journal, the rest in LMDB.

    put, delete -> memory (`active`) and the list of the next frame
    commit      -> the frame is appended to the journal: this is when a change is durable
    freeze      -> when enough has gathered, `active` becomes `frozen`, and a new journal begins
    advance     -> `frozen` is written to LMDB, sorted, a slice after the other; then its journal is deleted

So a random key costs its turn in a sorted batch and not a page of its own, and what is pushed and done within the same
batch is never queued on the disk. Every write says what a row is, not how it changes: to apply a journal twice, or half
and then again, is the same as once. Opening applies the journals that LMDB does not have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lycosa.core.errors import StorageError
from lycosa.frontier.lsm.levels import Levels
from lycosa.frontier.lsm.lmdb import KINDS, META, SEEN_L1, Database, encode, table_number
from lycosa.frontier.lsm.wal import WriteAheadLog, delete_log, generations, read_frames, sync_logs

Value = TypeVar("Value")
Writes = dict[int, dict[Any, Any]]
"""By table: the rows as they are now, None for one that is gone."""

OVERLAY_MAX = 200_000
"""Rows that change in memory before LMDB takes them over; twice as many at most, while it does."""

OVERLAY_MAX_BYTES = 64 << 20
"""Bytes of a journal after which LMDB takes over fewer rows than these: URLs may be long, and requests carry bodies."""

SLICE_MIN = 2_000
SLICE_MAX = 20_000
"""Rows written in one LMDB transaction: at least, at most."""

ORDERED_MIN = 100
"""Slices of so many rows are worth putting what changed in memory in order, once for all slices of a listing."""

APPLIED = b"applied"
STEPS = (
    "frame written",
    "frame forced",
    "journal begun",
    "filter written",
    "slice committed",
    "checkpoint committed",
    "journal deleted",
)
"""The steps of a commit, in order, as `on_step` hears of them; the last five happen when LMDB takes over."""

_decode_frame = msgspec.msgpack.Decoder(list[Any]).decode
_decode_applied = msgspec.msgpack.Decoder(int).decode


class Memtable:
    """See above. Raises `StorageError` and `StorageFull`.

    `before_checkpoint(first, last, frozen)` is called before LMDB has all of the generations from `first` to `last`.
    """

    def __init__(
        self,
        path: Path,
        *,
        sync: bool,
        before_checkpoint: Callable[[int, int, Writes], None],
        on_step: Callable[[str], None],
    ) -> None:
        self.path = path
        self.active: Writes = defaultdict(dict)
        self.frozen: Writes = {}
        self.writes: list[Any] = []
        """The next frame: table, key and value of each write, one after the other."""
        self._sync = sync
        self._before_checkpoint = before_checkpoint
        self._on_step = on_step
        self._slices: Iterator[tuple[int, list[Any]]] = iter(())
        self._span = (0, 0)
        self._owed = 0
        self._ordered: dict[int, list[bytes]] = {}
        """By table, the keys of what changed in memory, as they were when somebody began to list it."""
        self.database = Database(path, sync=sync)
        self.levels = Levels(self.database)
        self._recover()

    @property
    def applied(self) -> int:
        """The generation up to which LMDB has everything."""
        return self._applied

    @property
    def changed(self) -> int:
        """Rows that changed in memory since the last `freeze`."""
        return sum(map(len, self.active.values()))

    def put(self, table: int, key: Any, value: Any) -> None:
        """Write a row, as an object or as it is stored; None deletes it."""
        self.writes += (table, key, value)
        self.active[table][key] = value

    def get(self, table: int, key: Any, decode: Callable[[bytes], Value]) -> Value | None:
        """Return a row."""
        for writes in (self.active, self.frozen):
            rows = writes.get(table)
            if rows is not None and key in rows:
                row = rows[key]
                return decode(row) if isinstance(row, bytes) else row
        value = self.levels.find(table, key) if table % KINDS == SEEN_L1 else self.database.stored(table, key)
        return None if value is None else decode(value)

    def count(self, table: int, prefix: bytes, limit: int) -> int | None:
        """Return how many rows of a table begin so, at most `limit`; None when LMDB does not have all changes of it."""
        if self.active.get(table) or self.frozen.get(table):
            return None
        return len(self.database.behind(table, prefix, prefix, limit))

    def is_changed(self, table: int, key: Any) -> bool:
        """Whether the row in LMDB is not how it is now."""
        return key in self.active.get(table, ()) or key in self.frozen.get(table, ())

    def scan(self, table: int, after: bytes, limit: int, decode: Callable[[bytes], Value]) -> list[tuple[bytes, Value]]:
        """Return at most `limit` rows behind a key, in order, as they are now; the first slice begins behind b"".

        Slices of a listing cost the same however much has changed in memory. A row that came after the first slice may
        be missing in the others.
        """
        found: list[tuple[bytes, Value]] = []
        while len(found) < limit:
            stored = dict(self.database.behind(table, after, b"", limit))
            changed = self._changed_behind(table, after, limit)
            ends = [keys[-1] for keys in (list(stored), changed) if len(keys) == limit]
            end = min(ends, default=None)
            keys = sorted({*stored, *changed})
            found += self._rows(table, keys if end is None else keys[: bisect_right(keys, end)], stored, decode)
            if end is None:
                break
            after = end
        return found[:limit]

    def commit(self) -> bool:
        """Make everything so far durable, and let LMDB take over what has gathered. True at the end of a checkpoint."""
        work = len(self.writes)
        self._journal.append(encode(self.writes))
        self._on_step("frame written")
        self._journal.sync()
        self._on_step("frame forced")
        self.writes = []
        if self.frozen:
            return self._advance(max(SLICE_MIN, work))
        if self.levels.sinking:
            self._sink(max(SLICE_MIN, work))
        if self.changed >= OVERLAY_MAX or self._journal.size_bytes >= OVERLAY_MAX_BYTES:
            self._freeze()
        return False

    def settle(self) -> None:
        """Have LMDB take over everything that was committed."""
        if self.frozen:
            self._advance(None)
        if self.active:
            self._freeze()
            self._advance(None)

    def compact(self) -> None:
        """Write LMDB's file anew, without unused room; settle first."""
        self.database.compact()

    def close(self) -> None:
        """Drop what is not committed."""
        self._journal.close()
        self.database.close()

    def _changed_behind(self, table: int, after: bytes, limit: int) -> list[bytes]:
        """Return the first keys behind `after` of what changed in memory, in order."""
        layers = [rows for rows in (self.frozen.get(table), self.active.get(table)) if rows]
        if not after:
            self._ordered.pop(table, None)
        if limit < ORDERED_MIN:
            return nsmallest(limit, {key for rows in layers for key in rows if key > after})
        ordered = self._ordered.get(table)
        if ordered is None:
            ordered = self._ordered[table] = sorted({key for rows in layers for key in rows})
        start = bisect_right(ordered, after)
        return ordered[start : start + limit]

    def _rows(
        self, table: int, keys: Iterable[bytes], stored: Mapping[bytes, bytes], decode: Callable[[bytes], Value]
    ) -> Iterator[tuple[bytes, Value]]:
        """Yield the rows of these keys as they are now, those of LMDB being given."""
        active, frozen = self.active.get(table, {}), self.frozen.get(table, {})
        for key in keys:
            if key in active or key in frozen:
                value = active[key] if key in active else frozen[key]
                if value is not None:
                    yield key, decode(value) if isinstance(value, bytes) else value
            elif key in stored:
                yield key, decode(stored[key])

    def _recover(self) -> None:
        """Apply the journals that LMDB does not have, and begin the next one."""
        value = self.database.stored(table_number(META), APPLIED)
        applied = self._applied = _decode_applied(value) if value else 0
        there = generations(self.path)
        for generation in there:
            if generation <= applied:
                delete_log(self.path, generation)
        missing = [generation for generation in there if generation > applied]
        if missing and missing != list(range(applied + 1, missing[-1] + 1)):
            raise StorageError(f"{self.path}: a journal between {applied} and {missing[-1]} is gone; -O starts afresh")
        for generation in missing:
            self._replay(generation, last=generation == missing[-1])
        self._generation = missing[-1] if missing else applied
        if self.active:
            if self._sync:  # whoever wrote them may have been killed before they were on the disk
                sync_logs(self.path, missing)
            self._swap(applied + 1, self._generation)
            self._advance(None)
        else:  # nothing whole is in them; a torn end would be taken for damage when another one follows
            for generation in missing:
                delete_log(self.path, generation)
            self._generation = applied
        self._begin_journal()

    def _replay(self, generation: int, *, last: bool) -> None:
        for frame in read_frames(self.path, generation, last=last):
            try:
                writes = _decode_frame(frame)
                for table, key, value in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
                    self.active[table][key] = value
            except (msgspec.DecodeError, ValueError, TypeError) as error:
                raise StorageError(f"{self.path}: journal {generation} cannot be read ({error})") from error

    def _begin_journal(self) -> None:
        self._journal = WriteAheadLog(self.path, self._generation + 1, sync=self._sync)
        self._generation += 1

    def _freeze(self) -> None:
        journal, last = self._journal, self._generation
        self._begin_journal()  # first: when that fails, the old one goes on
        journal.close()
        self._swap(self._applied + 1, last)
        self._on_step("journal begun")

    def _swap(self, first: int, last: int) -> None:
        self.frozen, self.active = self.active, defaultdict(dict)
        self._ordered.clear()
        self._span = (first, last)
        self._slices = _slices(self.frozen)

    def _advance(self, rows: int | None) -> bool:
        """Write so many frozen rows to LMDB, or all. True when that was the last."""
        written = 0
        for table, keys in self._slices:
            frozen = self.frozen[table]
            if table % KINDS == SEEN_L1:  # no row of it is ever deleted
                self.levels.write(table, [(key, frozen[key]) for key in keys])
            else:
                self.database.write(table, keys, frozen)
            written += len(keys)
            if rows is not None and written >= rows:
                self._end_slice()
                return False
            if written % SLICE_MAX < len(keys):
                self._end_slice()
        self._finish(*self._span)
        return True

    def _sink(self, rows: int) -> None:
        """Move so many fingerprints down, or with --sync, where a transaction is dear, more of them now and then."""
        self._owed = min(self._owed + rows, SLICE_MAX)
        if self._owed == SLICE_MAX or not self._sync:
            self.levels.sink(self._owed)
            self._end_slice()
            self._owed = 0

    def _end_slice(self) -> None:
        self.database.commit()
        self._on_step("slice committed")

    def _finish(self, first: int, last: int) -> None:
        self._before_checkpoint(first, last, self.frozen)
        self._on_step("filter written")
        self.levels.change_places([table for table in self.frozen if table % KINDS == SEEN_L1])
        self.database.write(table_number(META), [APPLIED], {APPLIED: last})
        self.database.commit()
        self._applied = last
        self._on_step("checkpoint committed")
        self.frozen = {}
        for generation in range(first, last + 1):
            delete_log(self.path, generation)
        self._on_step("journal deleted")


def _slices(writes: Writes) -> Iterator[tuple[int, list[Any]]]:
    """Yield the keys of each table in order, a bounded number at a time."""
    for table in sorted(writes):
        # A float has most digits of a fingerprint, enough to lie beside its neighbours, and is compared faster.
        keys = sorted(writes[table], key=float if table % KINDS == SEEN_L1 else None)
        for start in range(0, len(keys), SLICE_MIN):
            yield table, keys[start : start + SLICE_MIN]
