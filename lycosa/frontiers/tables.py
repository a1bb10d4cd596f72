"""The tables of an embedded frontier in one LMDB environment, and the errors of LMDB as ours.

One write transaction is open from commit to commit and everything goes through it, so reads see what was just written
and a commit is one atomic step over all tables. Without `sync` the operating system writes to the disk in its own time:
that survives the death of the process, not a power loss. No file is mapped for writing, LMDB's lock file neither (the
state has its own lock): on a full disk a mapped page would end the process by a signal, a write fails with an error.

    meta     name               -> msgpack       counters, sink positions, epoch
    hosts    host key           -> msgpack       [host id, started_at, blocked_until, facts]
    queue    QUEUE_KEY          -> record        host id, priority (inverted), arrival
    sleep    SLEEP_KEY          -> record        due (milliseconds), arrival
    dead     arrival            -> msgpack       [record, reason, unix seconds]
    seen:S   fingerprint        -> state + place or finish time and reason; one table a segment, dropped as a whole
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from typing import Any

import lmdb

from lycosa.core.errors import StateError, StorageError, StorageFull

MAP_BYTES = 1 << 40
TABLES_MAX = 4096
FREE_MIN_BYTES = 64 * 1024
"""With less room than this on the device, that is why a write failed."""

DATA = "data.mdb"
HEAD_BYTES = 2 * os.sysconf("SC_PAGESIZE")
"""LMDB begins a file with two pages; a shorter one was never committed to."""

QUEUE_KEY = Struct(">IIQ")
SLEEP_KEY = Struct(">QQ")
FINGERPRINT = Struct(">Q")


def storage_error(path: Path, error: Exception) -> StateError:
    """Turn what LMDB or the disk raise into `StorageFull` or `StorageError`, with the path."""
    if isinstance(error, lmdb.MapFullError):
        return StorageFull(f"{path}: the state has reached its largest size")
    if getattr(error, "errno", None) == errno.ENOSPC or "No space left" in str(error) or _is_full(path):
        return StorageFull(f"{path}: no space left on the device; free some and run the same command again")
    # LMDB begins with the path it was given, and ends with what happened.
    what = str(error).rpartition(": ")[2]
    return StorageError(f"{path}: the database of the state cannot be used ({what}); -O starts afresh")


def _forget_unfinished(file: Path) -> None:
    # LMDB itself would refuse for ever what is left of a creation that found no room.
    if file.exists() and file.stat().st_size < HEAD_BYTES:
        file.unlink()


def _is_full(path: Path) -> bool:
    # LMDB calls a write that found room for a part only an input/output error.
    try:
        return shutil.disk_usage(path).free < FREE_MIN_BYTES
    except OSError:
        return False


class Tables:
    """The environment and its open transaction. Raises `StorageError` and `StorageFull`."""

    def __init__(self, path: Path, *, sync: bool) -> None:
        self.path = path
        self._seen: dict[str, Any] = {}
        try:
            path.mkdir(parents=True, exist_ok=True)
            _forget_unfinished(path / DATA)
            self._env = lmdb.open(
                str(path), map_size=MAP_BYTES, max_dbs=TABLES_MAX, sync=sync, metasync=sync, lock=False
            )
            self.txn = self._env.begin(write=True)
            names = ("meta", "hosts", "queue", "sleep", "dead")
            self.meta, self.hosts, self.queue, self.sleep, self.dead = map(self._table, names)
        except (lmdb.Error, OSError) as error:
            raise storage_error(path, error) from error

    def seen(self, segment: str) -> Any:
        """Return the handle of the segment's table, made when new."""
        table = self._seen.get(segment)
        if table is None:
            table = self._seen[segment] = self._table("seen:" + segment)
        return table

    def commit(self) -> None:
        """End the transaction and start the next. After an error the last commit stands, and nothing more is taken."""
        try:
            self.txn.commit()
            self.txn = self._env.begin(write=True)
        except lmdb.Error as error:
            raise storage_error(self.path, error) from error

    def put(self, table: Any, key: bytes, value: bytes, *, overwrite: bool = True) -> bool:
        """Store; False when the key is there and must not be overwritten."""
        try:
            return bool(self.txn.put(key, value, overwrite=overwrite, db=table))
        except lmdb.Error as error:
            raise storage_error(self.path, error) from error

    def delete(self, table: Any, key: bytes) -> None:
        """Remove."""
        try:
            self.txn.delete(key, db=table)
        except lmdb.Error as error:
            raise storage_error(self.path, error) from error

    def get(self, table: Any, key: bytes) -> bytes | None:
        """Look up."""
        return self.txn.get(key, db=table)

    def close(self) -> None:
        """Drop what is not committed."""
        self.txn.abort()
        self._env.close()

    def scan(self, table: Any, after: bytes, prefix: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` entries behind the key `after` that start with `prefix`."""
        found: list[tuple[bytes, bytes]] = []
        with self.txn.cursor(db=table) as cursor:
            more = cursor.set_range(after)
            if more and cursor.key() == after:
                more = cursor.next()
            while more and len(found) < limit and cursor.key().startswith(prefix):
                found.append(cursor.item())
                more = cursor.next()
        return found

    def first(self, table: Any) -> tuple[bytes, bytes] | None:
        """Return the first entry of a table."""
        with self.txn.cursor(db=table) as cursor:
            return cursor.item() if cursor.first() else None

    def walk(self, table: Any, step: Callable[[bytes], bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yield one entry, then the first one at or behind `step(its key)`, and so on."""
        with self.txn.cursor(db=table) as cursor:
            more = cursor.first()
            while more:
                yield cursor.item()
                more = cursor.set_range(step(cursor.key()))

    def _table(self, name: str) -> Any:
        return self._env.open_db(name.encode(), txn=self.txn)
