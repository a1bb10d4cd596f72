"""SQLite files as adapters use them: opened with bounded waits, made once, with errors of ours.

A file that several processes may open at once is in WAL mode. Transactions are begun by hand (`transaction`).
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
"""How long a call waits for a database that another process has locked."""

AGAIN_S = 0.005
"""The pause before SQLite is asked again for what it does not wait for itself."""

HOSTILE = ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0")
"""Settings for files that may be damaged or hostile."""


class DatabaseHeader(NamedTuple):
    """What is in a file: SQLite's application id, user version, and the statements that made its tables."""

    mark: int
    version: int
    tables: set[str]


def opened(
    path: Path,
    refuse: Callable[[DatabaseHeader], None],
    make: Sequence[str],
    *,
    sync: bool = False,
    busy_s: float = BUSY_S,
    settings: Sequence[str] = (),
) -> sqlite3.Connection:
    """Return a connection that any thread may use, one at a time. A file without tables gets them by `make`.

    `refuse` raises for what is not ours; until then nothing is written. `sync`: each commit is on the disk.
    """
    database = sqlite3.connect(path, timeout=busy_s, isolation_level=None, check_same_thread=False)
    try:
        _set(database, *HOSTILE, *settings)
        found = _found(database)
        refuse(found)
        _use_wal(database, busy_s)
        _set(database, f"synchronous={'FULL' if sync else 'NORMAL'}")
        if not found.tables:
            with transaction(database):
                for statement in () if _tables(database) else make:  # another process may have been quicker
                    database.execute(statement)
    except BaseException:
        database.close()
        raise
    return database


def read_only(path: Path) -> sqlite3.Connection:
    """Return a connection that reads what another process writes."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", timeout=BUSY_S, isolation_level=None, uri=True)


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Write all that the block writes, or nothing when it raises."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def code_of(error: Exception) -> int:
    """Return SQLite's primary result code, 0 for an error that is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def storage_error(path: Path, error: Exception, full: str, unusable: str) -> StateError:
    """Return an error of SQLite or of the disk as ours.

    `full` follows "no space left"; in `unusable` {} stands for what SQLite or the system says.
    """
    code, number = code_of(error), getattr(error, "errno", None)
    vague = code in {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN}
    if code == sqlite3.SQLITE_FULL or number in NO_ROOM or (vague and is_full(path)):
        return StorageFull(f"{path}: no space left {full}")
    return StorageError(f"{path}: {unusable.format(getattr(error, 'strerror', None) or error)}")


def _set(database: sqlite3.Connection, *settings: str) -> None:
    for setting in settings:
        database.execute("PRAGMA " + setting)


def _found(database: sqlite3.Connection) -> DatabaseHeader:
    database.execute("BEGIN")  # all of one moment: another process may be making the tables
    mark, version = (database.execute("PRAGMA " + name).fetchone()[0] for name in ("application_id", "user_version"))
    found = DatabaseHeader(mark, version, _tables(database))
    database.execute("COMMIT")
    return found


def _tables(database: sqlite3.Connection) -> set[str]:
    return {sql for (sql,) in database.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}


def _use_wal(database: sqlite3.Connection, busy_s: float) -> None:
    # The switch turns a read lock into a write lock. Two connections that both did that would wait for each other for
    # ever, so SQLite refuses one of them at once, whatever its timeout. The refusal drops the read lock: ask again.
    deadline = time.monotonic() + busy_s
    while True:
        try:
            database.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if code_of(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
        time.sleep(AGAIN_S)
