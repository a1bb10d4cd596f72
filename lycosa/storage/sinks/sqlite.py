"""Writes items as rows of a SQLite database, exactly once: an item replaces the row with the same key.

The table `items` has the columns `_key` and `_position` (the number of the transaction that wrote the row), and a
column for each field. `open(position)` undoes later transactions of this crawl: it deletes their rows and puts back the
rows that they replaced, which stay in the table `_replaced` for FLUSHES_KEPT more flushes. Only one process at a time
writes a database (an advisory lock).
"""

from __future__ import annotations

import os
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.infra.file_locks import unlock_and_close
from lycosa.infra.sqlite import DatabaseHeader, open_database, storage_error, transaction
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.formats import plain_cell, row_of
from lycosa.storage.sinks.json_lines import not_open_error
from lycosa.storage.sinks.locked_file import RESTORE_ADVICE, check_file, open_locked

APPLICATION_ID = 0x4C594954  # "LYIT"
VERSION = 1
COLUMNS_MAX = 1_000
"""SQLite allows 2,000."""

BUFFER_MAX = 20_000
"""Rows held in memory; beyond that, `write` inserts them."""

FLUSHES_KEPT = 64

TABLES = (
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={VERSION}",
    "CREATE TABLE items (_key TEXT PRIMARY KEY, _position INTEGER NOT NULL)",
    "CREATE INDEX items_position ON items (_position)",
    "CREATE TABLE _replaced (_by INTEGER NOT NULL, _key TEXT NOT NULL, _position INTEGER NOT NULL)",
    "CREATE INDEX replaced_by ON _replaced (_by)",
    "CREATE TABLE _written (position INTEGER NOT NULL)",
    "INSERT INTO _written VALUES (1)",
)
OURS = "substr(_key, 1, ?) = ?"
"""The SQL condition for the rows of one crawl, with the parameters `_ours`."""

OWN_COLUMNS = ("_key", "_position", "_by")


class SqliteSink:
    """`crawl` is part of the keys of the items. With `sync`, every flush reaches the disk."""

    def __init__(self, path: str | Path, crawl: str, *, sync: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = f"sqlite:{self.path}"
        self._shown = os.fspath(path)
        self._crawl = crawl
        self._ours = (len(crawl) + 1, f"{crawl}/")
        self._sync = sync
        self._database: sqlite3.Connection | None = None
        self._lock = -1
        self._columns: dict[str, str] = {}
        """The columns by their names in lower case: SQLite ignores case."""
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._position = 0
        self._flushed: deque[int] = deque(maxlen=FLUSHES_KEPT)

    async def check(self) -> None:
        check_file(self.path, self._shown)
        if self.path.exists():
            with self._our_errors():
                self._connect().close()

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        assert self._database is None, "open"
        self._lock = open_locked(self.path, self._shown, must_exist=bool(position), sync=self._sync)
        try:
            with self._our_errors():
                self._database = database = self._connect()
                self._position = self._start(database, position, keep=keep)
                names = [name for _, name, *_ in database.execute("PRAGMA table_info(items)")]
        except BaseException:
            await self.close()
            raise
        self._columns = {name.lower(): name for name in names}
        self._flushed.clear()
        return self._position

    def prepare(self, item: Any) -> dict[str, Any]:
        return row_of(item, plain_cell)

    def write(self, prepared: dict[str, Any], key: ItemKey) -> None:
        name = key.text(self._crawl)
        if key.repeatable:
            name = f"{name}/{self._position + 1}-{len(self._rows)}"
        self._rows.append((name, prepared))
        if len(self._rows) >= BUFFER_MAX:
            self._insert()

    async def flush(self) -> int:
        """Blocks the loop for one transaction. After an error the next flush writes everything again."""
        self._insert()
        if not self._flushed or self._flushed[-1] != self._position:
            self._flushed.append(self._position)
        return self._position

    async def close(self) -> None:
        self._rows.clear()
        database, self._database = self._database, None
        lock, self._lock = self._lock, -1
        try:
            if database is not None:
                with self._our_errors():
                    database.close()
        finally:
            if lock >= 0:  # not earlier: closing a descriptor releases the locks that SQLite has on the same file
                unlock_and_close(lock)

    def _start(self, database: sqlite3.Connection, position: int | None, *, keep: bool) -> int:
        """Return the position to start at. Position 0 deletes the rows of all crawls.

        A new database begins with position 1, so that a resumed crawl never passes 0.
        """
        (last,) = database.execute("SELECT position FROM _written").fetchone()
        if position and last < position:
            raise StorageError(
                f"{self._shown} was replaced (it has {last:,} transactions, but the crawl made {position:,}): "
                f"{RESTORE_ADVICE}"
            )
        with transaction(database):
            if position == 0 and not keep:
                database.execute("DELETE FROM items")
                database.execute("DELETE FROM _replaced")
            elif position is not None and not keep:
                self._undo(database, position)
        return int(last if position is None or keep else max(position, 1))

    def _undo(self, database: sqlite3.Connection, position: int) -> None:
        names = [name for _, name, *_ in database.execute("PRAGMA table_info(items)")]
        columns = ", ".join(map(_quoted, names))
        database.execute(f"DELETE FROM items WHERE _position > ? AND {OURS}", (position, *self._ours))  # noqa: S608
        database.execute(
            f"INSERT OR REPLACE INTO items ({columns}) SELECT {columns} FROM _replaced"  # noqa: S608
            f" WHERE _by > ? AND _position <= ? AND {OURS}",
            (position, position, *self._ours),
        )
        database.execute(f"DELETE FROM _replaced WHERE _by > ? AND {OURS}", (position, *self._ours))  # noqa: S608

    def _insert(self) -> None:
        if self._database is None:
            raise not_open_error(self._shown)
        if not self._rows:
            return
        columns = self._columns.copy()
        try:
            with self._our_errors(), transaction(self._database):
                for key, row in self._rows:
                    cells = {self._column(self._database, name): value for name, value in row.items()}
                    self._write_row(self._database, key, cells)
                if len(self._flushed) == FLUSHES_KEPT:
                    certain = (self._flushed[0], *self._ours)
                    self._database.execute(f"DELETE FROM _replaced WHERE _by <= ? AND {OURS}", certain)  # noqa: S608
                self._database.execute("UPDATE _written SET position = max(position, ?)", (self._position + 1,))
        except BaseException:
            self._columns = columns  # the rollback has removed the new ones
            raise
        self._position += 1
        self._rows.clear()

    def _write_row(self, database: sqlite3.Connection, key: str, cells: dict[str, Any]) -> None:
        columns = "".join(f", {_quoted(column)}" for column in cells)
        places = ", ?" * len(cells)
        # Both tables get their columns in the same order.
        database.execute(
            "INSERT INTO _replaced SELECT ?, * FROM items WHERE _key = ? AND _position <= ?",
            (self._position + 1, key, self._position),
        )
        database.execute(
            f"INSERT OR REPLACE INTO items (_key, _position{columns}) VALUES (?, ?{places})",  # noqa: S608
            (key, self._position + 1, *cells.values()),
        )

    def _column(self, database: sqlite3.Connection, name: str) -> str:
        """Return the column of a field: the field's name, with _ appended if another column has this name."""
        column = name.replace("\0", "")
        while column.lower() in OWN_COLUMNS or self._columns.get(column.lower(), column) != column:
            column += "_"
        if column.lower() not in self._columns:
            if len(self._columns) >= COLUMNS_MAX:
                raise StorageError(
                    f"{self._shown}: the items need more than {COLUMNS_MAX:,} columns; -o FILE.jsonl takes any number"
                )
            for table in ("items", "_replaced"):
                database.execute(f"ALTER TABLE {table} ADD COLUMN {_quoted(column)}")
            self._columns[column.lower()] = column
        return column

    def _connect(self) -> sqlite3.Connection:
        return open_database(self.path, self._refuse, TABLES, sync=self._sync)

    def _refuse(self, header: DatabaseHeader) -> None:
        if not header.tables:
            return
        if header.application_id != APPLICATION_ID:
            raise StorageError(f"{self._shown} is a database of another program: name another file")
        if header.version != VERSION:
            raise StorageError(f"{self._shown} has version {header.version}, this Lycosa writes {VERSION}")

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            text = "items cannot be written: {}"
            raise storage_error(self.path, error, "for items; make room and run the command again", text) from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
