"""A single server restarts without its last writes while several calls of each worker are in transit (C3).

Each worker has tasks that lease, fetch, commit, and send what is queued, as in a crawl. A call is executed, and its
answer arrives, after a random number of steps of the event loop. When the server restarts, it has everything up to a
random moment shortly before; calls that have no answer yet are made again. In every history each URL has one item: a
worker that joins again truncates its items to the committed position. `test_redis_failover.py` has failovers, kills,
and one call at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import StateError, WorkerLost
from lycosa.crawl.engine.commit import SettleLock
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.membership import Membership
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

HISTORIES = 2000 if PROVE else 12
PARTITIONS, URLS, HOSTS, SEEDS = 3, 90, 9, 3
CALLS_MAX, LOST_MAX = 400, 9
"""Calls before the restart, and calls whose writes are lost (never the last commit of a worker that has left)."""

CONCURRENCY = 8
STEP_S = 0.001
REJOINS_MAX = 5
END_MAX_S = 60
POLICY = Policy(0.0, CONCURRENCY, 1e6, robots=False)


class SlowClient(LooplessClient):
    """A client whose calls take some steps of the event loop. Those without an answer at a restart are repeated."""

    def __init__(self, url: str, simulation: Simulation) -> None:
        super().__init__(url)
        self._simulation = simulation

    async def execute_command(self, *arguments: Any) -> Any:
        return await self._repeat(lambda: self.blocking.execute_command(*arguments))

    async def hgetall(self, key: str) -> Any:
        return await self._repeat(lambda: self.blocking.hgetall(key))

    async def _repeat(self, call: Callable[[], Any]) -> Any:
        simulation = self._simulation
        while True:
            await simulation.wait(0, 0, 0, 1, 2, 5, 12)
            simulation.count_call()
            restarts, answer = simulation.restarts, call()
            await simulation.wait(0, 0, 0, 1, 2, 5, 12)
            if simulation.restarts == restarts:
                return answer


@dataclass
class Worker:
    """A worker with its items."""

    name: str
    items: list[int] = field(default_factory=list)
    member: Membership = field(default_factory=lambda: Membership("w"))
    rejoins: int = 0


class Simulation:
    """One history, in which the server restarts once. All clocks show `now`."""

    def __init__(self, url: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.url, self.crawl = url, f"restart-{seed}-{token_hex(4)}"
        self.server = redis_client(url)
        self.children: dict[int, list[int]] = {number: [] for number in range(URLS)}
        for number in range(SEEDS, URLS):
            self.children[self.rng.randrange(max(0, number - 12), number)].append(number)
        self.now = 1e9
        self.workers = [Worker(f"w{number}") for number in range(self.rng.choice([1, 2]))]
        self.restarts = self._calls = 0
        self._created = asyncio.Event()
        self._saved: dict[bytes, bytes] = {}
        self._restarts_after = self.rng.randrange(50 + LOST_MAX, CALLS_MAX)
        self._saved_after = self._restarts_after - self.rng.randrange(LOST_MAX)

    # The server.

    def keys(self) -> list[bytes]:
        return list(self.server.scan_iter(f"lycosa:{{{self.crawl}.*", 1000))

    def count_call(self) -> None:
        self._calls += 1
        if self._calls == self._saved_after:
            self._saved = {key: self.server.dump(key) for key in self.keys()}
        if self._calls == self._restarts_after:
            self.delete_keys()
            for key, value in self._saved.items():
                self.server.restore(key, 0, value)
            self.server.execute_command("DEBUG", "CHANGE-REPL-ID")
            self.restarts += 1

    def delete_keys(self) -> None:
        if keys := self.keys():
            self.server.delete(*keys)

    # The workers.

    async def wait(self, *steps: int) -> None:
        """Wait for one of these numbers of steps of the event loop."""
        for _ in range(self.rng.choice(steps)):
            await asyncio.sleep(0)

    async def run(self) -> None:
        async with asyncio.timeout(END_MAX_S):
            first, *others = [self._work(worker) for worker in self.workers]
            task = asyncio.create_task(first)
            await self._created.wait()
            await asyncio.gather(task, *others)

    async def _work(self, worker: Worker) -> None:
        for _ in range(REJOINS_MAX):
            client = SlowClient(self.url, self)
            frontier = await simulated_frontier(
                client, self.crawl, POLICY, self.now, worker=worker.name, partitions=PARTITIONS
            )
            self._created.set()
            try:
                return await Crawl(self, worker, frontier).run()
            except WorkerLost:
                worker.rejoins += 1
            finally:
                with suppress(StateError):
                    await frontier.session.leave()
        raise AssertionError(f"{worker.name} is lost again and again")

    def record(self, number: int) -> UrlRecord:
        host = f"http://h{number % HOSTS}.example:80"
        return UrlRecord(1, (number + 1) * 0x9E3779B97F4A7C15 % 2**64, f"{host}/{number}", host)


class Crawl:
    """One session of a worker: its tasks, as those of `crawl.engine`."""

    def __init__(self, simulation: Simulation, worker: Worker, frontier: Any) -> None:
        self._simulation, self._worker, self._frontier = simulation, worker, frontier
        self._settle_lock = SettleLock()
        self._visits: set[asyncio.Task[None]] = set()
        self._errors: list[BaseException] = []

    async def run(self) -> None:
        frontier, items = self._frontier, self._worker.items
        frontier.commits.member = self._worker.member
        position = (await frontier.positions()).get("items")
        if position is not None:
            assert position <= len(items)
            del items[position:]
        await self._commit()
        await frontier.push([self._simulation.record(number) for number in range(SEEDS)])
        await self._commit()
        works = [self._run_background(work) for work in (self._lease(), self._commit_often(), self._send_often())]
        leasing, *others = [asyncio.create_task(work) for work in works]
        await asyncio.wait([leasing])
        for task in (others := [*others, *self._visits]):
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if self._errors:
            raise self._errors[0]
        await self._commit()

    async def _run_background(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:
            self._errors.append(error)

    async def _lease(self) -> None:
        simulation, frontier = self._simulation, self._frontier
        while not self._errors:
            simulation.now += STEP_S
            frontier.session.now = simulation.now
            for lease in await frontier.lease(CONCURRENCY - len(self._visits), simulation.now):
                task = asyncio.create_task(self._run_background(self._visit(lease)))
                self._visits.add(task)
                task.add_done_callback(self._visits.discard)
            if not self._visits and frontier._leases.crawl_finished:
                return
            await asyncio.sleep(0)

    async def _visit(self, lease: Lease) -> None:
        simulation, frontier = self._simulation, self._frontier
        await simulation.wait(*range(20))
        if simulation.rng.random() < 0.3:
            frontier.end_transfer(lease, simulation.now)
        async with self._settle_lock:
            number = int(lease.record.url.rpartition("/")[2])
            children = [simulation.record(child) for child in simulation.children[number]]
            if await frontier.ack(lease, "200", children, simulation.now):
                self._worker.items.append(number)

    async def _commit(self) -> None:
        async with self._settle_lock.exclusive():
            await self._frontier.commit({"items": len(self._worker.items)})

    async def _commit_often(self) -> None:
        while True:
            await self._simulation.wait(*range(5, 60))
            await self._commit()

    async def _send_often(self) -> None:
        while True:
            await self._simulation.wait(*range(5, 60))
            with suppress(StateError):  # as `EventFlusher` does
                await self._frontier.session.send()


def test_every_url_has_one_item_after_a_restart(redis) -> None:
    rejoins = 0
    for number in range(HISTORIES):
        seed = random.randrange(1 << 32)
        print("seed", seed, "number", number)
        simulation = Simulation(redis.url, seed)
        asyncio.run(simulation.run())
        items = Counter(item for worker in simulation.workers for item in worker.items)
        assert items == dict.fromkeys(range(URLS), 1)
        rejoins += sum(worker.rejoins for worker in simulation.workers)
        simulation.delete_keys()
    print(f"{rejoins} rejoins")
    assert rejoins or not PROVE
