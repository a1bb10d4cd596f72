"""Random histories of several workers on one crawl in a real Redis, beside a small model of it (C3, C6, F4-F7).

Pushes, leases, good and bad ends, children of other partitions, commits, workers that die or leave, calls whose answer
is lost, outboxes that are brought over by half, blocks and pauses. After every step the counts are those of the model;
nothing is lent twice, nothing too soon; nobody thinks it is over before it is, and in the end everybody does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.core.frontier import Policy
from lycosa.core.model import Lease, UrlRecord
from lycosa.frontiers.redis.joining import simulated_frontier
from tests.conftest import PROVE
from tests.contracts.redis_client import LooplessClient

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 16
STEPS = 120
HOSTS = [f"http://h{n}.example:80" for n in range(6)]
URLS = 80
LEASE_S = 1e6
SILENT_S, BEAT_S = 2.0, 0.9
ROUNDS_MAX = 500
WORKERS = 3


@dataclass
class Url:
    """What the model knows of a URL: its state, who has it, when it is due."""

    number: int
    state: str = "queued"
    worker: str = ""
    due: float = 0.0

    @property
    def host(self) -> str:
        """Where it is."""
        return HOSTS[self.number % len(HOSTS)]


@dataclass
class Worker:
    """A worker with what it holds."""

    name: str
    frontier: Any
    held: dict[int, Lease] = field(default_factory=dict)


class History:
    """One history. `now` is everybody's clock."""

    def __init__(self, url: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.url, self.crawl = url, f"history-{seed}-{token_hex(4)}"
        self.partitions = self.chance.choice([1, 1, 3])
        self.places = self.chance.choice([1, 2, 8])
        self.delay = self.chance.choice([0.0, 0.0, 3.0])
        self.policy = Policy(self.delay, self.places, LEASE_S, robots=False)
        self.now = 1e9
        self.urls: dict[int, Url] = {}
        self.started: dict[str, float] = {}
        self.blocked: dict[str, float] = {}
        self.workers: list[Worker] = []
        self.named = 0

    def do(self, story: Awaitable[Any]) -> Any:
        """Play it."""
        return asyncio.run(story)  # type: ignore[arg-type]

    def join(self) -> None:
        """One more worker."""
        self.named += 1
        name = f"w{self.named}"
        client = LooplessClient(self.url)
        made = simulated_frontier(client, self.crawl, self.policy, self.now, worker=name, partitions=self.partitions)
        self.workers.append(Worker(name, self.do(made)))

    def record(self, number: int, due: float = 0.0) -> UrlRecord:
        """Return a URL to push."""
        host = HOSTS[number % len(HOSTS)]
        return UrlRecord(1, (number + 1) * 0x9E3779B97F4A7C15 % 2**64, f"{host}/{number}", host, not_before=due)

    def learn(self, number: int, due: float = 0.0) -> bool:
        """The model hears of a URL. Return whether it is new."""
        if number in self.urls:
            return False
        self.urls[number] = Url(number, "delayed" if due else "queued", due=due)
        return True

    # What happens.

    def push(self, worker: Worker) -> None:
        """Seeds."""
        chosen = [(self.chance.randrange(URLS), self.chance.choice([0.0, 0.0, self.now + 5])) for _ in range(5)]
        new = sum(self.learn(number, due) for number, due in chosen)
        worker.frontier.session.now = self.now
        assert self.do(worker.frontier.push([self.record(*each) for each in chosen])) == new

    def lease(self, worker: Worker, limit: int = 6) -> int:
        """Leases, which may be lent."""
        self.wake()
        leases = self.do(worker.frontier.lease(limit, self.now))
        for lease in leases:
            url = self.urls[int(lease.record.url.rpartition("/")[2])]
            assert url.state == "queued", f"{url} is lent"
            busy = sum(each.state == "leased" and each.host == url.host for each in self.urls.values())
            assert busy < self.places
            assert self.now >= max(self.started.get(url.host, 0.0) + self.delay, self.blocked.get(url.host, 0.0))
            self.started[url.host] = self.now
            url.state, url.worker = "leased", worker.name
            worker.held[url.number] = lease
        return len(leases)

    def wake(self) -> None:
        """What is due is queued."""
        for url in self.urls.values():
            if url.state == "delayed" and url.due <= self.now:
                url.state = "queued"

    def settle(self, worker: Worker) -> None:
        """The end of a lease."""
        if not worker.held:
            return
        number = self.chance.choice(list(worker.held))
        lease, url = worker.held.pop(number), self.urls[number]
        how = self.chance.choice(["ack", "ack", "ack", "retry", "dead", "release"])
        frontier = worker.frontier
        if how == "ack":
            children = [self.chance.randrange(URLS) for _ in range(self.chance.randrange(4))]
            assert self.do(frontier.ack(lease, "200", [self.record(each) for each in children], self.now))
            for each in children:
                self.learn(each)
            url.state = "uncommitted"
        elif how == "release":
            assert self.do(frontier.release(lease, self.now))
            url.state = "queued"
        else:
            at = self.now + 4 if how == "retry" else None
            assert self.do(frontier.nack(lease, "503", at, self.now))
            url.state, url.due = ("dead", 0.0) if at is None else ("delayed", at)

    def commit(self, worker: Worker) -> None:
        """What was acked is done."""
        worker.frontier.session.now = self.now
        self.do(worker.frontier.commit({"items": self.chance.randrange(1000)}))
        for url in self.urls.values():
            if url.state == "uncommitted" and url.worker == worker.name:
                url.state = "done"

    def give_back(self, worker: Worker) -> None:
        """What a worker had is queued again."""
        for url in self.urls.values():
            if url.worker == worker.name and url.state in ("leased", "uncommitted"):
                url.state = "queued"
        self.workers.remove(worker)

    def die(self, worker: Worker) -> None:
        """It falls silent; the others notice."""
        self.do(worker.frontier.session.send())  # so that the model need not know what has been sent
        self.workers.remove(worker)
        while not self.workers:
            self.join()
        silent_at = self.now
        while self.now <= silent_at + SILENT_S + BEAT_S:
            self.now += BEAT_S
            for other in self.workers:
                self.look(other)
        self.workers.append(worker)
        self.give_back(worker)
        with pytest.raises(WorkerLost):
            self.look(worker)

    def leave(self, worker: Worker) -> None:
        """It ends in order."""
        worker.frontier.session.now = self.now
        self.do(worker.frontier.session.send())
        self.do(worker.frontier.session.leave())
        self.give_back(worker)

    def look(self, worker: Worker) -> None:
        """It says that it is there, and does what is to be done for others."""
        session = worker.frontier.session
        session.now = self.now
        self.do(session.look())
        self.do(session.tell_of_the_gone())
        self.do(session.forward())

    def block(self, worker: Worker) -> None:
        """A host rests."""
        host, until = self.chance.choice(HOSTS), self.now + self.chance.choice([1.0, 6.0])
        worker.frontier.session.now = self.now
        self.do(worker.frontier.block_host(host, until))
        self.do(worker.frontier.session.send())
        self.blocked[host] = max(until, self.blocked.get(host, 0.0))

    def lose_an_answer(self, worker: Worker) -> None:
        """An exchange is sent twice."""
        session = worker.frontier.session
        session.now = self.now
        self.do(session.send())
        for partition in session.partitions:
            partition.serial -= 1
            lent = self.do(session.wire._exchange(_asked(partition)))
            tokens = {int(each[0]) * self.partitions + partition.number for each in lent}
            mine = {lease.token for lease in worker.held.values()}
            assert tokens <= mine

    def bring_by_half(self, worker: Worker) -> None:
        """A forwarder dies after it has brought a slice, before it has said so."""
        wire, parts = worker.frontier.session.wire, worker.frontier.session.partitions
        worker.frontier.session.now = self.now
        self.do(worker.frontier.session.send())
        for source in parts:
            for target in parts:
                if source is not target:
                    _, server, base, first, entries = self.do(wire.run(source, "outgoing", target.number, 2, ""))
                    name = f"{source.number}|{server.decode()}"
                    self.do(wire.run(target, "bring", name, int(base), int(first), len(entries), *entries))

    # What must be true.

    def agree(self) -> None:
        """Everybody's counts are those of the model."""
        if not self.workers:
            return
        for worker in self.workers:
            self.look(worker)
        self.wake()
        worker = self.chance.choice(self.workers)
        self.do(worker.frontier.lease(0, self.now))
        stats = self.do(worker.frontier.stats())
        counts: dict[str, int] = {}
        for url in self.urls.values():
            counts[url.state] = counts.get(url.state, 0) + 1
        waiting = counts.get("queued", 0) + counts.get("delayed", 0)
        assert stats.queued + stats.delayed == waiting
        assert stats.leased == counts.get("leased", 0)
        assert stats.done == counts.get("done", 0) + counts.get("uncommitted", 0)
        assert stats.dead == counts.get("dead", 0)
        over = self.do(worker.frontier.session.is_over())
        assert over == all(url.state in ("done", "dead") for url in self.urls.values())

    def step(self) -> None:
        """Something happens."""
        if not self.workers or (len(self.workers) < WORKERS and self.chance.random() < 0.1):
            self.join()
        worker = self.chance.choice(self.workers)
        happen = [self.push, self.lease, self.lease, self.settle, self.settle, self.settle, self.commit, self.block]
        happen += [self.lose_an_answer, self.bring_by_half]
        if self.chance.random() < 0.05:
            happen = [self.die, self.leave]
        self.chance.choice(happen)(worker)
        self.now += self.chance.choice([0.0, 0.1, 0.9])
        self.agree()

    def end(self) -> None:
        """What is left can be done in bounded time, and then everybody knows that it is over."""
        if not self.workers:
            self.join()
        for _ in range(ROUNDS_MAX):
            for worker in self.workers:
                self.lease(worker)
                for number, lease in list(worker.held.items()):
                    assert self.do(worker.frontier.ack(lease, "200", [], self.now))
                    self.urls[number].state = "uncommitted"
                    del worker.held[number]
                self.commit(worker)
            if all(url.state in ("done", "dead") for url in self.urls.values()):
                break
            self.now += 0.9
        else:
            raise AssertionError("it never ends")
        self.agree()
        for worker in self.workers:
            worker.frontier.session.now = self.now
            assert self.do(worker.frontier.session.is_over())


def _asked(partition: Any) -> Any:
    from lycosa.frontiers.redis.wire import Asked

    return Asked(partition)


@pytest.mark.parametrize("part", range(8))
def test_histories(redis, part: int) -> None:
    for number in range(HISTORIES // 8):
        seed = random.randrange(1 << 32)
        print("seed", seed, "of part", part, "number", number)
        history = History(redis.url, seed)
        for _ in range(STEPS):
            history.step()
        history.end()
