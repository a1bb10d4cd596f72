"""docs/search-databases.md names the tables and columns that the files have."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from lycosa.search.core.schema import PAGES, TORRENTS
from lycosa.search.fts5 import Fts5Index
from lycosa.search.word_list import WordCounter
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.conftest import ROOT

ROW = re.compile(r"^\| `(\w+)` \| (`[^|]+) \|", re.MULTILINE)
OF_FTS5 = re.compile(r"words_\w+")


def documented(section: str) -> dict[str, list[str]]:
    page = (ROOT / "docs" / "search-databases.md").read_text("utf-8")
    text = page.split(f"\n## {section}", 1)[1].split("\n## ", 1)[0]
    return {table: re.findall(r"`(\w+)`", columns) for table, columns in ROW.findall(text)}


def tables(path: Path) -> dict[str, list[str]]:
    def read() -> Iterator[tuple[str, list[str]]]:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not OF_FTS5.fullmatch(name):
                yield name, [column[1] for column in database.execute(f"PRAGMA table_info({name})")]

    with closing(sqlite3.connect(path)) as database:
        return dict(read())


def test_the_page_names_the_tables_and_columns_of_the_record_store(tmp_path):
    async def create() -> None:
        store = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await store.open()
        await store.close()

    asyncio.run(create())
    assert documented("The record store") == tables(tmp_path / "torrents.sqlite")


def test_the_page_names_the_tables_and_columns_of_the_index(tmp_path):
    Fts5Index(tmp_path / "torrents", TORRENTS, write=True).close()
    Fts5Index(tmp_path / "pages", PAGES, write=True).close()
    assert documented("The index") == tables(tmp_path / "torrents/fts5/index.sqlite")
    pages = tables(tmp_path / "pages/fts5/index.sqlite")
    assert (pages["entries"], pages["words"]) == (["id", "key", "stored"], ["title", "headings", "text", "url"])


def test_the_page_names_the_tables_and_columns_of_the_word_list(tmp_path):
    WordCounter(tmp_path, TORRENTS).close()
    assert documented("The word list") == tables(tmp_path / "words/words.sqlite")
