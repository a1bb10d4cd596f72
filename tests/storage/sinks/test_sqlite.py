"""Items in a SQLite database: rows by key, undone commits, columns (C8)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lycosa.core.errors import StorageError
from lycosa.storage.sinks import sqlite
from lycosa.storage.sinks.sqlite import SqliteSink
from tests.storage.output_files import READERS
from tests.storage.written_sinks import FILES, KEY, open_error, put, run


def test_a_torn_log_of_a_database_is_cut_off_wherever_it_ends(tmp_path, rng):
    """After a kill or a power loss, the write-ahead log has any part of the transactions after the commit."""
    path, log = tmp_path / "items.sqlite", tmp_path / "items.sqlite-wal"
    saved: list[tuple[bytes, bytes]] = []

    async def write() -> int:
        sink = SqliteSink(path, "crawl", sync=True)
        await sink.open(None)
        put(sink, {"n": 1})
        committed = await sink.flush()
        saved.append((path.read_bytes(), log.read_bytes()))
        put(sink, {"n": 2, "new": "x" * 10_000})
        await sink.flush()
        saved.append((path.read_bytes(), log.read_bytes()))
        await sink.close()
        return committed

    committed = asyncio.run(write())
    (_, before), (database, after) = saved
    assert after.startswith(before), "the log only grows"
    for end in (len(before), len(after), *(rng.randrange(len(before), len(after)) for _ in range(20))):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(database)
        log.write_bytes(after[:end])
        asyncio.run(run(SqliteSink(path, "crawl"), committed, {"n": 3}))
        assert READERS["sqlite"](path) == [{"n": 1}, {"n": 3}]


def sqlite_run(path: Path, position: int | None, *items: tuple[int, Any], crawl: str = "crawl") -> int:
    """One run that writes items under these numbers of one page. Return the position to commit."""

    async def write() -> int:
        sink = SqliteSink(path, crawl)
        start = await sink.open(position)
        for number, item in items:
            sink.write(sink.prepare(item), KEY._replace(number=number))
        after = await sink.flush() if items else start
        await sink.close()
        return after

    return asyncio.run(write())


def test_an_item_replaces_the_row_with_its_key_and_undoing_restores_that_row(tmp_path):
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}), (1, {"n": 2}))
    later = sqlite_run(path, committed, (0, {"n": 10, "more": 1}))
    sqlite_run(path, later, (0, {"n": 11}), (2, {"n": 3}))
    assert sorted(row["n"] for row in READERS["sqlite"](path)) == [2, 3, 11]
    sqlite_run(path, later)
    assert READERS["sqlite"](path) == [{"n": 2}, {"n": 10, "more": 1}]
    sqlite_run(path, committed)
    assert sorted(row["n"] for row in READERS["sqlite"](path)) == [1, 2], "a frontier may lose its last commits"


def test_undoing_several_flushes_restores_the_oldest_row(tmp_path):
    path = tmp_path / "i.sqlite"

    async def write() -> int:
        sink = SqliteSink(path, "crawl")
        await sink.open(None)
        positions = []
        for n in range(4):
            sink.write(sink.prepare({"n": n}), KEY)
            positions.append(await sink.flush())
        await sink.close()
        return positions[0]

    sqlite_run(path, asyncio.run(write()))
    assert READERS["sqlite"](path) == [{"n": 0}]


def test_replaced_rows_are_forgotten_after_many_flushes(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "FLUSHES_KEPT", 3)

    async def write() -> None:
        sink = SqliteSink(tmp_path / "i.sqlite", "crawl")
        await sink.open(None)
        for n in range(10):
            sink.write(sink.prepare({"n": n}), KEY)
            await sink.flush()
        await sink.close()

    asyncio.run(write())
    with closing(sqlite3.connect(tmp_path / "i.sqlite")) as database:
        assert database.execute("SELECT n FROM _replaced ORDER BY n").fetchall() == [(6,), (7,), (8,)]


def test_a_crawl_undoes_only_its_own_rows(tmp_path):
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}))
    sqlite_run(path, committed, (1, {"lost": 1}))
    sqlite_run(path, None, (0, {"other": 1}), crawl="crawl2")
    sqlite_run(path, committed, (2, {"n": 2}))
    assert READERS["sqlite"](path) == [{"n": 1}, {"n": 2}, {"other": 1}]
    sqlite_run(path, 0, (0, {"n": 3}))
    assert READERS["sqlite"](path) == [{"n": 3}]


def test_a_crawl_without_items_removes_no_rows_of_a_later_one(tmp_path):
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, 0, crawl="first")
    sqlite_run(path, None, (0, {"n": 1}), crawl="second")
    sqlite_run(path, committed, crawl="first")
    assert READERS["sqlite"](path) == [{"n": 1}]


def test_items_of_a_repeatable_page_have_different_keys(tmp_path):
    async def write() -> None:
        sink = SqliteSink(tmp_path / "i.sqlite", "crawl")
        await sink.open(None)
        for n in range(4):
            sink.write(sink.prepare({"n": n}), KEY._replace(repeatable=True))
            if n % 2:
                await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert [row["n"] for row in READERS["sqlite"](tmp_path / "i.sqlite")] == [0, 1, 2, 3]


def test_fields_that_cannot_be_columns_get_another_name(tmp_path):
    path = tmp_path / "i.sqlite"
    item = {"Title": "a", "title": "b", "_key": "c", "_position": 5, 'x"y\0; drop': [1, {"a": 2}], "big": 2**70, "": 1}
    sqlite_run(path, None, (0, item), (1, {"title": "d"}))
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        first, second = [dict(row) for row in database.execute("SELECT * FROM items ORDER BY _key")]
    assert {name: first[name] for name in ("Title", "title_", "_key_", "_position_", 'x"y; drop', "big", "")} == {
        "Title": "a",
        "title_": "b",
        "_key_": "c",
        "_position_": 5,
        'x"y; drop': '[1,{"a":2}]',
        "big": str(2**70),
        "": 1,
    }
    assert (second["title_"], second["Title"]) == ("d", None)


def test_too_many_columns_foreign_and_replaced_databases_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "COLUMNS_MAX", 30)
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}))
    with pytest.raises(StorageError, match=r"need more than 30 columns; -o FILE\.jsonl takes any number"):
        sqlite_run(path, committed, (1, {f"f{n}": n for n in range(31)}))
    assert READERS["sqlite"](path) == [{"n": 1}]
    path.unlink()
    assert "no longer exists" in open_error(SqliteSink(path, "crawl"), committed)
    asyncio.run(run(SqliteSink(path, "crawl"), None))
    assert "was replaced" in open_error(SqliteSink(path, "crawl"), committed)
    with closing(sqlite3.connect(tmp_path / "foreign.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    assert "is a database of another program" in open_error(SqliteSink(tmp_path / "foreign.sqlite", "crawl"))


def test_two_crawls_cannot_write_to_the_same_database_or_array(tmp_path):
    async def both(kind: str) -> None:
        first, second = (FILES[kind](tmp_path / f"items.{kind}") for _ in range(2))
        await first.open(None)
        with pytest.raises(StorageError, match="another process writes to it"):
            await second.open(None)
        put(first, {"n": 1})
        await first.flush()
        await first.close()

    for kind in ("sqlite", "json"):
        asyncio.run(both(kind))
        assert READERS[kind](tmp_path / f"items.{kind}") == [{"n": 1}]
