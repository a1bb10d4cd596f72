"""A key store in one SQLite file of the state, records.sqlite. What is put stays in memory until `flush` writes it.

    kept   (table, key) -> value

One transaction a flush (WAL): a process that is killed leaves what the last flush wrote, and nothing of a later one;
with `sync` that survives a power loss, too. The file is made by the first flush that has something to write: a crawl
that keeps nothing has none. The state is locked by its owner, so that nobody else writes. Everything happens on the
loop: a flush of 100 rows takes less than a millisecond.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

from lycosa.core.errors import StateError, StorageError, StorageFull
from lycosa.infra.disk import NO_ROOM

FILE = "records.sqlite"
FORMAT = int.from_bytes(b"LyKS")
TABLE = (
    "CREATE TABLE kept (name BLOB NOT NULL, key BLOB NOT NULL, value BLOB NOT NULL, PRIMARY KEY (name, key))"
    " WITHOUT ROWID"
)


class SqliteRecords:
    """See `storage.ports.KeyStore`. `path` is the file; with `sync` a flush is on the disk when it returns.

    With `read_only` it reads what another process writes, and is not flushed.
    Raises `StorageError` for a file that is damaged or something else, `StorageFull`.
    """

    def __init__(self, path: Path, *, sync: bool = False, read_only: bool = False) -> None:
        self.path = path
        self._sync = sync
        self._read_only = read_only
        self._database: sqlite3.Connection | None = None
        self._absent = False
        """There is no file, nobody else makes one, so there is nothing to read."""
        self._waiting: dict[tuple[str, str], bytes | None] = {}

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None."""
        if (table, key) in self._waiting:
            return self._waiting[table, key]
        rows = self._read("SELECT key, value FROM kept WHERE name = ? AND key = ?", _bytes(table), _bytes(key))
        return rows[0][1] if rows else None

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Keep a value; None forgets the key."""
        self._waiting[table, key] = value

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their values, in the order of the keys."""
        rows = self._read("SELECT key, value FROM kept WHERE name = ?", _bytes(table))
        found: dict[str, bytes | None] = {key.decode("utf-8", "surrogatepass"): value for key, value in rows}
        found |= {key: value for (name, key), value in self._waiting.items() if name == table}
        return iter(sorted((key, value) for key, value in found.items() if value is not None))

    async def flush(self) -> None:
        """Write what was put, in one transaction. What cannot be written stays for the next flush."""
        if not self._waiting:
            return
        try:
            self._write()
        except (sqlite3.Error, OSError, OverflowError) as error:
            raise storage_error(self.path, error) from error
        self._waiting.clear()

    async def close(self) -> None:
        """Close the file. What was not flushed is dropped."""
        self._waiting.clear()
        if self._database is not None:
            self._database.close()
            self._database = None

    def _read(self, query: str, *values: bytes) -> list[tuple[bytes, bytes]]:
        if self._database is None and (self._read_only or not self._absent):
            self._absent = not self.path.exists()
        if self._absent:
            return []
        try:
            return self._open().execute(query, values).fetchall()
        except (sqlite3.Error, OSError) as error:
            if self._read_only and "no such table" in str(error):  # its owner makes it just now
                return []
            raise storage_error(self.path, error) from error

    def _write(self) -> None:
        named = [(_bytes(table), _bytes(key), value) for (table, key), value in self._waiting.items()]
        database = self._open()
        database.execute("BEGIN IMMEDIATE")
        try:
            database.executemany("DELETE FROM kept WHERE name = ? AND key = ?", [row[:2] for row in named])
            database.executemany("INSERT INTO kept VALUES (?, ?, ?)", [row for row in named if row[2] is not None])
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if self._database is None:
            if self._read_only:
                self._database = sqlite3.connect(
                    f"{self.path.absolute().as_uri()}?mode=ro", isolation_level=None, uri=True
                )
                return self._database
            self.path.parent.mkdir(parents=True, exist_ok=True)
            database = sqlite3.connect(self.path, isolation_level=None)
            try:
                _prepare(database, self.path, sync=self._sync)
            except BaseException:
                database.close()
                raise
            self._database, self._absent = database, False
        return self._database


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # names and keys may come from the network


def storage_error(path: Path, error: Exception) -> StateError:
    """Return the error of the database or the disk as ours."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_FULL or getattr(error, "errno", None) in NO_ROOM:
        return StorageFull(f"{path}: no space left on the device; free some and run the same command again")
    what = getattr(error, "strerror", None) or error
    return StorageError(f"{path}: what the crawl keeps beside its frontier cannot be used ({what}); -O starts afresh")


def _prepare(database: sqlite3.Connection, path: Path, *, sync: bool) -> None:
    """Make the table of a new file, refuse one that is not ours."""
    for setting in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0"):
        database.execute("PRAGMA " + setting)
    mark = database.execute("PRAGMA application_id").fetchone()[0]
    tables = [sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")]
    if (mark or tables) and (mark, tables) != (FORMAT, [TABLE]):
        raise StorageError(f"{path} holds something else than the records of a crawl; -O starts afresh")
    database.execute("PRAGMA journal_mode=WAL")
    database.execute(f"PRAGMA synchronous={'FULL' if sync else 'NORMAL'}")
    if not tables:
        database.execute("BEGIN IMMEDIATE")
        database.execute(TABLE)
        database.execute(f"PRAGMA application_id={FORMAT}")
        database.execute("COMMIT")
