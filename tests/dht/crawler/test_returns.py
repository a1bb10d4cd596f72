"""Evicted torrents are queued again when they may be stored again, also after a crash at any step."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from lycosa.dht.crawler.core.hash_records import POLICY, SAMPLED, infohash_of
from lycosa.dht.crawler.core.profiles import HOME
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.crawler.returns import ReturnsStage
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.core.torrent_record import EVICTED_S
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent
from tests.virtual import VirtualLoop

NOW = 1_790_000_000.0
RECORDS = [torrent(number) for number in range(3)]
HASHES = [record.keys[0] for record in RECORDS]


class At:
    """The queue of a crawl at a time that the test sets."""

    def __init__(self, folder: Path, store: MemoryRecordStore, now: float = NOW) -> None:
        self.now = now
        self.frontier = embedded_frontier(folder, POLICY, now=now)
        self.queue = HashQueue(self.frontier, lambda: self.now, lambda: 0.0)
        self.stage = ReturnsStage(store, self.queue, HOME)

    async def leased(self) -> list[bytes]:
        return sorted(infohash_of(each.record) for each in await self.queue.lease(100))


async def evicted(folder: Path) -> tuple[At, MemoryRecordStore]:
    """Fetch and store some torrents, and evict all but one."""
    store = MemoryRecordStore()
    at = At(folder, store)
    await at.queue.push(HASHES, SAMPLED)
    await at.queue.done(await at.queue.lease(100), "fetched")
    await at.queue.commit(0)
    await store.put(RECORDS, NOW)
    await store.mark_seen(HASHES[:1], NOW + 1)
    await store.evict(2, NOW)
    return at, store


def test_evicted_torrents_are_queued_again_when_their_time_is_over(tmp_path: Path) -> None:
    async def run() -> None:
        at, store = await evicted(tmp_path)
        at.now += EVICTED_S - 1
        assert await at.stage.queue_some() == 0
        at.now += 1
        assert await at.stage.queue_some() == 2
        assert await at.leased() == sorted(HASHES[1:])
        assert await at.stage.queue_some() == 0
        assert (await store.put(RECORDS[1:], at.now)).new == 2
        await at.frontier.close()

    asyncio.run(run())


@pytest.mark.parametrize("was_committed", [False, True])
def test_after_a_crash_each_evicted_torrent_is_queued_once(tmp_path: Path, was_committed: bool) -> None:
    async def run() -> None:
        at, store = await evicted(tmp_path)
        over = NOW + EVICTED_S
        if was_committed:
            await at.queue.push_again(await store.lapsed(over, 10))
        await at.frontier.close()  # as after a crash: the store has not forgotten the evictions
        again = At(tmp_path, store, over)
        assert await again.stage.queue_some() == 2
        assert (await again.queue.stats()).queued == 2
        assert await again.leased() == sorted(HASHES[1:])
        await again.frontier.close()

    asyncio.run(run())


def test_a_queue_that_never_had_the_evicted_torrents_gets_them_too(tmp_path: Path) -> None:
    async def run() -> None:
        at, store = await evicted(tmp_path / "one")
        await at.frontier.close()
        other = At(tmp_path / "other", store, NOW + EVICTED_S)
        assert other.queue.unknown(HASHES) == HASHES
        assert await other.stage.queue_some() == 2
        assert other.queue.unknown(HASHES) == HASHES[:1]
        assert await other.leased() == sorted(HASHES[1:])
        await other.frontier.close()

    asyncio.run(run())


def test_many_evicted_torrents_are_queued_again_in_small_parts(tmp_path: Path) -> None:
    many, minutes = 5 * HOME.returned, 3
    store = MemoryRecordStore()

    async def run() -> None:
        at = At(tmp_path, store)
        await store.put([torrent(number, 1) for number in range(many)], NOW)
        await store.evict(many, NOW)
        at.now += EVICTED_S
        with suppress(TimeoutError):
            async with asyncio.timeout(minutes * 60.0 - 1.0):
                await at.stage.run()
        assert (await at.queue.stats()).queued == minutes * HOME.returned
        await at.frontier.close()

    loop = VirtualLoop()
    loop.run_until_complete(run())
    loop.close()
