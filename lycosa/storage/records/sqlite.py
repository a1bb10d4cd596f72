"""A record store in one SQLite file. Eviction limits the total size of the database and its write-ahead log."""

from __future__ import annotations

import sqlite3
from functools import partial
from operator import itemgetter
from pathlib import Path

from lycosa.core.errors import ForeignState, LycosaError, NewerState, StorageUnavailable, UsageError
from lycosa.infra.sqlite import DatabaseHeader, error_code, open_database, storage_error, transaction
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.records.database import VALUES_MAX, slices
from lycosa.storage.records.rows import ADD_COLUMN, NEW_COLUMN, TABLES
from lycosa.storage.records.tables import EVICT_ROWS, PUT_ROWS, TableRecordStore, by_size

FORMAT = int.from_bytes(b"LyTR")
VERSION = 1
PAGE_BYTES = 16_384
"""Large pages leave less space unused than small ones."""
CHECKPOINT_PAGES = 250
VACUUM_PAGES = 100
LOG_MAX_BYTES = 12 << 20
"""Space reserved for the log: its size at a checkpoint plus the largest transaction."""
LOG_SHARE = 8
"""The log may take at most 1/LOG_SHARE of a store with a maximum size: a small store has smaller transactions."""
SIZE_MIN_BYTES = 24 << 20
EVICT_SHARE = 200_000
"""An eviction needs a scan, so it removes many torrents: one for each EVICT_SHARE bytes of the maximum size, which is
about one torrent in 200."""
REPACKED, REPACK_MIN = 5, 5_000
"""After an eviction, stored torrents are written again, to close the gaps that the evicted torrents leave: REPACKED
torrents for each evicted one, but at least REPACK_MIN. SQLite itself closes a gap only when two thirds of a page
are free. If nothing were written again, the first eviction would have to remove more than half of the torrents, and
half of the file would stay empty.
"""
EVICTED_SHARE, EVICTED_BYTES = 4, 80
"""Evicted infohashes, of about EVICTED_BYTES each, take at most 1/EVICTED_SHARE of the maximum size. Otherwise those of
90 days could leave no room for torrents."""
REPACK_SHARE = 6
"""Torrents that are written again take at most 1/REPACK_SHARE of the log in each transaction."""
ROOM_SHARE = 16
"""A batch takes at most 1/ROOM_SHARE of the maximum size, because torrents are evicted to make room for all of it."""
INDEXED = 2
"""A record and its index rows take at most this many times the size of its content."""

TYPES = {
    "integer": "INTEGER",
    "bigint": "INTEGER",
    "id": "INTEGER",
    "hash": "BLOB",
    "blob": "BLOB",
    "text": "TEXT",
    "clustered": " WITHOUT ROWID",
    "engine": "",
}
SETTINGS = (
    f"page_size={PAGE_BYTES}",
    "auto_vacuum=INCREMENTAL",
    "cache_size=-32768",
)
FULL = "for the records of torrents; nothing is lost: free some and run the same command again"
UNUSABLE = "the records of torrents cannot be used: {}"


class SqliteRecordStore(TableRecordStore):
    """See `RecordStore`. `max_bytes` limits the files; None for no limit.

    With `sync`, a change is on the disk when its call returns. Without, it survives a crash of the process, but not
    always a power failure.
    """

    types = TYPES
    placeholder = "?"

    def __init__(
        self, path: Path, policy: RecordPolicy | None = None, *, max_bytes: int | None = None, sync: bool = False
    ) -> None:
        super().__init__(policy)
        if max_bytes is not None and max_bytes < SIZE_MIN_BYTES:
            raise UsageError(f"a record store needs at least {SIZE_MIN_BYTES >> 20} MiB; give a larger maximum")
        self._log_max_bytes, self._checkpoint_pages = LOG_MAX_BYTES, CHECKPOINT_PAGES
        if max_bytes is not None:
            self._log_max_bytes = min(LOG_MAX_BYTES, max_bytes // LOG_SHARE)
            share = self._log_max_bytes / LOG_MAX_BYTES
            self._checkpoint_pages = int(CHECKPOINT_PAGES * share)
            self.put_rows, self.evict_rows = int(PUT_ROWS * share), int(EVICT_ROWS * share)
            self.batch_bytes = min(self.batch_bytes, (max_bytes - self._log_max_bytes) // ROOM_SHARE)
        self.path = path
        self._max_bytes = max_bytes
        self._repacked_id = 0
        self._sync = sync

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(0o700, parents=True, exist_ok=True)
        statements = [statement.format_map(TYPES) for statement in TABLES]
        make = (*statements, f"PRAGMA application_id={FORMAT}", f"PRAGMA user_version={VERSION}")
        pages = self._checkpoint_pages
        settings = (*SETTINGS, f"wal_autocheckpoint={pages}", f"journal_size_limit={pages * PAGE_BYTES}")
        database = open_database(self.path, self._refuse, make, sync=self._sync, settings=settings)
        try:
            _add_column(database)
        except BaseException:
            database.close()
            raise
        return database

    def _refuse(self, found: DatabaseHeader) -> None:
        if (found.application_id or found.tables) and found.application_id != FORMAT:
            raise ForeignState(f"{self.path} holds something other than records of torrents; give another name")
        if found.version > VERSION:
            raise NewerState(f"{self.path} was written by a newer Lycosa (format {found.version}); update Lycosa")

    def _begin(self, *, write: bool) -> None:
        self._execute("BEGIN IMMEDIATE" if write else "BEGIN")

    def _error(self, error: Exception) -> LycosaError | None:
        if error_code(error) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
            return StorageUnavailable(f"{self.path}: another process has locked the torrents for too long")
        if isinstance(error, (sqlite3.Error, OSError)):
            return storage_error(self.path, error, FULL, UNUSABLE)
        return None

    def _used_bytes(self) -> int:
        return self._pragma("page_count") * PAGE_BYTES + self._log_bytes()

    async def _make_room(self, content_bytes: int, now: float) -> int:
        if self._max_bytes is None:
            return 0
        limit = self._max_bytes - self._log_max_bytes - INDEXED * content_bytes
        total = 0
        while await self._run(self._filled_bytes) > limit:
            evicted = await self.evict(self._max_bytes // EVICT_SHARE, now)
            if not evicted:
                break
            total += evicted
            surplus = await self._run(partial(self._first_evicted, self._max_bytes // EVICTED_SHARE // EVICTED_BYTES))
            for some in slices(surplus, VALUES_MAX):
                await self._run(partial(self._delete, "torrent_denied", "hash", some), write=True)
            await self._repack(max(REPACKED * evicted, REPACK_MIN))
        await self._retried(lambda: self._connected(lambda: self._shrink(limit)))
        return total

    async def _repack(self, count: int) -> None:
        """Write the next `count` torrents again to fill their pages. After the last torrent, begin again with the
        first."""
        query = "SELECT id, length(content) FROM torrents WHERE id > ? ORDER BY id LIMIT ?"
        sizes = await self._run(lambda: self._query(query, [self._repacked_id, count]))
        limit = self._log_max_bytes // REPACK_SHARE
        for some in by_size(sizes, itemgetter(1), limit):
            if some[0][1] <= limit:  # a large torrent has pages of its own
                await self._run(partial(self._write_again, some[0][0], some[-1][0]), write=True)
        self._repacked_id = sizes[-1][0] if len(sizes) == count else 0

    def _write_again(self, first_id: int, last_id: int) -> None:
        rows = self._query("SELECT * FROM torrents WHERE id BETWEEN ? AND ? ORDER BY id", [first_id, last_id])
        self._execute("DELETE FROM torrents WHERE id BETWEEN ? AND ?", [first_id, last_id])
        self._insert("torrents", rows)

    def _filled_bytes(self) -> int:
        return (self._pragma("page_count") - self._pragma("freelist_count")) * PAGE_BYTES

    def _shrink(self, limit: int) -> None:
        """Return free pages to the file system if the file is too large, and truncate a large log."""
        while (excess := self._pragma("page_count") - limit // PAGE_BYTES) > 0 and self._pragma("freelist_count"):
            self._execute(f"PRAGMA incremental_vacuum({min(excess, VACUUM_PAGES)})").fetchall()
        if self._log_bytes() > self._checkpoint_pages * PAGE_BYTES * 2:
            self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _log_bytes(self) -> int:
        log = self.path.with_name(self.path.name + "-wal")
        return log.stat().st_size if log.exists() else 0

    def _pragma(self, name: str) -> int:
        return int(self._execute(f"PRAGMA {name}").fetchone()[0])


def _add_column(database: sqlite3.Connection) -> None:
    def is_missing() -> bool:
        return all(row[1] != NEW_COLUMN for row in database.execute("PRAGMA table_info(torrent_denied)"))

    if is_missing():
        with transaction(database):
            if is_missing():  # else another process has added it
                database.execute(ADD_COLUMN.format_map(TYPES))
