"""Failovers in the middle of anything: a partition goes back to what it was a moment ago, the others stand (C3, C6).

Workers crawl a tree of URLs over three partitions of a real Redis, and write items to files of their own, which are cut
back to the committed position when a worker takes part again. Before or after any call a replica may take over one
partition, or two, that had not everything yet; a call may be made twice, since its answer was lost; a worker may be
killed. However it goes: when somebody finds that the crawl is over, every URL has its item, and in the end somebody
does. Items may be there twice.
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
import redis as driver

from lycosa.core.errors import StateError, WorkerLost
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.membership import Membership
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 6
STEPS = 80
URLS, HOSTS, SEEDS = 90, 7, 3
PARTITIONS = 3
WORKERS = 3
ROUNDS_MAX = 400
POLICY = Policy(0.0, 8, 1e6, robots=False)


class Killed(Exception):
    """The worker is no more."""


class Meddling(LooplessClient):
    """A client between whose calls the world may change."""

    def __init__(self, url: str, world: World) -> None:
        super().__init__(url)
        self._world = world

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command, perhaps twice."""
        self._world.meddle()
        said = self.blocking.execute_command(*arguments)
        if self._world.rng.random() < self._world.unrest:
            self._world.meddle()
            said = self.blocking.execute_command(*arguments)
        return said


@dataclass
class Worker:
    """A worker, what it holds and what it has written."""

    name: str
    frontier: Any = None
    held: list[Lease] = field(default_factory=list)
    items: list[int] = field(default_factory=list)
    member: Membership = field(default_factory=lambda: Membership("w"))


class World:
    """One history. `now` is everybody's clock."""

    def __init__(self, url: str, seed: int) -> None:
        self.rng = random.Random(seed)
        self.unrest = 0.0
        self.url, self.crawl = url, f"failover-{seed}-{token_hex(4)}"
        self.server = driver.Redis.from_url(url)
        self.children: dict[int, list[int]] = {number: [] for number in range(URLS)}
        for number in range(SEEDS, URLS):
            self.children[self.rng.randrange(max(0, number - 12), number)].append(number)
        self.now = 1e9
        self.replicas: dict[int, dict[bytes, bytes]] = {}
        self.workers = [Worker(f"w{number}") for number in range(WORKERS)]
        self.failovers = self.rejoins = 0
        self.join(self.workers[0])
        for number in range(PARTITIONS):
            self.replicate(number)
        self.unrest = 0.003

    def do(self, story: Awaitable[Any]) -> Any:
        return asyncio.run(story)  # type: ignore[arg-type]

    # The servers.

    def keys(self, number: int) -> list[bytes]:
        return list(self.server.scan_iter(f"lycosa:{{{self.crawl}.{number}}}:*", 1000))

    def replicate(self, number: int) -> None:
        """The replica of a partition has all now."""
        self.replicas[number] = {key: self.server.dump(key) for key in self.keys(number)}

    def fail_over(self, numbers: list[int]) -> None:
        """Replicas take over: what they did not have is gone."""
        self.failovers += 1
        for number in numbers:
            if keys := self.keys(number):
                self.server.delete(*keys)
            for key, value in self.replicas[number].items():
                self.server.restore(key, 0, value)
        self.server.execute_command("DEBUG", "CHANGE-REPL-ID")

    def meddle(self) -> None:
        rng = self.rng.random()
        if rng < self.unrest:
            self.fail_over(self.rng.sample(range(PARTITIONS), self.rng.choice([1, 1, 2])))
        elif rng < 1.3 * self.unrest:
            raise Killed

    # The workers.

    def record(self, number: int) -> UrlRecord:
        host = f"http://h{number % HOSTS}.example:80"
        return UrlRecord(1, (number + 1) * 0x9E3779B97F4A7C15 % 2**64, f"{host}/{number}", host)

    def join(self, worker: Worker) -> None:
        """As a process does: join, cut its file back, say where it starts, push the seeds."""
        client = Meddling(self.url, self)
        worker.held.clear()
        made = simulated_frontier(client, self.crawl, POLICY, self.now, worker=worker.name, partitions=PARTITIONS)
        worker.frontier = self.do(made)
        worker.frontier.commits.member = worker.member
        position = self.do(worker.frontier.positions()).get("items")
        if position is not None:
            assert position <= len(worker.items)
            del worker.items[position:]
        self.do(worker.frontier.commit({"items": len(worker.items)}))
        self.do(worker.frontier.push([self.record(number) for number in range(SEEDS)]))
        self.do(worker.frontier.commit({"items": len(worker.items)}))

    def lease(self, worker: Worker) -> None:
        worker.held += self.do(worker.frontier.lease(self.rng.choice([1, 6]), self.now))

    def settle(self, worker: Worker) -> None:
        if not worker.held:
            return
        lease = worker.held.pop(self.rng.randrange(len(worker.held)))
        number = int(lease.record.url.rpartition("/")[2])
        children = [self.record(child) for child in self.children[number]]
        if self.rng.random() < 0.1:
            self.do(worker.frontier.nack(lease, "503", self.now + 2, self.now))
        elif self.do(worker.frontier.ack(lease, "200", children, self.now)):
            worker.items.append(number)

    def commit(self, worker: Worker) -> None:
        self.do(worker.frontier.commit({"items": len(worker.items)}))

    def look(self, worker: Worker) -> None:
        session = worker.frontier.session
        self.do(session.refresh())
        self.do(session.announce_expired())
        self.do(session.deliver())

    def act(self, worker: Worker, *actions: Any) -> bool:
        """Let a worker do something; it may be killed in the middle, or hear that it is not known and begin anew."""
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
        happen = [self.lease, self.settle, self.settle, self.settle, self.commit, self.commit, self.is_over]
        self.act(worker, *self.rng.sample(happen, 3))
        for other in self.workers:
            if other.frontier is not None and self.rng.random() < 0.6:
                self.act(other, self.look)
        if self.rng.random() < 0.4:
            self.replicate(self.rng.randrange(PARTITIONS))
        self.now += self.rng.choice([0.0, 0.1, 0.9])

    # What must be true.

    def is_over(self, worker: Worker) -> bool:
        """Whoever finds that it is over is right: every URL has an item in a file."""
        if worker.held:
            return False
        over = bool(self.do(worker.frontier.session.is_finished()))
        if over:
            missing = set(range(URLS)) - {number for each in self.workers for number in each.items}
            assert not missing, f"over, and {missing} have no items"
        return over

    def end(self) -> None:
        """No more failovers: the rest is done in bounded time, even by one worker alone."""
        self.unrest = 0.0
        alone = self.rng.random() < 0.5
        workers = self.workers[:1] if alone else self.workers
        for _ in range(ROUNDS_MAX):
            for worker in workers:
                self.act(worker, self.lease)
                while worker.held and self.act(worker, self.settle):
                    pass
                self.act(worker, self.commit, self.look)
                if worker.frontier is not None:
                    worker.frontier.session._repaired_at = -1e9
                    over = []
                    if self.act(worker, lambda each, over=over: over.append(self.is_over(each))) and over == [True]:
                        return
            self.now += 0.9
        raise AssertionError("it never ends")

    def forget(self) -> None:
        for number in range(PARTITIONS):
            if keys := self.keys(number):
                self.server.delete(*keys)


@pytest.mark.parametrize("part", range(2))
def test_failovers(redis, part: int) -> None:
    failovers = rejoins = twice = 0
    for number in range(HISTORIES // 2):
        seed = random.randrange(1 << 32)
        print("seed", seed, "of part", part, "number", number)
        world = World(redis.url, seed)
        for _ in range(STEPS):
            world.step()
        world.end()
        failovers, rejoins = failovers + world.failovers, rejoins + world.rejoins
        items = [item for each in world.workers for item in each.items]
        twice += len(items) - len(set(items))
        world.forget()
    print(f"{failovers} failovers, {rejoins} rejoins, {twice} items twice")
    assert failovers or not PROVE
