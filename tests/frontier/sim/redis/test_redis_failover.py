"""Servers go back to an earlier state at any time (C3, C6): single partitions in failovers, all of them in restarts.

Workers crawl a tree of URLs over three partitions of a real Redis. Each writes items to its own file, which is
truncated to the committed position when the worker joins again. Before or after any call, replicas without the last
writes may take over one or two partitions, a call may be repeated because its response was lost, and a worker may be
killed. In every history some worker finishes the crawl, and then every URL has its item. After failovers items may be
duplicated. A single server that restarts without its last writes duplicates none.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import StateError, WorkerLost
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.membership import Membership
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 6
STEPS = 80
URLS, HOSTS, SEEDS = 90, 7, 3
PARTITIONS = 3
WORKERS = 3
ROUNDS_MAX = 400
SAVE_RATE = 0.05
POLICY = Policy(0.0, 8, 1e6, robots=False)


class Killed(Exception):
    """The worker is killed."""


class FaultyClient(LooplessClient):
    """A client with failovers, kills and repeated commands."""

    def __init__(self, url: str, simulation: Simulation) -> None:
        super().__init__(url)
        self._simulation = simulation

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command, perhaps twice."""
        self._simulation.maybe_save()
        self._simulation.maybe_fail()
        response = self.blocking.execute_command(*arguments)
        if self._simulation.rng.random() < self._simulation.fault_rate:
            self._simulation.maybe_fail()
            response = self.blocking.execute_command(*arguments)
        return response


@dataclass
class Worker:
    """A worker with its leases and its items."""

    name: str
    frontier: Any = None
    leases: list[Lease] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    member: Membership = field(default_factory=lambda: Membership("w"))


class Simulation:
    """One history. All clocks show `now`."""

    def __init__(self, url: str, seed: int, *, restarts: bool) -> None:
        self.rng = random.Random(seed)
        self.fault_rate = 0.0
        self.url, self.crawl = url, f"failover-{seed}-{token_hex(4)}"
        self.server = redis_client(url)
        self.children: dict[int, list[int]] = {number: [] for number in range(URLS)}
        for number in range(SEEDS, URLS):
            self.children[self.rng.randrange(max(0, number - 12), number)].append(number)
        self.now = 1e9
        self.replicas: dict[int, dict[bytes, bytes]] = {}
        self.workers = [Worker(f"w{number}") for number in range(WORKERS)]
        self.restarts = restarts
        """Whether all partitions are on one server, which restarts, instead of failing over."""
        self.failovers = self.rejoins = 0
        self.join(self.workers[0])
        self.replicate_all()
        self.fault_rate = 0.003

    def do(self, coroutine: Awaitable[Any]) -> Any:
        return asyncio.run(coroutine)  # type: ignore[arg-type]

    # The servers.

    def keys(self, number: int) -> list[bytes]:
        return list(self.server.scan_iter(f"lycosa:{{{self.crawl}.{number}}}:*", 1000))

    def replicate(self, number: int) -> None:
        """The replica of a partition catches up."""
        self.replicas[number] = {key: self.server.dump(key) for key in self.keys(number)}

    def replicate_all(self) -> None:
        for number in range(PARTITIONS):
            self.replicate(number)

    def maybe_save(self) -> None:
        """Perhaps save the file of the single server, which then contains everything until now."""
        if self.restarts and self.rng.random() < SAVE_RATE:
            self.replicate_all()

    def fail_over(self, numbers: list[int]) -> None:
        """Replicas take over; what they lack is lost."""
        self.failovers += 1
        for number in numbers:
            if keys := self.keys(number):
                self.server.delete(*keys)
            for key, value in self.replicas[number].items():
                self.server.restore(key, 0, value)
        self.server.execute_command("DEBUG", "CHANGE-REPL-ID")

    def maybe_fail(self) -> None:
        rng = self.rng.random()
        if rng < self.fault_rate:
            count = PARTITIONS if self.restarts else self.rng.choice([1, 1, 2])
            self.fail_over(self.rng.sample(range(PARTITIONS), count))
        elif rng < 1.3 * self.fault_rate:
            raise Killed

    # The workers.

    def record(self, number: int) -> UrlRecord:
        host = f"http://h{number % HOSTS}.example:80"
        return UrlRecord(1, (number + 1) * 0x9E3779B97F4A7C15 % 2**64, f"{host}/{number}", host)

    def join(self, worker: Worker) -> None:
        """Do what a process does: join, truncate the file, commit the position, push the seeds."""
        client = FaultyClient(self.url, self)
        worker.leases.clear()
        frontier = simulated_frontier(client, self.crawl, POLICY, self.now, worker=worker.name, partitions=PARTITIONS)
        worker.frontier = self.do(frontier)
        worker.frontier.commits.member = worker.member
        position = self.do(worker.frontier.positions()).get("items")
        if position is not None:
            assert position <= len(worker.items)
            del worker.items[position:]
        self.do(worker.frontier.commit({"items": len(worker.items)}))
        self.do(worker.frontier.push([self.record(number) for number in range(SEEDS)]))
        self.do(worker.frontier.commit({"items": len(worker.items)}))

    def lease(self, worker: Worker) -> None:
        worker.leases += self.do(worker.frontier.lease(self.rng.choice([1, 6]), self.now))

    def settle(self, worker: Worker) -> None:
        if not worker.leases:
            return
        lease = worker.leases.pop(self.rng.randrange(len(worker.leases)))
        number = int(lease.record.url.rpartition("/")[2])
        children = [self.record(child) for child in self.children[number]]
        if self.rng.random() < 0.1:
            self.do(worker.frontier.nack(lease, "503", self.now + 2, self.now))
        elif self.do(worker.frontier.ack(lease, "200", children, self.now)):
            worker.items.append(number)

    def commit(self, worker: Worker) -> None:
        self.do(worker.frontier.commit({"items": len(worker.items)}))

    def exchange(self, worker: Worker) -> None:
        session = worker.frontier.session
        self.do(session.refresh())
        self.do(session.announce_expired())
        self.do(session.deliver())

    def run_actions(self, worker: Worker, *actions: Any) -> bool:
        """Run actions of a worker. It may be killed in between, or find that it has expired and join again."""
        try:
            if worker.frontier is None:
                self.join(worker)
            worker.frontier.session.now = self.now
            for action in actions:
                action(worker)
        except Killed:
            worker.frontier = None
            return False
        except WorkerLost:
            self.rejoins += 1
            with suppress(StateError, Killed):
                if worker.frontier is not None:
                    self.do(worker.frontier.session.leave())
            worker.frontier = None
            return False
        return True

    def step(self) -> None:
        worker = self.rng.choice(self.workers)
        actions = [self.lease, self.settle, self.settle, self.settle, self.commit, self.commit, self.is_over]
        self.run_actions(worker, *self.rng.sample(actions, 3))
        for other in self.workers:
            if other.frontier is not None and self.rng.random() < 0.6:
                self.run_actions(other, self.exchange)
        if not self.restarts and self.rng.random() < 0.4:
            self.replicate(self.rng.randrange(PARTITIONS))
        self.now += self.rng.choice([0.0, 0.1, 0.9])

    # Checks.

    def is_over(self, worker: Worker) -> bool:
        """Check that every URL has an item if the worker finds that the crawl is finished."""
        if worker.leases:
            return False
        finished = bool(self.do(worker.frontier.session.is_finished()))
        if finished:
            missing = set(range(URLS)) - {number for each in self.workers for number in each.items}
            assert not missing, f"finished, but {missing} have no items"
        return finished

    def end(self) -> None:
        """Without more failovers the rest is done in bounded time, even by a single worker."""
        self.fault_rate = 0.0
        alone = self.rng.random() < 0.5
        workers = self.workers[:1] if alone else self.workers
        for _ in range(ROUNDS_MAX):
            for worker in workers:
                self.run_actions(worker, self.lease)
                while worker.leases and self.run_actions(worker, self.settle):
                    pass
                self.run_actions(worker, self.commit, self.exchange)
                if worker.frontier is not None:
                    worker.frontier.session._repaired_at = -1e9
                    finished = []
                    if self.run_actions(
                        worker, lambda each, finished=finished: finished.append(self.is_over(each))
                    ) and finished == [True]:
                        return
            self.now += 0.9
        raise AssertionError("the crawl does not finish")

    def delete_keys(self) -> None:
        for number in range(PARTITIONS):
            if keys := self.keys(number):
                self.server.delete(*keys)


@pytest.mark.parametrize("restarts", [False, True], ids=["failovers", "restarts"])
def test_every_url_has_an_item_after_random_failovers(redis, restarts: bool) -> None:
    failovers = rejoins = duplicates = 0
    for number in range(HISTORIES // 2):
        seed = random.randrange(1 << 32)
        print("seed", seed, "number", number)
        simulation = Simulation(redis.url, seed, restarts=restarts)
        for _ in range(STEPS):
            simulation.step()
        simulation.end()
        for worker in simulation.workers:  # a worker that returns truncates its items to those that it has committed
            simulation.join(worker)
        failovers, rejoins = failovers + simulation.failovers, rejoins + simulation.rejoins
        items = [item for each in simulation.workers for item in each.items]
        duplicates += len(items) - len(set(items))
        simulation.delete_keys()
    print(f"{failovers} failovers, {rejoins} rejoins, {duplicates} duplicate items")
    assert failovers or not PROVE
    assert not duplicates or not restarts
