"""The database of magnetico, in all versions of its schema, and hostile databases."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from lycosa.core.errors import UsageError
from lycosa.dht.exchange import file_rows
from lycosa.dht.exchange.magnetico import MagneticoSource
from lycosa.storage.core.torrent_record import StoredFile
from tests.dht.exchange.torrents import Imported

V1, V2 = bytes(range(20)), bytes(range(32))
BASE = """
    CREATE TABLE torrents (
        id INTEGER PRIMARY KEY, info_hash BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
        total_size INTEGER NOT NULL CHECK (total_size > 0), discovered_on INTEGER NOT NULL CHECK (discovered_on > 0)
    );
    CREATE TABLE files (
        id INTEGER PRIMARY KEY, torrent_id INTEGER REFERENCES torrents ON DELETE CASCADE, size INTEGER NOT NULL,
        path TEXT NOT NULL
    );
"""
VERSION_2 = """
    ALTER TABLE torrents ADD COLUMN updated_on INTEGER DEFAULT NULL;
    ALTER TABLE torrents ADD COLUMN n_seeders INTEGER DEFAULT NULL;
    ALTER TABLE torrents ADD COLUMN n_leechers INTEGER DEFAULT NULL;
    ALTER TABLE files ADD COLUMN is_readme INTEGER DEFAULT NULL;
    ALTER TABLE files ADD COLUMN content TEXT DEFAULT NULL;
    CREATE UNIQUE INDEX readme_index ON files (torrent_id, is_readme);
    PRAGMA user_version = 2;
"""
VERSION_3 = """
    CREATE VIRTUAL TABLE torrents_idx USING fts5(name, content='torrents', content_rowid='id', tokenize=porter);
    ALTER TABLE torrents ADD COLUMN modified_on INTEGER;
    CREATE INDEX modified_on_index ON torrents (modified_on);
    PRAGMA user_version = 3;
"""
"""Each version adds to the one before. These are the schemas of the archived magnetico and of its maintained fork."""


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "database.sqlite3", isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def add(database: sqlite3.Connection, number: int, name: object, files: Sequence[tuple[object, object]]) -> None:
    database.execute(
        "INSERT INTO torrents (id, info_hash, name, total_size, discovered_on) VALUES (?, ?, ?, 1, 1500000000)",
        (number, number.to_bytes(20), name),
    )
    database.executemany("INSERT INTO files (torrent_id, path, size) VALUES (?, ?, ?)", [(number, *f) for f in files])


def imported(tmp_path: Path) -> Imported:
    return Imported().run(MagneticoSource(tmp_path / "database.sqlite3"))


@pytest.mark.parametrize("schema", [BASE, BASE + VERSION_2, BASE + VERSION_2 + VERSION_3], ids=["v1", "v2", "v3"])
def test_torrents_with_their_files_are_imported(schema: str, tmp_path: Path, database: sqlite3.Connection) -> None:
    database.executescript(schema)
    add(database, 7, "second", [("b/x", 3), ("b/a", 4)])
    add(database, 2, "first", [("f", 1)])
    database.execute(
        "INSERT INTO files (torrent_id, path, size) VALUES (7, 'late', 9), (NULL, 'lost', 1), (5, 'lost', 1)"
    )
    if schema != BASE:
        database.execute("UPDATE torrents SET updated_on = 1600000000, n_seeders = 4, n_leechers = 2 WHERE id = 7")
    first, second = _rows(imported(tmp_path))
    assert (first.record.name, first.record.files, first.counted) == ("first", (StoredFile("f", 1),), None)
    assert second.record.infohash_v1 == (7).to_bytes(20)
    assert second.record.files == (StoredFile("b/x", 3), StoredFile("b/a", 4), StoredFile("late", 9))
    assert (second.record.discovered, second.record.piece_bytes) == (1_500_000_000, 0)
    expected = (0, 0, None) if schema == BASE else (4, 2, 1_600_000_000)
    assert (second.seeders, second.leechers, second.counted) == expected


def test_a_database_that_magnetico_is_writing_is_read(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(BASE)
    add(database, 1, "a", [("f", 1)])
    database.execute("BEGIN IMMEDIATE")
    assert imported(tmp_path).names() == ["a"]


def test_bad_rows_are_reported_and_the_others_are_imported(
    tmp_path: Path, database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "LINE_MAX", 300)
    database.executescript(BASE)
    add(database, 1, b"\xff name", [(b"\xfe/x", 1)])
    add(database, 2, "negative", [("f", -1)])
    add(database, 3, "no size", [("f", "large")])
    add(database, 4, "too many files", [(f"file {n}", 1) for n in range(10)])
    add(database, 5, "good", [("f", 1)])
    database.execute("INSERT INTO torrents VALUES (6, 'text', 'n', 1, 1), (8, x'0102', 'n', 1, 1)")
    add(database, 9, "without files", [])
    database.execute("INSERT INTO files (torrent_id, path, size) VALUES (8, 'f', 1), ('x', 'f', 1), (x'00', 'f', 1)")
    found = imported(tmp_path)
    assert found.names() == ["\ufffd name", "good"]
    assert [each.where for each in found.problems] == [f"torrent {n}" for n in (2, 3, 4, 8)]
    assert found.queued == [b"text".hex().encode(), (9).to_bytes(20).hex().encode()]
    assert found.done[-1] == 8


def test_infohashes_of_32_bytes_are_those_of_bittorrent_v2(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.executescript(BASE)
    add(database, 1, "n", [("f", 1)])
    database.execute("UPDATE torrents SET info_hash = ?", [V2])
    [row] = _rows(imported(tmp_path))
    assert (row.record.infohash_v1, row.record.infohash_v2) == (None, V2)


def test_a_damaged_database_is_read_as_far_as_possible(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.executescript(BASE)
    database.execute("BEGIN")
    for number in range(1, 3000):
        add(database, number, f"name {number}", [("f" * 50, 1)])
    database.execute("COMMIT")
    database.close()
    path = tmp_path / "database.sqlite3"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    found = imported(tmp_path)
    assert found.problems[-1].where == ("the rest" if found.counts.new else "the source")
    assert "cannot be read" in found.problems[-1].reason


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE other (x)",
        "CREATE TABLE torrents (id, name); CREATE TABLE files (id)",
        BASE.replace("TABLE torrents", "TABLE t") + "CREATE VIEW torrents AS SELECT * FROM t",
    ],
    ids=["others", "columns", "view"],
)
def test_the_database_of_another_program_is_refused(schema: str, tmp_path: Path, database: sqlite3.Connection) -> None:
    database.executescript(schema)
    with pytest.raises(UsageError, match="not one of magnetico"):
        imported(tmp_path)


def _rows(found: Imported) -> list:
    return asyncio.run(found.store.torrents(0, 100))
