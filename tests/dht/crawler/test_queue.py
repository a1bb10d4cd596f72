"""The queue of infohashes on the embedded frontier: order, durability, and the state after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import ANNOUNCED, POLICY, SAMPLED, infohash_of
from lycosa.dht.crawler.core.retries import last_failure
from lycosa.dht.crawler.queue import HashQueue
from lycosa.frontier.core.model import Selection
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.lsm.store import DELAYED_TABLE
from lycosa.frontier.ports import ReadableFrontier
from tests.virtual import VirtualLoop

HASHES = [bytes([number]) * 19 + b"x" for number in range(5)]
NOW = 1_000_000.0


class At:
    """A queue at a time that the test sets."""

    def __init__(self, folder: Path) -> None:
        self.now = NOW
        self.frontier = embedded_frontier(folder, POLICY, now=NOW)
        self.queue = HashQueue(self.frontier, lambda: self.now, lambda: 0.0)

    async def leased(self) -> list[bytes]:
        return [infohash_of(each.record) for each in await self.queue.lease(100)]


def test_infohashes_are_queued_once_and_announced_ones_go_first(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        assert await at.queue.push(HASHES, SAMPLED) == 5
        assert await at.queue.push([*HASHES, b"y" * 19 + b"z"], ANNOUNCED) == 1
        assert await at.leased() == [b"y" * 19 + b"z", *HASHES]
        await at.frontier.close()

    asyncio.run(run())


def test_the_position_of_the_sweep_is_stored_in_one_step_with_the_infohashes(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        await at.queue.push(HASHES[:2], SAMPLED)
        await at.queue.commit((1 << 62) - 1)
        await at.queue.push(HASHES[2:], SAMPLED)
        await at.frontier.close()  # like a crash: uncommitted infohashes are lost, and so is the position after them
        again = At(tmp_path)
        assert await again.queue.sweep_position() == (1 << 62) - 1
        assert await again.leased() == HASHES[:2]
        await again.frontier.close()

    asyncio.run(run())


def test_after_a_crash_leased_infohashes_are_queued_and_others_keep_their_state(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        await at.queue.push(HASHES, SAMPLED)
        leases = await at.queue.lease(100)
        await at.queue.done(leases[:2], "fetched")
        await at.queue.failed(leases[2], CrawlOutcome.NO_PEERS)
        await at.queue.commit(0)
        await at.frontier.close()
        again = At(tmp_path)
        assert await again.queue.push(HASHES, SAMPLED) == 0
        assert sorted(await again.leased()) == HASHES[3:]
        again.now += 61.0
        assert await again.leased() == [HASHES[2]]
        await again.frontier.close()

    asyncio.run(run())


def test_a_clock_that_jumps_ends_no_try_and_no_infohash_is_forgotten(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        await at.queue.push(HASHES[:1], SAMPLED)
        for _ in range(30):  # more failures than EXPIRIES_MAX, after which an expired lease makes a record dead
            [lease] = await at.queue.lease(1)
            await at.queue.failed(lease, CrawlOutcome.NO_PEERS)
            at.now += 60 * 86_400.0
        [lease] = await at.queue.lease(1)
        at.now += 30 * 86_400.0  # the machine slept for a month
        await at.frontier.expire(at.now)
        assert await at.leased() == []
        await at.queue.done([lease], "fetched")
        stats = await at.queue.stats()
        assert (stats.done, stats.dead, stats.queued) == (1, 0, 0)
        await at.frontier.close()

    asyncio.run(run())


def test_every_queued_infohash_is_known_in_memory_and_on_disk(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        assert at.queue.unknown([*HASHES, HASHES[0]]) == HASHES
        await at.queue.push(HASHES[:3], SAMPLED)
        assert at.queue.unknown(HASHES) == HASHES[3:]
        (lease, *_) = await at.queue.lease(100)
        await at.queue.done([lease], "fetched")
        await at.queue.commit(0)
        at.frontier.store.checkpoint()
        assert at.queue.unknown(HASHES) == HASHES[3:]
        await at.frontier.close()
        again = At(tmp_path)
        assert again.queue.unknown(HASHES) == HASHES[3:]
        await again.frontier.close()

    asyncio.run(run())


def test_the_row_of_a_done_record_still_gives_its_infohash(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        await at.queue.push(HASHES[:1], SAMPLED)
        await at.queue.done(await at.queue.lease(1), "fetched")
        rows = at.frontier.store.rows(Selection(), "", 10).rows
        assert [infohash_of(row.record) for row in rows] == HASHES[:1]
        await at.frontier.close()

    asyncio.run(run())


class NotingQueue(HashQueue):
    """Signals when a commit is done."""

    def __init__(self, frontier: ReadableFrontier) -> None:
        super().__init__(frontier, lambda: NOW, lambda: 0.0)
        self.committed = asyncio.Event()

    async def commit(self, sweep_position: int) -> None:
        await super().commit(sweep_position)
        self.committed.set()


def test_an_infohash_is_durable_within_a_second(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue = NotingQueue(frontier)
        task = asyncio.create_task(queue.keep_durable(lambda: 7))
        await queue.committed.wait()
        queue.committed.clear()
        pushed_at = asyncio.get_running_loop().time()
        await queue.push(HASHES, SAMPLED)
        await queue.committed.wait()
        assert asyncio.get_running_loop().time() - pushed_at <= 1.0
        task.cancel()
        await asyncio.wait([task])
        await frontier.close()  # like a crash: uncommitted infohashes are lost
        again = At(tmp_path)
        assert await again.leased() == HASHES
        await again.frontier.close()

    loop = VirtualLoop()  # a busy machine delays nothing
    loop.run_until_complete(run())
    loop.close()


def test_an_infohash_that_failed_takes_few_bytes_and_is_read_back_unchanged(tmp_path: Path) -> None:
    async def run() -> None:
        at = At(tmp_path)
        await at.queue.push(HASHES[:1], ANNOUNCED)
        [lease] = await at.queue.lease(1)
        await at.queue.failed(lease, CrawlOutcome.NO_PEERS)
        await at.queue.commit(0)
        at.frontier.store.checkpoint()
        [(_, row)] = at.frontier.store.memtable.database.rows_after(DELAYED_TABLE, b"", b"", 10)
        assert len(row) < 60
        await at.frontier.close()
        again = At(tmp_path)
        again.now += 100.0
        [retried] = await again.queue.lease(1)
        assert retried.record == replace(lease.record, attempts=1, not_before=retried.record.not_before)
        assert last_failure(retried.record.not_before) is CrawlOutcome.NO_PEERS
        await again.frontier.close()

    asyncio.run(run())
