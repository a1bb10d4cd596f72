"""`dht.crawl`, the DHT crawl as a Python API: it yields each torrent once, raises errors, and ends cleanly whenever the
`async for` loop ends.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa import dht
from lycosa.app.dht_state import RecordsLocation, note_size, note_store, open_hash_frontier, open_records
from lycosa.core.errors import StateError, UsageError
from lycosa.dht.core.endpoints import text
from lycosa.dht.crawler.core.hash_records import to_record
from lycosa.dht.crawler.core.profiles import HOME
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.returns import ReturnsStage
from lycosa.storage.core.torrent_record import EVICTED_S, TorrentRecord
from lycosa.storage.records.memory import MemoryRecordStore
from tests.dht.crawler.test_stages import INFOHASH, node, sharing
from tests.loops import LOOPS, run_on
from tests.servers.proxies import new_address
from tests.storage.torrents import torrent

NOTHING_NEW_S = 1.0


@asynccontextmanager
async def network() -> AsyncIterator[dict[str, Any]]:
    """Run a network with one torrent. Yield the arguments of a crawl of it."""
    async with node() as first, sharing(first):
        join = [text(each) for each in first.endpoints]
        yield {"bootstrap": join, "allow_private": ["127.0.0.0/8"], "profile": "server"}


def crawl(arguments: dict[str, Any], **more: Any) -> AsyncGenerator[dht.StoredTorrent]:
    return dht.crawl([f"{new_address()}:0"], **arguments, **more)


@pytest.fixture(params=list(LOOPS.values()), ids=list(LOOPS))
def new_loop(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_each_torrent_is_yielded_once_and_is_stored_before(new_loop: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with network() as arguments:
            async for torrent in crawl(arguments, state=tmp_path, max_torrents=1):
                assert torrent.record.infohash_v1 == INFOHASH
                async with open_records(RecordsLocation(str(tmp_path), None)) as store:
                    assert await store.get(INFOHASH) == torrent
                    assert await store.count() == 1
            async with aclosing(crawl(arguments, state=tmp_path)) as torrents:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(NOTHING_NEW_S):
                        await anext(torrents)

    run_on(new_loop, scenario())


def test_an_async_for_loop_that_ends_early_leaves_an_unlocked_and_complete_state(new_loop: Any, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with network() as arguments:
            async with aclosing(crawl(arguments, state=tmp_path)) as torrents:
                async for _ in torrents:
                    break
            async with open_hash_frontier(tmp_path, 0.0) as frontier:
                assert (await frontier.stats()).done == 1

    run_on(new_loop, scenario())


def test_a_crawl_without_a_state_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def scenario() -> None:
        async with network() as arguments:
            found = [torrent async for torrent in crawl(arguments, max_torrents=1)]
            assert [torrent.record.infohash_v1 for torrent in found] == [INFOHASH]

    run_on(asyncio.new_event_loop, scenario())
    assert list(tmp_path.iterdir()) == []


def test_wrong_arguments_raise_an_error_before_the_first_torrent(tmp_path: Path) -> None:
    async def scenario() -> None:
        wrongs: list[dict[str, Any]] = [{"bind": ["nowhere"]}, {"profile": "fast"}, {"store": "redis://host"}]
        for wrong in (*wrongs, {"max_torrents": 0}, {}):
            with pytest.raises(UsageError):
                await anext(dht.crawl(**{"bind": ["127.0.0.1:0"], "state": tmp_path / "state", **wrong}))

    run_on(asyncio.new_event_loop, scenario())
    assert list(tmp_path.iterdir()) == []


def test_a_state_is_for_one_crawl_at_a_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with network() as arguments, aclosing(crawl(arguments, state=tmp_path)) as torrents:
            await anext(torrents)
            with pytest.raises(StateError):
                await anext(crawl(arguments, state=tmp_path))

    run_on(asyncio.new_event_loop, scenario())


def test_a_store_that_lacks_what_the_queue_has_fetched_is_noticed_once(tmp_path: Path) -> None:
    said: list[str] = []

    async def note(store_url: str | None, *records: TorrentRecord) -> list[str]:
        store = MemoryRecordStore()
        await store.put(records, 1.0)
        said.clear()
        async with open_hash_frontier(tmp_path, 1.0) as queue:
            await note_store(tmp_path, store_url, store, queue, said.append)
        return said

    async def scenario() -> None:
        record = torrent(1)
        assert await note(None) == []
        async with open_hash_frontier(tmp_path, 1.0) as queue:
            await queue.push([to_record(record.keys[0])])
            await queue.ack((await queue.lease(1, 1.0))[0], "fetched", (), 1.0)
            await queue.commit({})
        assert await note(None, record) == []
        [line] = await note(None)
        assert line.startswith("torrents.sqlite lacks torrents that this crawl has fetched (1 in all)")
        assert line.endswith(f"lycosa frontier requeue --done --state {tmp_path / 'queue'}")
        [line] = await note("mysql://me:secret@host/other", torrent(2))
        assert line.startswith("mysql://host/other lacks")
        assert "secret" not in line
        assert await note("mysql://me:secret@host/other", torrent(2)) == []

    run_on(asyncio.new_event_loop, scenario())


def test_a_store_that_is_larger_than_its_limit_is_noticed(tmp_path: Path) -> None:
    said: list[str] = []

    async def scenario() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            used = await store.used_bytes()
            await note_size(store, used, said.append)
            assert not said
            await note_size(store, used - 1, said.append)

    run_on(asyncio.new_event_loop, scenario())
    [line] = said
    assert "more than --max-size" in line
    assert "removes those with the fewest seeders" in line


def test_a_torrent_that_rules_refuse_is_denied_instead_of_stored(tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text('[[deny]]\nreason = "not here"\nwords = ["00000007"]\n')

    async def scenario() -> None:
        async with network() as arguments, aclosing(crawl(arguments, state=tmp_path, rules=[rules])) as torrents:
            crawling = asyncio.ensure_future(anext(torrents))
            async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
                while (refusal := await store.refusal(INFOHASH, 0.0)) is None:
                    assert not crawling.done()
                    await asyncio.sleep(0.02)
                assert refusal.reason == "not here"
                assert await store.count() == 0
            crawling.cancel()
            await asyncio.wait([crawling])

    run_on(asyncio.new_event_loop, scenario())


class WatchedStore(MemoryRecordStore):
    """Records how many bytes of the queue's log were synced when the store forgot evictions."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_bytes = self.synced_bytes_before = 0

    async def forget_lapsed(self, infohashes: Sequence[bytes], now: float) -> None:
        self.synced_bytes_before = self.synced_bytes
        await super().forget_lapsed(infohashes, now)


def test_the_store_forgets_an_eviction_only_after_the_queued_torrent_is_synced_to_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fdatasync, store = os.fdatasync, WatchedStore()

    def noting(file: int) -> None:
        fdatasync(file)
        store.synced_bytes = os.fstat(file).st_size

    async def scenario() -> None:
        await store.put([torrent(1)], 1.0)
        await store.evict(1, 1.0)
        async with open_hash_frontier(tmp_path, 1.0) as frontier:
            queue = HashQueue(frontier, lambda: 2.0 + EVICTED_S, lambda: 0.0)
            assert await ReturnsStage(store, queue, HOME).queue_some() == 1
            [log] = (tmp_path / "queue").rglob("journal.*")
            assert store.synced_bytes_before == log.stat().st_size > 0

    monkeypatch.setattr(os, "fdatasync", noting)
    asyncio.run(scenario())
