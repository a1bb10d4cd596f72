"""The tables of an embedded frontier: what changed lately in memory and in the journal, the rest in LMDB.

    put, delete -> memory (`active`) and the list of the next frame
    commit      -> the frame is appended to the journal: this is when a change is durable
    freeze      -> when enough has gathered, `active` becomes `frozen`, and a new journal begins
    advance     -> `frozen` is written to LMDB, sorted, a slice after the other; then its journal is deleted

So a random key costs its turn in a sorted batch and not a page of its own, and what is pushed and done within the same
batch is never queued on the disk. Every write says what a row is, not how it changes: to apply a journal twice, or half
and then again, is the same as once. Opening applies the journals that LMDB does not have.

LMDB has one write transaction open all the time and everything is read through it. No file is mapped for writing, its
lock file neither (the state has its own lock): on a full disk a mapped page would end the process by a signal, a write
fails with an error. A table has a number: its kind, and the segment it belongs to.

    QUEUE    QUEUE_KEY          -> record        host id, priority (inverted), number of arrival
    SEEN     fingerprint        -> number of arrival, or "s" + SLEEP_KEY while it sleeps
    DONE     number of arrival  -> row           see `rows.DoneRow`
    DEAD     number of arrival  -> [record, reason, unix seconds]
    META     name               -> counters, segments, the generation that LMDB has
    HOSTS    host key           -> [host id, started_at, blocked_until, address, until, queued]
    NAMES    host id            -> host key
    SLEEP    SLEEP_KEY          -> record        due (milliseconds), number of arrival
    FACTS    host key           -> its robots.txt
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from pathlib import Path
from struct import Struct
from typing import Any, TypeVar

import lmdb
import msgspec

from lycosa.core.errors import StorageError
from lycosa.frontiers.disk import storage_error, sync_file, sync_folder
from lycosa.frontiers.journal import Journal, forget, frames, generations

Value = TypeVar("Value")
Writes = dict[int, dict[Any, Any]]
"""By table: the rows as they are now, None for one that is gone."""

OVERLAY_MAX = 200_000
"""Rows that change in memory before LMDB takes them over; twice as many at most, while it does."""

SLICE_MIN = 2_000
SLICE_MAX = 20_000
"""Rows written in one LMDB transaction: at least, at most."""

ORDERED_MIN = 100
"""Slices of so many rows are worth putting what changed in memory in order, once for all slices of a listing."""

MAP_BYTES = 1 << 40
SEGMENTS_MAX = 1000
KINDS = 16
QUEUE, SEEN, DONE, DEAD, META, HOSTS, NAMES, SLEEP, FACTS = range(9)
OF_SEGMENTS = (QUEUE, SEEN, DONE, DEAD)

DATA = "data.mdb"
HEAD_BYTES = 8192
"""LMDB begins a file with two pages; a shorter one was never committed to."""

APPLIED = b"applied"
QUEUE_KEY = Struct(">IIQ")
SLEEP_KEY = Struct(">QQ")
FINGERPRINT = Struct(">Q")
PRIORITY_ZERO = 1 << 31
"""Priority 0 as it stands in a queue key."""

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

encode = msgspec.msgpack.Encoder().encode
_decode_frame = msgspec.msgpack.Decoder(list[Any]).decode
_decode_applied = msgspec.msgpack.Decoder(int).decode


def number(kind: int, segment: int = 0) -> int:
    """Return the number of a table."""
    return segment * KINDS + kind


class Tables:
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
        self._handles: dict[int, Any] = {}
        self._batches: Iterator[tuple[int, list[tuple[Any, Any]]]] = iter(())
        self._span = (0, 0)
        self._ordered: dict[int, list[bytes]] = {}
        """By table, the keys of what changed in memory, as they were when somebody began to list it."""
        self._open()
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
        """Write a row; None deletes it."""
        self.writes += (table, key, value)
        self.active[table][key] = value

    def get(self, table: int, key: Any, decode: Callable[[bytes], Value]) -> Value | None:
        """Return a row."""
        for writes in (self.active, self.frozen):
            rows = writes.get(table)
            if rows is not None and key in rows:
                return rows[key]  # type: ignore[no-any-return]
        value = self.stored(table, key)
        return None if value is None else decode(value)

    def stored(self, table: int, key: Any) -> bytes | None:
        """Return what LMDB has under a key, whatever changed since."""
        found: bytes | None = self._txn.get(_packed(table, key), db=self._handle(table))
        return found

    def behind(self, table: int, after: bytes, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows of LMDB behind a key that start with `prefix`, whatever changed since."""
        found: list[tuple[bytes, bytes]] = []
        with self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.set_range(after) if after else cursor.first()
            if more and cursor.key() == after:
                more = cursor.next()
            while more and len(found) < limit and cursor.key().startswith(prefix):
                found.append(cursor.item())
                more = cursor.next()
        return found

    def count(self, table: int, prefix: bytes, limit: int) -> int | None:
        """Return how many rows of a table begin so, at most `limit`; None when LMDB does not have all changes of it."""
        if self.active.get(table) or self.frozen.get(table):
            return None
        found = 0
        with self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.set_range(prefix)
            while more and found < limit and cursor.key().startswith(prefix):
                found += 1
                more = cursor.next()
        return found

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
            stored = dict(self.behind(table, after, b"", limit))
            changed = self._changed_behind(table, after, limit)
            ends = [keys[-1] for keys in (list(stored), changed) if len(keys) == limit]
            end = min(ends, default=None)
            keys = sorted({*stored, *changed})
            found += self._rows(table, keys if end is None else keys[: bisect_right(keys, end)], stored, decode)
            if end is None:
                break
            after = end
        return found[:limit]

    def walk(self, table: int, step: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield one row of LMDB, then the first one at or behind `step(its key)`, and so on."""
        with self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.first()
            while more:
                yield cursor.item()
                more = cursor.set_range(step(cursor.key()))

    def commit(self) -> bool:
        """Make everything so far durable, and let LMDB take over what has gathered. True at the end of a checkpoint."""
        work = len(self.writes)
        self._journal.append(encode(self.writes))
        self._on_step("frame written")
        self._journal.force()
        self._on_step("frame forced")
        self.writes = []
        if self.frozen:
            return self._advance(max(SLICE_MIN, work))
        if self.changed >= OVERLAY_MAX:
            self._freeze()
        return False

    def settle(self) -> None:
        """Have LMDB take over everything that was committed."""
        if self.frozen:
            self._advance(None)
        if self.active:
            self._freeze()
            self._advance(None)

    def drop(self, table: int) -> None:
        """Delete a table as a whole; settle first."""
        self._handle(table)
        self._txn.drop(self._handles.pop(table), delete=True)
        self._end_transaction()

    def compact(self) -> None:
        """Write LMDB's file anew, without unused room; settle first."""
        draft = self.path / "compacted"
        try:
            draft.mkdir(exist_ok=True)
            self._end_transaction()
            self._env.copy(str(draft), compact=True)
            self.close()
            if self._sync:
                sync_file(draft / DATA)
            (draft / DATA).replace(self.path / DATA)
            draft.rmdir()
            if self._sync:
                sync_folder(self.path)
            self._handles.clear()
            self._open()
            self._journal = Journal(self.path, self._generation, sync=self._sync)
        except (lmdb.Error, OSError) as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        """Drop what is not committed."""
        self._journal.close()
        self._txn.abort()
        self._env.close()

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
                    yield key, value
            elif key in stored:
                yield key, decode(stored[key])

    def _open(self) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _forget_unfinished(self.path / DATA)
            self._env = lmdb.open(
                str(self.path),
                map_size=MAP_BYTES,
                max_dbs=SEGMENTS_MAX * len(OF_SEGMENTS) + KINDS,
                sync=self._sync,
                metasync=self._sync,
                lock=False,
            )
            self._txn = self._env.begin(write=True)
        except (lmdb.Error, OSError) as error:
            raise storage_error(self.path, error) from error

    def _recover(self) -> None:
        """Apply the journals that LMDB does not have, and begin the next one."""
        value = self.stored(number(META), APPLIED)
        applied = self._applied = _decode_applied(value) if value else 0
        there = generations(self.path)
        for generation in there:
            if generation <= applied:
                forget(self.path, generation)
        missing = [generation for generation in there if generation > applied]
        if missing and missing != list(range(applied + 1, missing[-1] + 1)):
            raise StorageError(f"{self.path}: a journal between {applied} and {missing[-1]} is gone; -O starts afresh")
        for generation in missing:
            self._replay(generation, last=generation == missing[-1])
        self._generation = missing[-1] if missing else applied
        if self.active:
            self._swap(applied + 1, self._generation)
            self._advance(None)
        else:  # nothing whole is in them; a torn end would be taken for damage when another one follows
            for generation in missing:
                forget(self.path, generation)
            self._generation = applied
        self._begin_journal()

    def _replay(self, generation: int, *, last: bool) -> None:
        for frame in frames(self.path, generation, last=last):
            try:
                writes = _decode_frame(frame)
                for table, key, value in zip(writes[::3], writes[1::3], writes[2::3], strict=True):
                    self.active[table][key] = value
            except (msgspec.DecodeError, ValueError, TypeError) as error:
                raise StorageError(f"{self.path}: journal {generation} cannot be read ({error})") from error

    def _begin_journal(self) -> None:
        self._generation += 1
        self._journal = Journal(self.path, self._generation, sync=self._sync)

    def _freeze(self) -> None:
        self._swap(self._applied + 1, self._generation)
        self._journal.close()
        self._begin_journal()
        self._on_step("journal begun")

    def _swap(self, first: int, last: int) -> None:
        self.frozen, self.active = self.active, defaultdict(dict)
        self._ordered.clear()
        self._span = (first, last)
        self._batches = _slices(self.frozen)

    def _advance(self, rows: int | None) -> bool:
        """Write so many frozen rows to LMDB, or all. True when that was the last."""
        written = 0
        for table, batch in self._batches:
            self._write(table, batch)
            written += len(batch)
            if rows is not None and written >= rows:
                self._end_transaction()
                self._on_step("slice committed")
                return False
            if written % SLICE_MAX < len(batch):
                self._end_transaction()
                self._on_step("slice committed")
        self._finish(*self._span)
        return True

    def _finish(self, first: int, last: int) -> None:
        self._before_checkpoint(first, last, self.frozen)
        self._on_step("filter written")
        self._write(number(META), [(APPLIED, last)])
        self._end_transaction()
        self._applied = last
        self._on_step("checkpoint committed")
        self.frozen = {}
        for generation in range(first, last + 1):
            forget(self.path, generation)
        self._on_step("journal deleted")

    def _write(self, table: int, batch: list[tuple[Any, Any]]) -> None:
        handle = self._handle(table)
        raw = table % KINDS == SEEN
        puts = [(_packed(table, key), value if raw else encode(value)) for key, value in batch if value is not None]
        try:
            with self._txn.cursor(db=handle) as cursor:
                cursor.putmulti(puts)
            for key, value in batch:
                if value is None:
                    self._txn.delete(_packed(table, key), db=handle)
        except lmdb.Error as error:
            raise storage_error(self.path, error) from error

    def _end_transaction(self) -> None:
        try:
            self._txn.commit()
            self._txn = self._env.begin(write=True)
        except lmdb.Error as error:
            raise storage_error(self.path, error) from error

    def _handle(self, table: int) -> Any:
        handle = self._handles.get(table)
        if handle is None:
            try:
                handle = self._handles[table] = self._env.open_db(str(table).encode(), txn=self._txn)
            except lmdb.Error as error:
                raise storage_error(self.path, error) from error
        return handle


def _packed(table: int, key: Any) -> bytes:
    return FINGERPRINT.pack(key) if table % KINDS == SEEN else key


def _slices(writes: Writes) -> Iterator[tuple[int, list[tuple[Any, Any]]]]:
    """Yield the rows of each table in the order of their keys, a bounded number at a time."""
    for table in sorted(writes):
        rows = writes[table]
        keys = sorted(rows)
        for start in range(0, len(keys), SLICE_MIN):
            yield table, [(key, rows[key]) for key in keys[start : start + SLICE_MIN]]


def _forget_unfinished(file: Path) -> None:
    # LMDB itself would refuse for ever what is left of a creation that found no room.
    if file.exists() and file.stat().st_size < HEAD_BYTES:
        file.unlink()
