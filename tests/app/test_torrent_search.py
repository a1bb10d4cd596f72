"""Opening the index of torrents."""

from __future__ import annotations

import asyncio

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import open_torrent_index, torrent_indexer
from lycosa.core.errors import IndexFailure
from lycosa.search.core.schema import TORRENTS
from lycosa.search.index_folder import FORMAT, VERSION, Marker, write_marker
from lycosa.search.tantivy import TantivyIndex


@pytest.mark.parametrize("write", [False, True])
def test_an_engine_of_another_lycosa_is_named(tmp_path, write):
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
