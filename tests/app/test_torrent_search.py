"""Opening the index of torrents."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import open_torrent_index, torrent_indexer
from lycosa.core.errors import IndexDamaged, IndexFailure, IndexLocked
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.schema import TORRENTS
from lycosa.search.index_folder import FORMAT, VERSION, Marker, marker_of, write_marker
from lycosa.search.tantivy import TantivyIndex
from tests.search.site.torrents.sample_torrents import NOW, SAMPLES


@pytest.mark.parametrize("write", [False, True])
def test_an_unknown_engine_of_another_version_of_lycosa_is_named_in_the_error(tmp_path, write):
    write_marker(tmp_path, Marker(FORMAT, VERSION, TORRENTS.kind, TORRENTS.words, "other"))
    with pytest.raises(IndexFailure, match=r"unknown engine 'other': update Lycosa"):
        open_torrent_index(tmp_path, write=write)


def test_an_index_is_not_locked_after_its_indexer_failed_to_start(tmp_path):
    location = RecordsLocation(str(tmp_path), None)

    async def run() -> None:
        async with open_records(location, create=True) as store:
            TantivyIndex(tmp_path / "index", TORRENTS, write=True).close()
            (tmp_path / "index/words").touch()
            with pytest.raises(IndexFailure, match="has a word list that cannot be opened"):
                async with torrent_indexer(store, location, tmp_path / "index"):
                    pass
            (tmp_path / "index/words").unlink()
            async with torrent_indexer(store, location, tmp_path / "index") as indexer:
                assert await indexer.catch_up() == 0

    asyncio.run(run())


def truncate(file: Path) -> None:
    file.write_bytes(b"")


def scramble(file: Path) -> None:
    file.write_bytes(random.Random(7).randbytes(max(file.stat().st_size, 100)))


@pytest.mark.parametrize("damage", [truncate, scramble, Path.unlink])
@pytest.mark.parametrize(
    ("engine", "damaged"),
    [
        ("tantivy", "tantivy/*.store"),
        ("tantivy", "tantivy/*.term"),
        ("tantivy", "tantivy/meta.json"),
        ("tantivy", "tantivy/.managed.json"),
        ("fts5", "fts5/index.sqlite"),
        ("tantivy", "words/words.sqlite"),
    ],
)
def test_a_damaged_index_is_built_again_on_demand_only(tmp_path, engine, damaged, damage):
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def fill() -> None:
        async with (
            open_records(location, create=True) as store,
            torrent_indexer(store, location, folder, engine, ("names-only",)) as indexer,
        ):
            await store.put(SAMPLES, NOW)
            await indexer.catch_up()

    async def check() -> None:
        async with open_records(location) as store:
            try:
                async with torrent_indexer(store, location, folder):
                    pass
            except IndexDamaged as failure:
                assert "sqlite" in damaged or damaged.rpartition("/")[2].strip("*") in str(failure)
                assert "Error" not in str(failure)
                assert str(failure).endswith("`lycosa index --rebuild` with the same --state or --store to rebuild it")
            else:
                assert damage is Path.unlink or "sqlite" in damaged, "a missing file may be created again"
            async with torrent_indexer(store, location, folder, rebuild=True) as indexer:
                await indexer.rebuild()
                await indexer.catch_up()

    asyncio.run(fill())
    for file in folder.glob(damaged):
        damage(file)
    asyncio.run(check())
    marker = marker_of(folder)
    assert marker
    assert (marker.engine, marker.analysis) == (engine, ("names-only",))
    index = open_torrent_index(folder)
    assert index.find(SearchRequest()).total == len(SAMPLES)
    index.close()


def test_an_index_that_another_process_writes_is_not_emptied(tmp_path):
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store, torrent_indexer(store, location, folder):
            for file in (folder / "tantivy").iterdir():
                truncate(file)
            with pytest.raises(IndexLocked):
                async with torrent_indexer(store, location, folder, rebuild=True):
                    pass
            assert (folder / "tantivy/meta.json").exists()

    asyncio.run(run())
