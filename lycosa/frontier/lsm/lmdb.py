"""The LMDB of an embedded frontier: its tables, its one transaction, and its errors as ours.

One write transaction is open all the time and everything is read through it. No file is mapped for writing, its
lock file neither (the state has its own lock): on a full disk a mapped page would end the process by a signal, a write
fails with an error. A table has a number: its kind, and the segment it belongs to.

    QUEUE    QUEUE_KEY          -> record        host id, priority (inverted), number of arrival
    SEEN     fingerprint        -> number of arrival, or "s" + SLEEP_KEY while it sleeps
    LATE, LATER                    what SEEN does not have yet: see `levels`
    DONE     number of arrival  -> row           see `rows.DoneRow`
    DEAD     number of arrival  -> [record, reason, unix seconds]
    META     name               -> counters, segments, the generation that LMDB has
    HOSTS    host key           -> [host id, started_at, blocked_until, address, until, queued]
    NAMES    host id            -> host key
    SLEEP    SLEEP_KEY          -> record        due (milliseconds), number of arrival
    FACTS    host key           -> its robots.txt
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
from lycosa.infra.durable_files import make_folder, storage_error, sync_file, sync_folder

MAP_BYTES = 1 << 40
SEGMENTS_MAX = 1000
KINDS = 16
QUEUE, SEEN_L1, DONE, DEAD, META, HOSTS, NAMES, DELAYED, FACTS, SEEN_L0A, SEEN_L0B = range(11)
OF_SEGMENTS = (QUEUE, SEEN_L1, DONE, DEAD, SEEN_L0A, SEEN_L0B)

READ_AT_ONCE = 100
"""Rows that are read before it is asked whether they are still of the host."""

DATA = "data.mdb"
QUEUE_KEY = Struct(">IIQ")
DELAYED_KEY = Struct(">QQ")
FINGERPRINT = Struct(">Q")
PRIORITY_ZERO = 1 << 31
"""Priority 0 as it stands in a queue key."""

encode = msgspec.msgpack.Encoder().encode


def table_number(kind: int, segment: int = 0) -> int:
    """Return the number of a table."""
    return segment * KINDS + kind


class Database:
    """See above. Raises `StorageError` and `StorageFull`."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self._sync = sync
        self._handles: dict[int, Any] = {}
        self._failed: StateError | None = None
        """Why a transaction was lost: with it went rows that no later one would write."""
        self._env, self._txn = self._open()

    def stored(self, table: int, key: bytes) -> bytes | None:
        """Return the row of a key as it is stored."""
        try:
            found: bytes | None = self._txn.get(key, db=self._handles.get(table) or self._handle(table))
        except lmdb.Error as error:
            raise self._failure(error) from error
        return found

    def behind(self, table: int, after: bytes, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` rows behind the key `after` whose keys start with `prefix`."""
        with self._failing(), self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.set_range(after) if after else cursor.first()
            if more and cursor.key() == after:
                more = cursor.next()
            rows = iter(cursor) if more else iter(())
            found: list[tuple[bytes, bytes]] = []
            while len(found) < limit and (some := list(islice(rows, min(limit - len(found), READ_AT_ONCE)))):
                if not some[-1][0].startswith(prefix):
                    return found + [row for row in some if row[0].startswith(prefix)]
                found += some
        return found

    def walk(self, table: int, step: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield the first row, then the first one at or behind `step(its key)`, and so on."""
        with self._failing(), self._txn.cursor(db=self._handle(table)) as cursor:
            more = cursor.first()
            while more:
                yield cursor.item()
                more = cursor.set_range(step(cursor.key()))

    def tables(self) -> list[int]:
        """Return the numbers of the tables there are."""
        with self._failing(), self._txn.cursor() as cursor:
            return [int(name) for name in cursor.iternext(keys=True, values=False)]

    def count(self, table: int) -> int:
        """Return how many rows a table has."""
        with self._failing():
            rows: int = self._txn.stat(self._handle(table))["entries"]
        return rows

    def write(self, table: int, keys: Sequence[Any], rows: Mapping[Any, Any]) -> None:
        """Write the rows of these keys, which are in order: bytes as they are, None deletes."""
        found = [(key, rows[key]) for key in keys]
        puts = [(key, row if type(row) is bytes else encode(row)) for key, row in found if row is not None]
        self.put(table, puts)
        if len(puts) == len(keys):
            return
        with self._failing():
            handle = self._handle(table)
            for key, row in found:
                if row is None:
                    self._txn.delete(key, db=handle)

    def put(self, table: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write these rows, which are in order, as they are."""
        with self._failing(), self._txn.cursor(db=self._handle(table)) as cursor:
            cursor.putmulti(rows)

    def commit(self) -> None:
        """End the transaction, and begin the next."""
        with self._failing():
            self._txn.commit()
            self._txn = self._env.begin(write=True)

    def empty(self, table: int) -> None:
        """Delete all rows of a table."""
        with self._failing():
            self._txn.drop(self._handle(table), delete=False)

    def drop(self, table: int) -> None:
        """Delete a table as a whole; commit before anything of it is read or written."""
        with self._failing():
            self._txn.drop(self._handle(table), delete=True)
            del self._handles[table]

    def compact(self) -> None:
        """Write the file anew, without unused room."""
        draft = self.path / "compacted"
        try:
            rmtree(draft, ignore_errors=True)  # of a compaction that was killed
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
        except (lmdb.Error, OSError) as error:
            raise storage_error(self.path, error) from error
        self._handles.clear()
        self._env, self._txn = self._open()

    def close(self) -> None:
        """Drop what is not committed."""
        self._txn.abort()
        self._env.close()

    def _open(self) -> tuple[Any, Any]:
        try:
            make_folder(self.path)
            if not (self.path / DATA).exists():
                _make(self.path / DATA)
            env = lmdb.open(
                str(self.path),
                map_size=MAP_BYTES,
                max_dbs=SEGMENTS_MAX * len(OF_SEGMENTS) + KINDS,
                sync=self._sync,
                metasync=self._sync,
                lock=False,
            )
            return env, env.begin(write=True)
        except (lmdb.Error, OSError) as error:
            raise storage_error(self.path, error) from error

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except lmdb.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: lmdb.Error) -> StateError:
        """Return the first error: whatever comes after it is its consequence, and would name a wrong cause."""
        if self._failed is None:
            self._failed = storage_error(self.path, error)
        return self._failed

    def _handle(self, table: int) -> Any:
        handle = self._handles.get(table)
        if handle is None:
            try:
                handle = self._handles[table] = self._env.open_db(str(table).encode(), txn=self._txn)
            except lmdb.Error as error:
                raise storage_error(self.path, error) from error
        return handle


def _make(file: Path) -> None:
    """Make an empty database, which is there as a whole or not at all."""
    draft = file.with_name(file.name + ".new")
    draft.unlink(missing_ok=True)
    lmdb.open(str(draft), subdir=False, lock=False).close()
    sync_file(draft)
    draft.replace(file)
    sync_folder(file.parent)
