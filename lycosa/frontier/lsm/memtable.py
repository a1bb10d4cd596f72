"""The tables of an embedded frontier: recent changes in memory and in the write-ahead log, all other rows in LMDB.

    put      -> the row is stored in memory (`active`) and in the list of writes for the next frame
    commit   -> the frame is appended to the log: the changes are now durable
    freeze   -> once `active` is large enough, it becomes `frozen`, and a new log begins
    flush    -> `frozen` is written to LMDB in sorted slices, one per commit; then its log is deleted

Each write contains the whole row, so a log may be applied twice, or partly and then completely. Opening applies the
logs that LMDB does not have yet. The reasons are in docs/decisions/0005-journal-before-lmdb.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from lycosa.core.errors import DamagedState, StorageError
from lycosa.frontier.lsm.levels import Levels
from lycosa.frontier.lsm.lmdb import KINDS, META, SEEN_L1, Database, encode, table_number
from lycosa.frontier.lsm.wal import WriteAheadLog, delete_log, generations, read_frames, sync_logs
from lycosa.infra.durable_files import DAMAGE_ADVICE

Value = TypeVar("Value")
Writes = dict[int, dict[Any, Any]]
"""The changed rows of each table, by key; None for a deleted row."""

MEMTABLE_MAX = 200_000
"""Number of changed rows at which a flush to LMDB begins. During a flush memory may hold twice as many."""

MEMTABLE_MAX_BYTES = 64 << 20
"""Log size in bytes at which a flush begins even with fewer rows: URLs and bodies may be long."""

SLICE_MIN = 2_000
SLICE_MAX = 20_000
"""Approximate minimum and maximum number of rows written in one LMDB transaction."""

ORDERED_MIN = 100
"""A listing in slices of at least this many rows sorts the changed keys only once."""

APPLIED = b"applied"
STEPS = (
    "frame written",
    "frame synced",
    "log rotated",
    "filter written",
    "slice committed",
    "checkpoint committed",
    "log deleted",
)
"""The steps of a commit that `on_step` receives; the last five only while changes move to LMDB.

"slice committed" precedes "filter written".
"""

_decode_frame = msgspec.msgpack.Decoder(list[Any]).decode
_decode_applied = msgspec.msgpack.Decoder(int).decode


class Memtable:
    """All tables, with recent changes in memory. Raises `StorageError` and `StorageFull`.

    `before_checkpoint(first, last, frozen)` is called before LMDB records that it has the log generations `first` to
    `last`.
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
        """The writes of the next frame as a flat list: table, key, value, table, ..."""
        self._sync = sync
        self._before_checkpoint = before_checkpoint
        self._on_step = on_step
        self._slices: Iterator[tuple[int, list[Any]]] = iter(())
        self._span = (0, 0)
        self._rows_to_compact = 0
        self._ordered: dict[int, list[bytes]] = {}
        """The sorted keys of the changed rows of each table, as of the start of a listing."""
        self.database = Database(path, sync=sync)
        self.levels = Levels(self.database)
        self._recover()

    @property
    def changed(self) -> int:
        """The number of rows changed since the last freeze."""
        return sum(map(len, self.active.values()))

    def put(self, table: int, key: Any, value: Any) -> None:
        """Write a row, as an object or encoded; None deletes it."""
        self.writes += (table, key, value)
        self.active[table][key] = value

    def get(self, table: int, key: Any, decode: Callable[[bytes], Value]) -> Value | None:
        for writes in (self.active, self.frozen):
            rows = writes.get(table)
            if rows is not None and key in rows:
                row = rows[key]
                return decode(row) if isinstance(row, bytes) else row
        value = self.levels.find(table, key) if table % KINDS == SEEN_L1 else self.database.get(table, key)
        return None if value is None else decode(value)

    def count(self, table: int, prefix: bytes, limit: int) -> int | None:
        """The number of rows with this prefix, at most `limit`; None if the table has changes in memory."""
        if self.active.get(table) or self.frozen.get(table):
            return None
        return len(self.database.rows_after(table, prefix, prefix, limit))

    def is_changed(self, table: int, key: Any) -> bool:
        """Whether the row has changes that LMDB may not have yet."""
        return key in self.active.get(table, ()) or key in self.frozen.get(table, ())

    def scan(
        self, table: int, after: bytes, limit: int, decode: Callable[[bytes, bytes], Value]
    ) -> list[tuple[bytes, Value]]:
        """Return at most `limit` current rows after a key, in key order; b"" starts a listing.

        If `limit` is at least ORDERED_MIN, rows added after the first slice may be missing from later slices.
        """
        found: list[tuple[bytes, Value]] = []
        while len(found) < limit:
            stored = dict(self.database.rows_after(table, after, b"", limit))
            changed = self._changed_after(table, after, limit)
            # A source that returned `limit` keys may have more after them: merge only up to its last key.
            ends = [keys[-1] for keys in (list(stored), changed) if len(keys) == limit]
            end = min(ends, default=None)
            keys = sorted({*stored, *changed})
            found += self._merge(table, keys if end is None else keys[: bisect_right(keys, end)], stored, decode)
            if end is None:
                break
            after = end
        return found[:limit]

    def commit(self) -> bool:
        """Make all changes durable, and flush some frozen rows to LMDB. Return whether that completed a checkpoint."""
        work = len(self.writes)
        self._log.append(encode(self.writes))
        self._on_step("frame written")
        self._log.sync()
        self._on_step("frame synced")
        self.writes = []
        if self.frozen:
            return self._flush(max(SLICE_MIN, work))
        if self.levels.compacting:
            self._compact_levels(max(SLICE_MIN, work))
        if self.changed >= MEMTABLE_MAX or self._log.size_bytes >= MEMTABLE_MAX_BYTES:
            self._freeze()
        return False

    def checkpoint(self) -> None:
        """Write all changes to LMDB. Call `commit` first."""
        if self.frozen:
            self._flush(None)
        if self.active:
            self._freeze()
            self._flush(None)

    def compact(self) -> None:
        """Call `checkpoint` first."""
        self.database.compact()

    def close(self) -> None:
        """Uncommitted changes are lost."""
        self._log.close()
        self.database.close()

    def _changed_after(self, table: int, after: bytes, limit: int) -> list[bytes]:
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

    def _merge(
        self, table: int, keys: Iterable[bytes], stored: Mapping[bytes, bytes], decode: Callable[[bytes, bytes], Value]
    ) -> Iterator[tuple[bytes, Value]]:
        """`stored` has the rows of LMDB."""
        active, frozen = self.active.get(table, {}), self.frozen.get(table, {})
        for key in keys:
            if key in active or key in frozen:
                value = active[key] if key in active else frozen[key]
                if value is not None:
                    yield key, decode(key, value) if isinstance(value, bytes) else value
            elif key in stored:
                yield key, decode(key, stored[key])

    def _recover(self) -> None:
        """Apply the logs that LMDB does not have yet, and begin a new log."""
        value = self.database.get(table_number(META), APPLIED)
        applied = self.applied = _decode_applied(value) if value else 0
        """LMDB has all log generations up to this one."""
        logs = generations(self.path)
        for generation in logs:
            if generation <= applied:
                delete_log(self.path, generation)
        missing = [generation for generation in logs if generation > applied]
        if missing and missing != list(range(applied + 1, missing[-1] + 1)):
            raise DamagedState(f"{self.path}: journal.{applied + 1} or a later one is missing", advice=DAMAGE_ADVICE)
        for generation in missing:
            self._replay(generation, last=generation == missing[-1])
        self._generation = missing[-1] if missing else applied
        if self.active:
            if self._sync:  # their writer may have been killed before it synced them
                sync_logs(self.path, missing)
            self._swap(applied + 1, self._generation)
            self._flush(None)
        else:
            # These logs have no complete frame. A torn end would count as damage once another log follows it.
            for generation in missing:
                delete_log(self.path, generation)
            self._generation = applied
        self._begin_log()

    def _replay(self, generation: int, *, last: bool) -> None:
        for frame in read_frames(self.path, generation, last=last):
            try:
                writes = _decode_frame(frame)
                for table, key, value in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
                    self.active[table][key] = value
            except (msgspec.DecodeError, ValueError, TypeError) as error:
                raise StorageError(f"{self.path}: journal.{generation} cannot be read ({error})") from error

    def _begin_log(self) -> None:
        self._log = WriteAheadLog(self.path, self._generation + 1, sync=self._sync)
        self._generation += 1

    def _freeze(self) -> None:
        log, last = self._log, self._generation
        self._begin_log()  # first: if it fails, the old log stays in use
        log.close()
        self._swap(self.applied + 1, last)
        self._on_step("log rotated")

    def _swap(self, first: int, last: int) -> None:
        self.frozen, self.active = self.active, defaultdict(dict)
        self._ordered.clear()
        self._span = (first, last)
        self._slices = _slices(self.frozen)

    def _flush(self, rows: int | None) -> bool:
        """Write about `rows` frozen rows to LMDB; None: all of them. Return whether none are left."""
        written = 0
        for table, keys in self._slices:
            frozen = self.frozen[table]
            if table % KINDS == SEEN_L1:  # rows of this table are never deleted
                self.levels.write(table, [(key, frozen[key]) for key in keys])
            else:
                self.database.write(table, keys, frozen)
            written += len(keys)
            if rows is not None and written >= rows:
                self._commit_slice()
                return False
            if written % SLICE_MAX < len(keys):
                self._commit_slice()
        self._complete_checkpoint(*self._span)
        return True

    def _compact_levels(self, rows: int) -> None:
        # With --sync a transaction is expensive: move the rows of many commits in one.
        self._rows_to_compact = min(self._rows_to_compact + rows, SLICE_MAX)
        if self._rows_to_compact == SLICE_MAX or not self._sync:
            self.levels.compact(self._rows_to_compact)
            self._commit_slice()
            self._rows_to_compact = 0

    def _commit_slice(self) -> None:
        self.database.commit()
        self._on_step("slice committed")

    def _complete_checkpoint(self, first: int, last: int) -> None:
        self._before_checkpoint(first, last, self.frozen)
        self._on_step("filter written")
        self.levels.rotate_if_full([table for table in self.frozen if table % KINDS == SEEN_L1])
        self.database.write(table_number(META), [APPLIED], {APPLIED: last})
        self.database.commit()
        self.applied = last
        self._on_step("checkpoint committed")
        self.frozen = {}
        for generation in range(first, last + 1):
            delete_log(self.path, generation)
        self._on_step("log deleted")


def _slices(writes: Writes) -> Iterator[tuple[int, list[Any]]]:
    """Yield (table, sorted keys), at most SLICE_MIN keys at a time."""
    for table in sorted(writes):
        # Floats are faster to compare, and keep enough digits of a fingerprint to sort it next to its neighbours.
        keys = sorted(writes[table], key=float if table % KINDS == SEEN_L1 else None)
        for start in range(0, len(keys), SLICE_MIN):
            yield table, keys[start : start + SLICE_MIN]
