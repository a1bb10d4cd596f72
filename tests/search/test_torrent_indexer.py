"""An index follows a store: first filling, changes, removals, kill -9, rebuilding."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import index_follower, open_torrent_index, torrent_indexer
from lycosa.core.errors import IndexFailure, StorageUnavailable
from lycosa.search.core.request import SearchRequest
from lycosa.search.core.schema import TORRENTS
from lycosa.search.ports import Index
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import IndexFollower, TorrentIndexer
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.search.word_list import WordCounter, WordList
from lycosa.storage.core.torrent_record import Popularity, StoredFile, TorrentRecord
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.memory import MemoryRecordStore
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.conftest import PROVE, ROOT
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
Scenario = Callable[[RecordStore, TantivyIndex, TorrentIndexer], Awaitable[None]]


def run(path: Path, scenario: Scenario) -> None:
    async def main():
        store = SqliteRecordStore(path / "torrents.sqlite")
        await store.open()
        with closing(TantivyIndex(path / "index", TORRENTS, write=True)) as index:
            await scenario(store, index, TorrentIndexer(index, store))
        await store.close()

    asyncio.run(main())


def small(number: int) -> TorrentRecord:
    return torrent(number, files=3)


def indexed(index: Index) -> set[int]:
    return {match.key for match in index.find(SearchRequest(limit=1000)).page}


async def stored(store: RecordStore) -> set[int]:
    return {row.id for row in await store.torrents(0, 1000)}


def test_a_new_index_has_all_torrents_and_follows_changes(tmp_path):
    async def scenario(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await store.put([small(n) for n in range(30)], NOW)
        await store.acknowledge((await store.changes(100))[:20])  # another index had these
        assert await indexer.catch_up() == 30
        assert (indexed(index), await store.changes(10)) == (await stored(store), [])
        first = (await store.torrents(0, 1))[0]
        await store.set_popularity([Popularity(first.record.infohash_v1, 7, 1, int(NOW))])
        await store.deny([small(3).infohash_v1])
        await store.put([small(100)], NOW)
        assert await indexer.catch_up() == 3
        assert indexed(index) == await stored(store)
        assert index.find(SearchRequest(sort="seeders")).page[0].key == first.id
        assert await indexer.catch_up() == 0

    run(tmp_path, scenario)


def test_changes_during_a_rebuild_are_in_the_new_and_the_old_index(tmp_path, monkeypatch):
    monkeypatch.setattr("lycosa.search.torrent_indexer.BATCH", 10)

    async def scenario(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await store.put([small(n) for n in range(50)], NOW)
        await indexer.catch_up()
        scan, calls = store.scan, 0

        async def changing(after_id: int, limit: int):
            nonlocal calls
            rows = await scan(after_id, limit)
            await store.deny([small(calls).infohash_v1])
            await store.put([small(100 + calls)], NOW)
            assert len(indexed(index)) == 50
            found = await TorrentSearch(index, store, lambda: NOW).search(TorrentRequest(limit=60))
            shown = {each.record.infohash_v1 for each in found.torrents}
            assert len(shown) >= 44
            assert not shown & {small(n).infohash_v1 for n in range(calls + 1)}, "removals count at once"
            calls += calls < 5
            return rows

        store.scan = changing
        await indexer.rebuild()
        assert calls == 5
        assert indexed(index) == await stored(store)
        assert await indexer.catch_up() == 0

    run(tmp_path, scenario)


def test_an_index_with_older_word_rules_is_rebuilt(tmp_path):
    async def fill(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await store.put([small(n) for n in range(5)], NOW)
        await indexer.catch_up()
        assert not index.outdated

    async def update() -> None:
        store = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await store.open()
        newer = replace(TORRENTS, words=TORRENTS.words + 1)
        index = TantivyIndex(tmp_path / "index", newer, write=True)
        indexer = TorrentIndexer(index, store)
        assert (index.outdated, await indexer.catch_up(), index.outdated) == (True, 5, False)
        assert await indexer.catch_up() == 0
        await indexer.close()
        await store.close()

    run(tmp_path, fill)
    asyncio.run(update())
    with pytest.raises(IndexFailure, match="was built by a newer Lycosa"):
        TantivyIndex(tmp_path / "index", TORRENTS)


def test_an_index_of_names_only_has_no_words_of_files(tmp_path):
    async def main() -> None:
        store = MemoryRecordStore()
        files = (StoredFile("unusualword.mkv", 1),)
        await store.put([replace(small(1), name="Ordinary name", files=files)], NOW)
        for analysis, expected in ((), [1, 1]), (("names-only",), [1, 0]):
            index = TantivyIndex(tmp_path, replace(TORRENTS, analysis=analysis), write=True)
            indexer = TorrentIndexer(index, store)
            await indexer.catch_up()
            search = TorrentSearch(index, store, lambda: NOW)
            requests = [TorrentRequest(query, strict=True) for query in ("ordinary", "unusualword")]
            assert [(await search.search(request)).total for request in requests] == expected
            await indexer.close()

    asyncio.run(main())


def test_an_index_with_another_analysis_is_rebuilt_and_searched_by_it(tmp_path):
    names = ["老電影 合集", "电影 新"]

    async def totals(search: TorrentSearch) -> dict[str, int]:
        return {query: (await search.search(TorrentRequest(query))).total for query in ("电影", "電影")}

    async def main() -> None:
        store = MemoryRecordStore()
        await store.put([replace(small(n), name=name) for n, name in enumerate(names)], NOW)
        for analysis, expected in ((), 1), (("simplified",), 2):
            index = TantivyIndex(tmp_path, replace(TORRENTS, analysis=analysis), write=True)
            indexer = TorrentIndexer(index, store, WordCounter(tmp_path, TORRENTS))
            await indexer.catch_up()
            with closing(TantivyIndex(tmp_path, TORRENTS)) as reader:
                assert await totals(TorrentSearch(reader, store, lambda: NOW)) == {"电影": expected, "電影": expected}
            await store.put([replace(small(9), name="later")], NOW)
            await indexer.catch_up()
            await indexer.close()

    asyncio.run(main())
    assert WordList(tmp_path).frequencies(["later"]) == {"later": 1}


def fill_up(device: Path) -> Path:
    """Leave no room on a device. Return a file whose removal makes room."""
    filler = device / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


@pytest.mark.parametrize("engine", ["fts5", "tantivy"])
def test_an_index_on_a_full_device_reports_it_once_and_goes_on_when_there_is_room(
    tmp_path, small_device, engine, monkeypatch
):
    monkeypatch.setattr("lycosa.search.torrent_indexer.RETRY_MIN_S", 0.01)
    monkeypatch.setattr("lycosa.search.torrent_indexer.RETRY_MAX_S", 0.02)
    location, folder = RecordsLocation(str(tmp_path), None), small_device / "index"
    said: list[str] = []
    tries = 0

    async def main() -> None:
        def opening():
            nonlocal tries
            tries += 1
            return torrent_indexer(store, location, folder, engine)

        async with open_records(location, create=True) as store:
            filler = fill_up(small_device)
            async with IndexFollower(store, opening, said.append) as follower:
                for number in (1, 2):
                    await store.put([small(n) for n in range(10 * number)], NOW)
                    await store.deny([small(number).infohash_v1])
                    catching_up, tries_before = asyncio.ensure_future(follower.catch_up()), tries
                    async with asyncio.timeout(60):
                        while tries < tries_before + 3:  # noqa: ASYNC110  what is waited for has no event
                            await asyncio.sleep(0.01)
                    filler.unlink()
                    await catching_up
                    filler = fill_up(small_device)
            with closing(open_torrent_index(folder)) as index:
                assert indexed(index) == await stored(store)

    asyncio.run(main())
    assert ["no space left on the device; trying again, at least every" in line for line in said] == [True, False] * 2
    assert said[1] == said[3] == "the index works again, and has all torrents"


def test_a_folder_that_is_no_index_is_refused_at_the_start(tmp_path):
    location = RecordsLocation(str(tmp_path), None)

    async def main() -> None:
        async with open_records(location, create=True) as store:
            with pytest.raises(IndexFailure, match="is not a search index"):
                async with index_follower(store, location, tmp_path, pytest.fail):
                    pass

    asyncio.run(main())


class SlowIndex(TantivyIndex):
    """An index whose server answers once `answers` is set."""

    answers = threading.Event()

    def positions(self) -> dict[str, int]:
        assert self.answers.wait(30.0), "the event loop is blocked"
        return super().positions()


def test_an_index_that_does_not_answer_blocks_nothing_else(tmp_path):
    async def main() -> None:
        store = MemoryRecordStore()
        await store.put([small(1)], NOW)
        indexer = TorrentIndexer(SlowIndex(tmp_path, TORRENTS, write=True), store)
        asyncio.get_running_loop().call_soon(SlowIndex.answers.set)
        assert await indexer.catch_up() == 1
        await indexer.close()

    asyncio.run(main())


def test_a_rebuild_that_fails_leaves_no_files(tmp_path, monkeypatch):
    async def scenario(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await store.put([small(1)], NOW)
        await indexer.catch_up()
        files = {*(tmp_path / "index").iterdir()}

        async def fail(*_: object) -> None:
            assert {*(tmp_path / "index").iterdir()} > files
            raise StorageUnavailable("no answer")

        monkeypatch.setattr(store, "scan", fail)
        with pytest.raises(StorageUnavailable):
            await indexer.rebuild()
        assert {*(tmp_path / "index").iterdir()} == files
        assert indexed(index) == await stored(store)

    run(tmp_path, scenario)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from lycosa.search import torrent_indexer
from lycosa.search.core.schema import TORRENTS
from lycosa.search.tantivy import TantivyIndex
from lycosa.storage.records.sqlite import SqliteRecordStore

async def main(path):
    torrent_indexer.BATCH, torrent_indexer.COMMIT_ROWS = 20, 40
    store = SqliteRecordStore(path / "torrents.sqlite")
    await store.open()
    indexer = torrent_indexer.TorrentIndexer(TantivyIndex(path / "index", TORRENTS, write=True), store)
    print("open", flush=True)
    while True:
        await indexer.catch_up()
        print("done", flush=True)
        await indexer.rebuild()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_index_and_store_agree_after_kill_9_at_any_moment(tmp_path):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def change(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await store.put([small(rng.randrange(400)) for _ in range(100)], NOW)
        await store.deny([small(rng.randrange(400)).infohash_v1 for _ in range(10)])

    async def agree(store: RecordStore, index: TantivyIndex, indexer: TorrentIndexer):
        await indexer.catch_up()
        assert indexed(index) == await stored(store)

    for _ in range(20 if PROVE else 4):
        run(tmp_path, change)
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        for _ in range(rng.randint(1, 2)):
            process.stdout.readline()
        try:
            process.wait(rng.uniform(0, 0.05))  # another moment each time
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    run(tmp_path, agree)
