"""Open SQLite files in WAL mode.

Waits are limited, only one of several processes creates the tables, and errors are translated.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from lycosa.core.errors import StateError, StorageError, StorageFull
from lycosa.infra.disk import NO_ROOM, is_full

BUSY_S = 5.0
"""Maximum seconds to wait for a database that another process has locked."""

RETRY_S = 0.005
"""Seconds between two tries of a statement that SQLite refuses at once if the database is locked."""

SAFE_SETTINGS = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
"""Settings that protect against damaged or hostile files."""


class DatabaseHeader(NamedTuple):
    """SQLite's application id and user version, and the statements that created the schema."""

    application_id: int
    version: int
    tables: set[str]


def open_database(
    path: Path,
    refuse: Callable[[DatabaseHeader], None],
    make: Sequence[str],
    *,
    sync: bool = False,
    busy_s: float = BUSY_S,
    settings: Sequence[str] = (),
) -> sqlite3.Connection:
    """Return a connection that any thread may use, one at a time. The statements in `make` create the tables.

    `refuse` raises for a foreign file, before anything is written to the file. With `sync`, each commit waits until its
    data is on the disk.
    """
    database = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _set(database, *SAFE_SETTINGS, *settings)
        header = _read_header(database)
        refuse(header)  # before the switch to WAL, which writes
        _use_wal(database, busy_s)
        _set(database, f"synchronous={'FULL' if sync else 'NORMAL'}")
        if not header.tables:
            with transaction(database):
                for statement in () if _tables(database) else make:  # another process may have created them meanwhile
                    database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def open_read_only(path: Path) -> sqlite3.Connection:
    """Connect to a file that another process writes. Any thread may use the connection, one at a time."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    return sqlite3.connect(uri, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=True)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Run the block in a transaction."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def error_code(error: Exception) -> int:
    """Return the primary result code of a SQLite error; 0 for any other error."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def storage_error(path: Path, error: Exception, full: str, unusable: str) -> StateError:
    """Translate an error of SQLite or of the disk.

    The message of `StorageFull` is "no space left", followed by `full`. The message of `StorageError` is `unusable`,
    with the reason in place of {}.
    """
    code, number = error_code(error), getattr(error, "errno", None)
    vague = code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
    if code == sqlite3.SQLITE_FULL or number in NO_ROOM or (vague and is_full(path)):
        return StorageFull(f"{path}: no space left {full}")
    return StorageError(f"{path}: {unusable.format(getattr(error, 'strerror', None) or error)}")


def _set(database: sqlite3.Connection, *settings: str) -> None:
    for setting in settings:
        database.execute("PRAGMA " + setting)


def _read_header(database: sqlite3.Connection) -> DatabaseHeader:
    database.execute("BEGIN")  # one snapshot: another process may be creating the tables
    application_id, version = (
        database.execute("PRAGMA " + name).fetchone()[0] for name in ("application_id", "user_version")
    )
    header = DatabaseHeader(application_id, version, _tables(database))
    database.execute("COMMIT")
    return header


def _tables(database: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _use_wal(database: sqlite3.Connection, busy_s: float) -> None:
    # The switch turns a read lock into a write lock. Two connections that do this would wait for each other for ever,
    # so SQLite refuses one of them without waiting for its timeout. The refusal releases the read lock: try again.
    deadline = time.monotonic() + busy_s
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)
