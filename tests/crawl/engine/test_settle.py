"""Leases are settled concurrently, but never during a commit (C1, F4)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lycosa.crawl.engine.commit import Committer, SettleLock
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.engine.run_parts import RunMonitor, RunStorage
from lycosa.crawl.engine.settle import Settler
from lycosa.crawl.engine.visit import Completed
from lycosa.crawl.events.stats import RunStats
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.infra.clock import Clock
from lycosa.storage.sinks.memory import MemorySink


def test_no_settler_enters_during_exclusive_access():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)

    async def run() -> int:
        lock, inside, alone, commits = SettleLock(), 0, False, 0

        async def pause() -> None:
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)

        async def settle() -> None:
            nonlocal inside
            for _ in range(20):
                await pause()
                async with lock:
                    assert not alone
                    inside += 1
                    with suppress(asyncio.CancelledError):
                        await pause()
                    assert not alone
                    inside -= 1

        async def commit() -> None:
            nonlocal alone, commits
            for _ in range(20):
                await pause()
                async with lock.exclusive():
                    assert not alone
                    assert not inside
                    alone = True
                    await pause()
                    assert not inside
                    alone = False
                    commits += 1

        tasks = [asyncio.create_task(settle()) for _ in range(10)] + [asyncio.create_task(commit()) for _ in range(2)]
        for task in rng.sample(tasks[:10], 3):
            await pause()
            task.cancel()
        for found in await asyncio.gather(*tasks, return_exceptions=True):
            assert found is None or isinstance(found, asyncio.CancelledError), found
        return commits

    for _ in range(50):
        assert asyncio.run(run()) == 40


def test_waiting_settlers_enter_together():
    """One settler per iteration of the event loop would be too slow for a long queue."""

    async def run() -> int:
        lock, entered = SettleLock(), 0

        async def settle() -> None:
            nonlocal entered
            async with lock:
                entered += 1

        async with lock.exclusive():
            tasks = [asyncio.create_task(settle()) for _ in range(64)]
            for _ in range(5):
                await asyncio.sleep(0)
            assert not entered
        for _ in range(5):
            await asyncio.sleep(0)
        at_once = entered
        await asyncio.gather(*tasks)
        return at_once

    assert asyncio.run(run()) == 64


def test_new_settlers_do_not_delay_exclusive_access():
    async def run() -> None:
        lock, done = SettleLock(), asyncio.Event()

        async def settle() -> None:
            while not done.is_set():
                async with lock:
                    await asyncio.sleep(0)

        tasks = [asyncio.create_task(settle()) for _ in range(3)]
        await asyncio.sleep(0)
        async with asyncio.timeout(60), lock.exclusive():
            done.set()
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_cancelled_wait_for_exclusive_access_releases_the_lock():
    async def run() -> None:
        lock = SettleLock()

        async def commit() -> None:
            async with lock.exclusive():
                raise AssertionError

        async with lock:
            waiting = asyncio.create_task(commit())
            await asyncio.sleep(0)
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
        async with asyncio.timeout(60), lock:
            pass

    asyncio.run(run())


class SlowSink(MemorySink):
    """Like a sink on another machine: a flush takes time, and covers the items written before it started."""

    async def flush(self) -> int:
        flushed, self._pending = self._pending, []
        for _ in range(3):
            await asyncio.sleep(0)
        self.items += flushed
        return len(self.items)


def test_every_record_committed_as_done_has_its_item_in_the_output():
    async def run() -> int:
        frontier: Any = memory_frontier(Policy(concurrency_per_host=64, robots=False))
        sink, commits = SlowSink(), 0
        await sink.open(None)
        committer = Committer(frontier, [sink], 0.001, 10, lambda _positions: None)
        storage = RunStorage(frontier, [sink], committer, FreeSpace(()))
        settler = Settler(storage, RunMonitor(RunStats(0.0)), Clock(), lambda _reason: None)
        commit = frontier.commit

        async def committed(positions: Mapping[str, int]) -> None:
            nonlocal commits
            commits += 1
            assert (await frontier.stats()).done == positions["memory"]
            await commit(positions)

        frontier.commit = committed
        await frontier.push([UrlRecord(1, n, f"http://a/{n}", "http://a:80") for n in range(300)])
        committing = asyncio.create_task(committer.run())
        while leases := await frontier.lease(20, Clock().now()):
            await asyncio.gather(*(settler.settle(lease, Completed("200", [[lease.record.url]])) for lease in leases))
        await committer.commit()
        committing.cancel()
        await asyncio.gather(committing, return_exceptions=True)
        assert len(sink.items) == 300
        return commits

    assert asyncio.run(run()) > 5
