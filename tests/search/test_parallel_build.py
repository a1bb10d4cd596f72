"""An index that several processes fill equals an index that a single process fills, and nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path

import pytest

from lycosa.core.errors import IndexFailure
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.schema import TORRENTS
from lycosa.search.parallel_build import Workers
from lycosa.search.ports import NewIndex
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.word_list import WordCounter, WordList
from lycosa.storage.core.torrent_record import Popularity
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
COUNT = 400


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[RecordStore]:
    store = SqliteRecordStore(path / "torrents.sqlite")
    await store.open()
    yield store
    await store.close()


@asynccontextmanager
async def dying(path: Path) -> AsyncIterator[RecordStore]:
    os.kill(os.getpid(), signal.SIGKILL)
    async with opened(path) as store:
        yield store


@asynccontextmanager
async def failing(path: Path) -> AsyncIterator[RecordStore]:
    raise IndexFailure(f"{path.name} is not available")
    yield


@asynccontextmanager
async def bugged(path: Path) -> AsyncIterator[RecordStore]:
    raise ValueError(f"no column in\n{path.name}")
    yield


@asynccontextmanager
async def one_dying(path: Path) -> AsyncIterator[RecordStore]:
    """The first process is killed, and the other one never ends."""
    try:
        (path / "first").touch(exist_ok=False)
    except FileExistsError:
        await asyncio.Event().wait()
    async with dying(path) as store:
        yield store


def workers(open_store: object) -> Workers:
    return Workers(open_store, 2, COUNT, 50)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filled")

    async def fill() -> None:
        async with opened(path) as store:
            await store.put([torrent(n, 2) for n in range(COUNT)], NOW)

    asyncio.run(fill())
    return path


def copy(filled: Path, path: Path) -> Path:
    (path / "torrents.sqlite").write_bytes((filled / "torrents.sqlite").read_bytes())
    return path


def test_an_index_filled_by_processes_equals_that_of_one_process_and_follows_the_store(filled, tmp_path):
    async def fill(store: RecordStore, name: str, divided: Workers | None) -> list[object]:
        index = TantivyIndex(tmp_path / name, TORRENTS, write=True)
        words = WordCounter(tmp_path / name, TORRENTS)
        indexer = TorrentIndexer(index, store, words, None, divided)
        indexed = await indexer.catch_up()
        pending = await store.changes(10)
        keys = {match.key for match in index.find(SearchRequest(limit=2 * COUNT)).page}
        types = index.count_values(SearchRequest(), {"type": 10})
        await store.set_popularity([Popularity(torrent(5, 2).infohash_v1, 900, 1, int(NOW))])
        assert await indexer.catch_up() == 1
        assert index.find(SearchRequest(sort="seeders", limit=1)).page[0].key == 6
        assert index.count() == COUNT
        await indexer.close()
        frequencies = WordList(tmp_path / name).frequencies(
            [f"{torrent(n, 2).name}".split(".")[0].lower() for n in range(99)]
        )
        return [indexed, pending, len(keys), types, frequencies]

    async def main() -> list[list[object]]:
        results = []
        for name, divided in (("one", None), ("two", workers(partial(opened, tmp_path)))):
            copy(filled, tmp_path)
            async with opened(tmp_path) as store:
                results.append(await fill(store, name, divided))
        return results

    one, two = asyncio.run(main())
    assert one == two
    assert (one[0], one[1], one[2]) == (COUNT, [], COUNT)
    assert not list((tmp_path / "two").glob("*/part*"))


def test_changes_while_processes_fill_a_new_index_are_in_both_and_words_are_counted_once(filled, tmp_path, monkeypatch):
    monkeypatch.setattr("lycosa.search.torrent_indexer.POLL_S", 0.01)
    copy(filled, tmp_path)

    async def main() -> None:
        async with opened(tmp_path) as store:
            index = TantivyIndex(tmp_path / "index", TORRENTS, write=True)
            words = WordCounter(tmp_path / "index", TORRENTS)
            indexer = TorrentIndexer(index, store, words, None, workers(partial(opened, tmp_path)))
            await indexer.catch_up()
            listed = WordList(tmp_path / "index").completions("", 1000)
            frequencies = WordList(tmp_path / "index").frequencies(listed)
            mark_listed = store.mark_listed

            async def changing() -> int:
                last_id = await mark_listed()
                await store.deny([torrent(n, 2).infohash_v1 for n in (3, 4)])
                await store.set_popularity(
                    [Popularity(torrent(n, 2).infohash_v1, 5, 1, int(NOW)) for n in range(COUNT)]
                )
                await store.put([torrent(COUNT, 2)], NOW)
                return last_id

            def keys() -> set[int]:
                return {match.key for match in index.find(SearchRequest(limit=2 * COUNT)).page}

            adopt, before_adoption = index.adopt, []

            def adopting(rebuilt: NewIndex) -> None:
                before_adoption.append(keys())
                adopt(rebuilt)

            store.mark_listed = changing  # type: ignore[method-assign]
            index.adopt = adopting  # type: ignore[method-assign]
            await indexer.rebuild()
            rows = {row.id for row in await store.torrents(0, 2 * COUNT)}
            assert before_adoption == [rows], "the old index follows the store during the build"
            assert keys() == rows
            assert await store.changes(10) == []
            counted = WordList(tmp_path / "index").frequencies(listed)
            added = sum(frequencies.values()) / COUNT
            assert sum(counted.values()) == pytest.approx(sum(frequencies.values()), abs=10 * added), "counted once"
            await indexer.close()

    asyncio.run(main())


def test_after_a_kill_before_the_acknowledgement_a_finished_index_is_not_filled_again(filled, tmp_path, monkeypatch):
    copy(filled, tmp_path)

    async def killed(_store: RecordStore, _last_id: int) -> None:
        raise RuntimeError("killed")

    async def build(store: RecordStore) -> int:
        index = TantivyIndex(tmp_path / "index", TORRENTS, write=True)
        indexer = TorrentIndexer(index, store, None, None, workers(partial(opened, tmp_path)))
        try:
            return await indexer.catch_up()
        finally:
            await indexer.close()

    async def main() -> None:
        async with opened(tmp_path) as store:
            with monkeypatch.context() as patch:
                patch.setattr(SqliteRecordStore, "acknowledge_until", killed)
                with pytest.raises(RuntimeError, match="killed"):
                    await build(store)
            await store.set_popularity([Popularity(torrent(5, 2).infohash_v1, 900, 1, int(NOW))])
            await store.put([torrent(COUNT, 2)], NOW)
            assert await build(store) == 2
            assert await store.changes(10) == []

    asyncio.run(main())
    with closing(TantivyIndex(tmp_path / "index", TORRENTS)) as index:
        assert index.count() == COUNT + 1
        assert index.find(SearchRequest(sort="seeders", limit=1)).page[0].key == 6


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (dying, "was killed: run the same command again"),
        (one_dying, "was killed"),
        (failing, "is not available"),
        (bugged, r"^a process that fills the index failed: ValueError: no column in$"),
    ],
)
def test_a_process_that_fails_is_an_error_and_the_next_attempt_succeeds(filled, tmp_path, broken, message):
    copy(filled, tmp_path)

    async def main() -> None:
        async with opened(tmp_path) as store:
            index = TantivyIndex(tmp_path / "index", TORRENTS, write=True)
            with pytest.raises(IndexFailure, match=message):
                await TorrentIndexer(index, store, None, None, workers(partial(broken, tmp_path))).catch_up()
            assert index.count() == 0
            indexer = TorrentIndexer(index, store)
            assert await indexer.catch_up() == COUNT
            await indexer.close()

    asyncio.run(main())
    with closing(TantivyIndex(tmp_path / "index", TORRENTS)) as index:
        assert index.count() == COUNT
