"""The LMDB database of an embedded frontier: its tables, its single transaction, and the conversion of its errors.

One write transaction is always open, and all reads go through it. No file is mapped for writing: on a full disk, a
write to a mapped page would kill the process with SIGBUS, while a write call fails with an error. LMDB would map its
lock file for writing, so its locking is off; the lock of the state directory replaces it. The number of a table
combines its kind and its segment.

    QUEUE        QUEUE_KEY          -> record
    SEEN_L1      fingerprint        -> arrival number; for a delayed record its mark (`infohash_rows`)
    SEEN_L0A/B                         newer rows that are not in SEEN_L1 yet: see `levels`
    DONE         arrival number     -> `rows.DoneRow`
    DEAD         arrival number     -> [record, reason, unix seconds]
    META         name               -> counters, segments, newest L0 table, number of the latest log written to LMDB
    HOSTS        host key           -> [host id, started_at, blocked_until, address, address_until, queued]
    NAMES        host id            -> host key
    DELAYED      DELAYED_KEY        -> record
    FACTS        host key           -> `HostFacts`

QUEUE_KEY is the host id, the inverted priority and the arrival number. DELAYED_KEY is the due time in milliseconds and
the arrival number. In QUEUE, DONE and DELAYED the rows of infohashes are packed if possible (`infohash_rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shutil import rmtree
from struct import Struct
from typing import Any

import lmdb
import msgspec

from lycosa.core.errors import StateError
from lycosa.infra.durable_files import make_folder, storage_error, storage_errors, sync_file, sync_folder

MAP_BYTES = 1 << 40
SEGMENTS_MAX = 1000
KINDS = 16
# The order is the stored format: append only.
QUEUE, SEEN_L1, DONE, DEAD, META, HOSTS, NAMES, DELAYED, FACTS, SEEN_L0A, SEEN_L0B = range(11)
SEGMENT_KINDS = (QUEUE, SEEN_L1, DONE, DEAD, SEEN_L0A, SEEN_L0B)

READ_AHEAD = 100
"""Rows are read in batches of this size, and the prefix is checked after each batch."""

DATA = "data.mdb"
QUEUE_KEY = Struct(">IIQ")
FINGERPRINT = Struct(">Q")
PRIORITY_ZERO = 1 << 31

encode = msgspec.msgpack.Encoder().encode


def table_number(kind: int, segment: int = 0) -> int:
    """Return the number of a table."""
    return segment * KINDS + kind


class Database:
    """An open LMDB environment with one write transaction. Raises `StorageError` and `StorageFull`."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self._sync = sync
        self._handles: dict[int, Any] = {}
        # The first error. The transaction and its rows are lost with it, so every later call must fail, too.
        self._first_error: StateError | None = None
        self._env, self._txn = self._open()

    def get(self, table: int, key: bytes) -> bytes | None:
        try:
            found: bytes | None = self._txn.get(key, db=self._handles.get(table) or self._handle(table))
        except lmdb.Error as error:
            raise self._error(error) from error
        return found

    def rows_after(self, table: int, after: bytes, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows whose keys follow `after` and start with `prefix`."""
        with self._converting_errors(), self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.set_range(after) if after else cursor.first()
            if more and cursor.key() == after:
                more = cursor.next()
            rows = iter(cursor) if more else iter(())
            found: list[tuple[bytes, bytes]] = []
            while len(found) < limit and (batch := list(islice(rows, min(limit - len(found), READ_AHEAD)))):
                if not batch[-1][0].startswith(prefix):
                    return found + [row for row in batch if row[0].startswith(prefix)]
                found += batch
        return found

    def skip_scan(self, table: int, next_key: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the first row, then repeatedly the first row at or after `next_key(key of the previous row)`."""
        with self._converting_errors(), self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.first()
            while more:
                yield cursor.item()
                more = cursor.set_range(next_key(cursor.key()))

    def tables(self) -> list[int]:
        with self._converting_errors(), self._txn.cursor() as cursor:
            return [int(name) for name in cursor.iternext(keys=True, values=False)]

    def count(self, table: int) -> int:
        with self._converting_errors():
            rows: int = self._txn.stat(self._handle(table))["entries"]
        return rows

    def write(self, table: int, keys: Sequence[Any], rows: Mapping[Any, Any]) -> None:
        """Write the rows of these sorted keys: bytes unchanged, other values encoded. None deletes a row."""
        found = [(key, rows[key]) for key in keys]
        puts = [(key, row if type(row) is bytes else encode(row)) for key, row in found if row is not None]
        self.put(table, puts)
        if len(puts) == len(keys):
            return
        with self._converting_errors():
            handle = self._handle(table)
            for key, row in found:
                if row is None:
                    self._txn.delete(key, db=handle)

    def put(self, table: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """The rows must be encoded. Sorted rows are written faster."""
        with self._converting_errors(), self._txn.cursor(db=self._handle(table)) as cursor:
            cursor.putmulti(rows)

    def commit(self) -> None:
        with self._converting_errors():
            self._txn.commit()
            self._txn = self._env.begin(write=True)

    def delete_first(self, table: int, rows: int) -> None:
        """The table must have at least this many rows."""
        with self._converting_errors(), self._txn.cursor(db=self._handle(table)) as cursor:
            cursor.first()
            for _ in range(rows):
                cursor.delete()

    def drop(self, table: int) -> None:
        """The caller must commit before using the table again."""
        with self._converting_errors():
            self._txn.drop(self._handle(table), delete=True)
            del self._handles[table]

    def compact(self) -> None:
        draft = self.path / "compacted"
        with storage_errors(self.path):
            rmtree(draft, ignore_errors=True)  # left by a compaction that was killed
            draft.mkdir()
            self.commit()
            self._env.copy(str(draft), compact=True)
            self.close()
            if self._sync:
                sync_file(draft / DATA)
            (draft / DATA).replace(self.path / DATA)
            draft.rmdir()
            if self._sync:
                sync_folder(self.path)
        self._handles.clear()
        self._env, self._txn = self._open()

    def close(self) -> None:
        """Discard uncommitted changes."""
        self._txn.abort()
        self._env.close()

    def _open(self) -> tuple[Any, Any]:
        with storage_errors(self.path):
            make_folder(self.path)
            if not (self.path / DATA).exists():
                _make(self.path / DATA)
            env = lmdb.open(
                str(self.path),
                map_size=MAP_BYTES,
                max_dbs=SEGMENTS_MAX * len(SEGMENT_KINDS) + KINDS,
                sync=self._sync,
                metasync=self._sync,
                lock=False,
            )
            return env, env.begin(write=True)

    @contextmanager
    def _converting_errors(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._error(error) from error

    def _error(self, error: lmdb.Error) -> StateError:
        """Return the first error: later ones would name a wrong cause."""
        if self._first_error is None:
            self._first_error = storage_error(self.path, error)
        return self._first_error

    def _handle(self, table: int) -> Any:
        handle = self._handles.get(table)
        if handle is None:
            with storage_errors(self.path):
                handle = self._handles[table] = self._env.open_db(str(table).encode(), txn=self._txn)
        return handle


def _make(file: Path) -> None:
    """Create an empty database, atomically."""
    draft = file.with_name(file.name + ".new")
    draft.unlink(missing_ok=True)
    lmdb.open(str(draft), subdir=False, lock=False).close()
    sync_file(draft)
    draft.replace(file)
    sync_folder(file.parent)
