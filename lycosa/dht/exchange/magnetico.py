"""Reads the database of magnetico and its forks: `database.sqlite3`.

    torrents   id, info_hash, name, total_size, discovered_on; from schema 2 on updated_on, n_seeders, n_leechers
    files      id, torrent_id, size, path; before schema 2 without an index on torrent_id

Two cursors go through the ids in parallel, so the memory does not grow with the database. Without the index, SQLite
sorts `files` once. There are no piece lengths. For a torrent of BitTorrent version 2, the database may have only the
first 20 bytes of the infohash.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core.errors import StorageError, UsageError
from lycosa.dht.exchange.entries import Entry, EntryKind
from lycosa.dht.exchange.file_rows import FileRows, OwnedFile
from lycosa.infra.sqlite import SAFE_SETTINGS, open_read_only
from lycosa.storage.core.torrent_line import LINE_MAX

TORRENT_COLUMNS = {"id", "info_hash", "name", "discovered_on"}
FILE_COLUMNS = {"id", "torrent_id", "size", "path"}
COUNTED_COLUMNS = {"updated_on", "n_seeders", "n_leechers"}
COUNT = "SELECT count(*) FROM torrents"
TORRENTS = """
    SELECT id, info_hash, name, discovered_on, NULL, NULL, NULL
    FROM torrents WHERE typeof(id) = 'integer' ORDER BY id
"""
COUNTED_TORRENTS = """
    SELECT id, info_hash, name, discovered_on, updated_on, n_seeders, n_leechers
    FROM torrents WHERE typeof(id) = 'integer' ORDER BY id
"""
FILES = "SELECT torrent_id, path, size FROM files WHERE typeof(torrent_id) = 'integer' ORDER BY torrent_id, id"
FETCHED_ROWS = 1000
V2_BYTES = 32


class MagneticoSource:
    """A magnetico database as a source."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self.total = 0  # set when the source is open
        self._path = path

    def entries(self) -> Iterator[Entry]:
        try:
            database = open_read_only(self._path)
        except sqlite3.Error as error:
            raise StorageError(f"cannot be opened: {error}") from error
        try:
            yield from self._read(database)
        except sqlite3.Error as error:
            raise StorageError(f"cannot be read further: {error}") from error
        finally:
            database.close()

    def _read(self, database: sqlite3.Connection) -> Iterator[Entry]:
        for setting in SAFE_SETTINGS:
            database.execute("PRAGMA " + setting)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LINE_MAX)
        database.text_factory = bytes  # texts need not be UTF-8
        torrents = COUNTED_TORRENTS if self._has_counts(database) else TORRENTS
        self.total = database.execute(COUNT).fetchone()[0]
        files = FileRows(_rows(database.execute(FILES)))
        for done, row in enumerate(_rows(database.execute(torrents)), 1):
            yield _entry(f"torrent {row[0]}", row, files.of(row[0]), done)

    def _has_counts(self, database: sqlite3.Connection) -> bool:
        """Return whether torrents have counts of peers. Raises `UsageError` if this is not a magnetico database."""
        tables = {name.decode() for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        found = {
            table: {row[1].decode() for row in database.execute(f"PRAGMA table_info({table})")}
            for table in ("torrents", "files")
            if table in tables
        }
        if not (found.get("torrents", set()) >= TORRENT_COLUMNS and found.get("files", set()) >= FILE_COLUMNS):
            raise UsageError(f"{self.name} is an SQLite database, but not one of magnetico: the tables differ")
        return found["torrents"] >= COUNTED_COLUMNS


def _rows(cursor: sqlite3.Cursor) -> Iterator[Any]:
    while rows := cursor.fetchmany(FETCHED_ROWS):
        yield from rows


def _entry(where: str, row: tuple[Any, ...], files: list[OwnedFile] | None, done: int) -> Entry:
    """Return the row as a line of JSON, which is checked later like any other line."""
    _, infohash, name, discovered, updated, seeders, leechers = row
    if not isinstance(infohash, bytes):
        return Entry(where, EntryKind.BAD, b"its infohash is not a blob", done)
    if files is None:
        return Entry(where, EntryKind.BAD, f"its list of files takes more than {LINE_MAX:,} bytes".encode(), done)
    if not files:
        return Entry(where, EntryKind.INFOHASH, infohash.hex().encode(), done)
    fields = {
        "infohash_v2" if len(infohash) == V2_BYTES else "infohash_v1": infohash.hex(),
        "name": _text(name),
        "files": [{"path": _text(path), "size_bytes": size} for path, size in files],
        "discovered": discovered if isinstance(discovered, int) else None,
    }
    if all(isinstance(each, int) for each in (updated, seeders, leechers)):
        fields |= {"seeders": seeders, "leechers": leechers, "counted": updated}
    return Entry(where, EntryKind.LINE, msgspec.json.encode(fields), done)


def _text(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
