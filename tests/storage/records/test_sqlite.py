"""The record store in a file: its size, full disks, kills, foreign files."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.core.errors import ForeignState, StorageFull, UsageError
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import Popularity, PutResult, Standing, TorrentRecord, searched
from lycosa.storage.records.database import slices
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.records.sqlite import EVICTED_SHARE, LOG_MAX_BYTES, SIZE_MIN_BYTES, SqliteRecordStore
from tests.conftest import ROOT
from tests.storage.torrents import comparable, read, torrent

NOW = 1_790_000_000.0
CAP = SIZE_MIN_BYTES
BATCHES = 18


def files_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in path.parent.iterdir())


def test_the_size_limit_holds_and_torrents_with_seeders_stay(tmp_path: Path):
    path = tmp_path / "torrents.sqlite"
    template = replace(torrent(1, 1), comment=random.Random(1).randbytes(10_000).hex())

    async def scenario():
        store = SqliteRecordStore(path, max_bytes=CAP)
        sizes = []
        for batch in range(BATCHES):
            some = [replace(template, infohash_v1=batch.to_bytes(10) + n.to_bytes(10)) for n in range(100)]
            assert (await store.put(some, NOW + batch)).new == 100
            if batch == 0:
                await store.set_popularity([Popularity(each.infohash_v1, 5, 0, 1) for each in some])
            sizes.append(files_bytes(path))
        rows = await store.torrents(0, 10_000)
        await store.close()
        return sizes, [row.record.infohash_v1 for row in rows]

    sizes, left = asyncio.run(scenario())
    assert max(sizes) <= CAP
    assert max(sizes) > CAP / 2
    assert 200 < len(left) < 100 * BATCHES - 300
    assert all((0).to_bytes(10) + n.to_bytes(10) in left for n in range(100))
    batches = {int.from_bytes(each[:10]) for each in left} - {0}
    assert batches == set(range(min(batches), BATCHES))


def test_a_crawl_with_a_size_limit_evicts_torrents_from_a_store_that_exceeds_the_limit(tmp_path: Path):
    chance = random.Random(1)
    large = [replace(torrent(n, 1), comment=chance.randbytes(20_000).hex()) for n in range(1000)]

    async def scenario():
        imported = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await imported.put(large, NOW)
        assert files_bytes(imported.path) > CAP
        await imported.close()
        store = SqliteRecordStore(imported.path, max_bytes=CAP)
        await store.put([torrent(2000)], NOW + 1)
        assert await store.get(torrent(2000).keys[0])
        assert files_bytes(store.path) <= CAP
        await store.close()

    asyncio.run(scenario())


def test_a_large_batch_in_a_small_store_evicts_no_more_than_it_needs(tmp_path: Path):
    chance = random.Random(1)

    def large(first: int, count: int) -> list[TorrentRecord]:
        return [replace(torrent(n, 1), comment=chance.randbytes(20_000).hex()) for n in range(first, first + count)]

    async def scenario():
        store = SqliteRecordStore(tmp_path / "torrents.sqlite", max_bytes=CAP)
        liked = large(0, 150)
        await store.put(liked, NOW)
        await store.set_popularity([Popularity(each.infohash_v1, 5, 0, 1) for each in liked])
        assert (await store.put(large(1000, 250), NOW + 1)).new == 250
        assert files_bytes(store.path) <= CAP
        left = [row.record for row in await store.torrents(0, 10_000)]
        assert left[:150] == liked
        assert len(left) > 250
        await store.close()

    asyncio.run(scenario())


def test_torrents_with_few_seeders_are_evicted_from_the_whole_file_without_leaving_gaps(tmp_path: Path):
    chance = random.Random(1)
    some = [replace(torrent(n, 1), comment=chance.randbytes(3500).hex()) for n in range(7250)]
    seeders = {record.infohash_v1: chance.randrange(10) for record in some}

    async def scenario():
        imported = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await imported.put(some[:7000], NOW)
        await imported.set_popularity([Popularity(key, number, 0, 1) for key, number in seeders.items()])
        assert files_bytes(imported.path) > CAP
        await imported.close()
        store = SqliteRecordStore(imported.path, max_bytes=CAP)
        result = await store.put(some[7000:], NOW + 1)
        assert files_bytes(store.path) <= CAP
        left = {row.record for row in await store.torrents(0, 10_000)}
        await store.close()
        return result, left

    result, left = asyncio.run(scenario())
    assert result == PutResult(new=250, evicted=7250 - len(left))
    assert left < set(some)
    assert len(left) > 4750
    evicted = sorted(seeders[record.infohash_v1] for record in set(some) - left)
    kept = sorted(seeders[record.infohash_v1] for record in left & set(some[:7000]))
    assert evicted[-1] <= kept[0] + 1


def test_only_the_last_evicted_torrents_are_remembered_when_there_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("lycosa.storage.records.sqlite.EVICTED_BYTES", CAP // EVICTED_SHARE // 500)
    chance = random.Random(1)
    large = [replace(torrent(n, 1), comment=chance.randbytes(20_000).hex()) for n in range(1500)]

    async def scenario():
        store = SqliteRecordStore(tmp_path / "torrents.sqlite", max_bytes=CAP)
        await store.deny([torrent(2000).keys[0]])
        for batch, some in enumerate(slices(large, 100)):
            await store.put(some, NOW + batch)
        standing = await store.standing([record.keys[0] for record in [*large, torrent(2000)]], NOW)
        await store.close()
        return list(standing.values())

    standing = asyncio.run(scenario())
    evicted, stored = standing.count(Standing.EVICTED), standing.count(Standing.STORED)
    assert standing == [Standing.EVICTED] * evicted + [Standing.STORED] * stored + [Standing.DENIED]
    assert 300 < evicted <= 500
    assert evicted + stored < 1400, "the first evicted ones are forgotten"


def test_new_content_facts_of_many_torrents_leave_the_log_small(tmp_path: Path):
    chance = random.Random(1)
    large = [replace(torrent(n, 1), comment=chance.randbytes(100_000).hex()) for n in range(250)]

    async def scenario():
        store = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await store.put(large, NOW)
        assert await store.set_content(dict.fromkeys(range(1, 251), ContentFacts(ContentType.VIDEO))) == 250
        assert files_bytes(store.path) - store.path.stat().st_size < LOG_MAX_BYTES
        await store.close()

    asyncio.run(scenario())


def test_a_full_disk_is_one_clear_error_and_nothing_stored_is_lost(tmp_path: Path):
    async def scenario():
        store = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await store.put([torrent(n) for n in range(100)], NOW)
        store._execute(f"PRAGMA max_page_count={store._pragma('page_count')}")
        with pytest.raises(StorageFull, match="nothing is lost: free some"):
            await store.put([torrent(n) for n in range(100, 400)], NOW)
        assert len(await store.torrents(0, 1000)) == 100
        store._execute("PRAGMA max_page_count=1000000")
        assert await store.put([torrent(n) for n in range(400)], NOW) == PutResult(new=300, known=100)
        await store.close()

    asyncio.run(scenario())


def test_a_store_that_is_full_or_locked_for_a_while_loses_nothing(tmp_path: Path):
    said: list[str] = []

    async def scenario():
        heard = asyncio.Queue[str]()
        store = SqliteRecordStore(tmp_path / "torrents.sqlite")
        await store.put([torrent(1)], NOW)
        store.outage_wait = OutageWait(heard.put_nowait)
        store._execute(f"PRAGMA max_page_count={store._pragma('page_count')}")
        storing = asyncio.create_task(store.put([torrent(n) for n in range(100)], NOW))
        said.append(await heard.get())
        store._execute("PRAGMA max_page_count=1000000")
        assert await storing == PutResult(new=99, known=1)

        store._execute("PRAGMA busy_timeout=0")
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        storing = asyncio.create_task(store.put([torrent(100)], NOW))
        said.extend([await heard.get(), await heard.get()])
        other.execute("ROLLBACK")
        other.close()
        assert await storing == PutResult(new=1)
        await store.close()

    asyncio.run(scenario())
    assert "no space left" in said[0]
    assert "another process has locked the torrents" in said[2]
    assert said[1].startswith("the torrents can be stored again after")


def test_torrents_stored_by_a_killed_process_are_kept_with_their_changes(tmp_path: Path):
    program = """
        import asyncio, sys
        from pathlib import Path
        from lycosa.storage.records.sqlite import SqliteRecordStore
        from tests.storage.torrents import torrent

        async def main():
            store = SqliteRecordStore(Path(sys.argv[1]))
            for number in range(10**6):
                await store.put([torrent(number, 2)], 1.0)
                print(number, flush=True)

        asyncio.run(main())
    """
    path = tmp_path / "torrents.sqlite"
    stored = 0
    for last in (20, 60):
        command = [sys.executable, "-c", textwrap.dedent(program), str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for line in process.stdout:
            stored = int(line) + 1
            if stored > last:
                process.send_signal(signal.SIGKILL)
                break
        process.stdout.close()
        process.wait()
        assert stored > last

    async def scenario():
        store = SqliteRecordStore(path)
        rows = await store.torrents(0, 10_000)
        assert stored <= len(rows)
        assert [row.record for row in rows] == [torrent(number, 2) for number in range(len(rows))]
        assert [read(change) for change in await store.changes(10_000)] == [comparable(searched(row)) for row in rows]
        assert len(await store.infohashes(0, 10_000)) == len(rows)
        await store.close()

    asyncio.run(scenario())


def test_a_new_state_folder_is_private(tmp_path: Path):
    async def scenario():
        store = SqliteRecordStore(tmp_path / "state" / "torrents.sqlite")
        await store.open()
        await store.close()

    asyncio.run(scenario())
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_foreign_file_and_a_size_that_is_too_small_are_refused(tmp_path: Path):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE t (a)")
    other.close()
    with pytest.raises(ForeignState, match="give another name"):
        asyncio.run(SqliteRecordStore(path).open())
    with pytest.raises(UsageError, match="at least 24 MiB"):
        SqliteRecordStore(path, max_bytes=SIZE_MIN_BYTES - 1)
