"""Items as rows of a SQLite database, exactly once: an item replaces the one with its key.

The table `items` has a column for each field, added when it first occurs, `_key`, and `_position`: the number of the
flush that wrote the row. `open(position)` deletes the rows of later flushes. Lists and objects are stored as JSON text.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import BadItem, StorageError
from lycosa.infra.sqlite import DatabaseHeader, open_database, storage_error, transaction
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.json_lines import not_open_error, to_line

APPLICATION_ID = 0x4C594954  # "LYIT"
VERSION = 1
COLUMNS_MAX = 1_000
"""Columns of the table; SQLite allows 2,000."""

BUFFER_MAX = 20_000
"""Rows held in memory; with more, `write` inserts them."""

TABLES = (
    f"PRAGMA application_id={APPLICATION_ID}",
    f"PRAGMA user_version={VERSION}",
    "CREATE TABLE items (_key TEXT PRIMARY KEY, _position INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE INDEX items_position ON items (_position)",
)


class SqliteSink:
    """A database of items; `crawl` is part of their keys. `sync`: every flush is on the disk."""

    def __init__(self, path: str | Path, crawl: str, *, sync: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = f"sqlite:{self.path}"
        self._shown = os.fspath(path)
        self._crawl = crawl
        self._sync = sync
        self._database: sqlite3.Connection | None = None
        self._columns: dict[str, str] = {}
        self._rows: list[tuple[str, dict[str, Any]]] = []
        self._position = 0

    async def check(self) -> None:
        if self.path.exists():
            with self._our_errors():
                self._connect().close()
        elif not os.access(self._folder(), os.W_OK | os.X_OK):
            raise StorageError(f"{self._shown}: items cannot be written: Permission denied")

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        self._folder()
        if position and not self.path.exists():
            raise StorageError(
                f"{self._shown} does not exist any more, but the crawl wrote items to it: "
                "put the file back as it was, or start afresh with -O"
            )
        with self._our_errors():
            self._database = database = self._connect()
            (last,) = database.execute("SELECT coalesce(max(_position), 0) FROM items").fetchone()
            if position is not None and not keep:
                with transaction(database):
                    database.execute("DELETE FROM items WHERE _position > ?", (position,))
            names = [name for _, name, *_ in database.execute("PRAGMA table_info(items)")]
            self._columns = {name.lower(): name for name in names}
        self._position = last if position is None or keep else position
        return self._position

    def prepare(self, item: Any) -> dict[str, Any]:
        plain = msgspec.json.decode(to_line(item))
        if not isinstance(plain, dict):
            raise BadItem(f"a {type(item).__qualname__!r} cannot be a row of a table, only items with fields")
        return {name: _cell(value) for name, value in plain.items()}

    def write(self, prepared: dict[str, Any], key: ItemKey) -> None:
        self._rows.append((key.text(self._crawl), prepared))
        if len(self._rows) >= BUFFER_MAX:
            self._insert()

    async def flush(self) -> int:
        """See `Sink`. Blocks the loop for one transaction. After an error the next flush writes everything again."""
        self._insert()
        return self._position

    async def close(self) -> None:
        self._rows.clear()
        database, self._database = self._database, None
        if database is not None:
            with self._our_errors():
                database.close()

    def _insert(self) -> None:
        if self._database is None:
            raise not_open_error(self._shown)
        if not self._rows:
            return
        with self._our_errors(), transaction(self._database):
            for key, row in self._rows:
                columns = [self._column(name) for name in row]
                names = "".join(f", {_quoted(column)}" for column in columns)
                places = ", ?" * len(row)
                self._database.execute(
                    f"INSERT OR REPLACE INTO items (_key, _position{names}) VALUES (?, ?{places})",  # noqa: S608
                    (key, self._position + 1, *row.values()),
                )
        self._position += 1
        self._rows.clear()

    def _column(self, name: str) -> str:
        """Return the column of a field, a new one if it has none. SQLite's names ignore case."""
        assert self._database is not None
        column = name
        while (found := self._columns.get(column.lower())) is not None and found != name:
            column += "_"
            if self._columns.get(column.lower()) == column:
                return column
        if found is None:
            if len(self._columns) >= COLUMNS_MAX:
                raise StorageError(
                    f"{self._shown}: items have more than {COLUMNS_MAX:,} fields; -o FILE.jsonl takes any"
                )
            self._database.execute(f"ALTER TABLE items ADD COLUMN {_quoted(column)}")
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

    def _folder(self) -> Path:
        folder = self.path.parent
        if not folder.is_dir():
            raise StorageError(f"{self._shown}: there is no folder {folder}")
        return folder

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            text = "items cannot be written: {}"
            raise storage_error(self.path, error, "for items; make room and run the command again", text) from error


def _cell(value: Any) -> Any:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value if value is None or isinstance(value, (str, int, float)) else msgspec.json.encode(value).decode()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""').replace("\0", "") + '"'
