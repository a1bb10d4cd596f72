"""The relevance of results: 200 queries over invented torrents, on every engine.

`relevance/queries.tsv` lists the expected torrents of each query. One of them must be among the first three results,
and must have all words of the query, except in the last group, whose queries have words that no torrent has. Names
share words on purpose: titles within titles, episodes of one series, releases of one film.
"""

from __future__ import annotations

import asyncio
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lycosa.search.core.schema import TORRENTS
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.records.memory import MemoryRecordStore
from tests.search.indexes import ENGINES, create_index
from tests.storage.torrents import torrent

NOW = 1_800_000_000.0
HERE = Path(__file__).parents[1] / "relevance"
FIRST = 3
LOOSE = {"the glass mountain full movie free 1998", "kings of the north all episodes english", "夜行列车在线观看"}


def rows(name: str) -> list[list[str]]:
    lines = (HERE / name).read_text("utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]


def record(row: list[str]) -> TorrentRecord:
    key, kind, size, day, name, files = row
    listed = files.split("|")
    return replace(
        torrent(int(key)),
        name=name,
        files=tuple(StoredFile(path, int(size) // len(listed)) for path in listed),
        discovered=int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()),
        content=ContentFacts(type=ContentType[kind.upper()]),
    )


async def misses(engine: str, path: Path) -> list[str]:
    """Return the queries whose torrents are not among the first results."""
    store = MemoryRecordStore()
    names = {row[0]: row[4] for row in rows("torrents.tsv")}
    await store.put([record(row) for row in rows("torrents.tsv")], NOW)
    missed = []
    with closing(create_index(engine, path, TORRENTS)) as index:
        await TorrentIndexer(index, store).catch_up()
        search = TorrentSearch(index, store, lambda: NOW)
        for query, keys in rows("queries.tsv"):
            found = await search.search(TorrentRequest(query, limit=FIRST))
            first = [each.record.name for each in found.torrents]
            meant = [names[key] for key in keys.split()]
            if not set(first) & set(meant) or found.partial != (query in LOOSE):
                missed.append(f"{query!r} means {meant[:2]}, found {first} of {found.total}")
    return missed


@pytest.mark.parametrize("engine", ENGINES)
def test_an_expected_torrent_is_among_the_first_three_results(engine, tmp_path):
    missed = asyncio.run(misses(engine, tmp_path / "index"))
    assert not missed, "\n".join(missed)
    assert len(rows("queries.tsv")) == 200
