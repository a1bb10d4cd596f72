"""The workers of `history`, which do at random what an engine does with a frontier.

They join, lease, fetch (pages, robots.txt, addresses), fetch inline in callbacks, report, commit, and check whether
the crawl is finished. They announce the effect of each call to the `model`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from math import inf
from typing import Any

from redis.exceptions import ConnectionError as Lost

from lycosa.core.errors import StateError
from lycosa.crawl.fetching.claims import claim_host
from lycosa.frontier.core.model import HostFacts, Lease, RecordKind, UrlRecord
from lycosa.frontier.core.segments import starts_at
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.lanes import encode
from lycosa.frontier.redis.scripts import WORKER_SCRIPT, keys_of
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session
from lycosa.infra.redis.server import RetryLimits
from tests.frontier.sim.redis.connection import Worker, WorkerConnection
from tests.frontier.sim.redis.host_schedule import Transfer
from tests.frontier.sim.redis.model import Crawl, Effect, Record
from tests.virtual import VirtualLoop

HOSTS = [f"http://h{n}.example:80" for n in (0, 1, 3, 7, 8, 12, 14, 16)]
"""Two in the first of three partitions, three in each of the others."""

ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", ""]
PAGES = 40
UNFILTERED_MAX = 8
SEGMENTS = ["", "2001-09-08", "2001-09-09T01:46", "2001-09-09T01:47"]
RETRY_MAX_S = 2.5
HEARTBEAT_S = 0.5
BUSY_S, IDLE_S = [0.0, 0.01, 0.1, 0.1, 2.5], [0.1, 0.3, 1.0]


class Work:
    """See `history.History`, which provides time and disturbances."""

    name: str
    rng: random.Random
    loop: VirtualLoop
    policy: Policy
    model: Crawl
    partitions: int
    numbers: dict[str, int]
    workers: list[Worker]
    clock: Any
    claim_rate: float
    now: float
    is_disturbed: bool
    keep_done = False
    records = unfiltered = 0

    def check(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function. An error that it raises makes the history fail."""
        raise NotImplementedError

    def start(self, worker: Worker) -> None:
        """Start another process of a slot."""
        if worker.task is None or worker.task.done():
            worker.paused_until = 0.0
            worker.task = self.loop.create_task(self.run_process(worker))

    async def rest(self, worker: Worker, seconds: float) -> None:
        """Sleep for these seconds, and while the worker is paused."""
        await asyncio.sleep(seconds)
        if self.loop.time() < worker.paused_until:
            await self.rest(worker, worker.paused_until - self.loop.time())
        elif worker.frontier:
            worker.session.now = self.now

    async def run_process(self, worker: Worker) -> None:
        """Join and work, again after every failure, until the crawl is finished."""
        while not worker.finished:
            heartbeat = connection = None
            try:
                connection = await self.join(worker)
                heartbeat = self.loop.create_task(self.beat(worker, connection, worker.session.partitions[0]))
                await self.work(worker, connection)
            except StateError:
                await self.rest(worker, 0.1)
            except Exception as error:
                self.check(_raise, error)
            finally:
                for task in (*worker.visits, heartbeat):
                    if task:
                        task.cancel()
                if connection:
                    connection.is_closed = True

    async def beat(self, worker: Worker, connection: WorkerConnection, first: Partition) -> None:
        """Send heartbeats. They come from a separate thread, which stops only with its process."""
        while True:
            await self.rest(worker, HEARTBEAT_S)
            command = WORKER_SCRIPT.command(keys_of(first.key), ("", "beat", first.worker))
            try:
                await connection.execute_command(*command)
            except Lost:
                continue

    async def join(self, worker: Worker) -> WorkerConnection:
        """Join under a new name. Every worker pushes the first record."""
        connection = WorkerConnection(self, worker)
        server = crawl_server("redis://127.0.0.1:1/0", lambda _: None)  # calls are executed by the history

        async def retry(call: Callable[[], Awaitable[Any]]) -> Any:
            return await server.retry(call, RetryLimits(RETRY_MAX_S))

        keeps = self.keep_done
        session = Session(
            connection, self.name, worker.slot, retry, self.partitions, callers_clock=True, keep_done=keeps
        )
        for partition in session.partitions:
            self.numbers[partition.key] = partition.number
            connection.record_effects(partition)
        worker.leases, worker.acked, worker.visits = [], [], {}
        worker.frontier = RedisFrontier(session, self.policy, ahead=self.rng.choice([0, 0, 4]))
        session.callers_clock = (
            not self.model.limits.punctual
        )  # with the caller's clock the frontier assumes that all transfers start at once
        await worker.frontier.open()
        session.callers_clock = True
        session.now = self.now
        await self.push(worker, connection, [self.record(HOSTS[0], (SEGMENTS[0], 0))])
        return connection

    async def work(self, worker: Worker, connection: WorkerConnection) -> None:
        """Lease, fetch, report and commit, until the crawl is finished."""
        while True:
            leases = await worker.frontier.lease(self.rng.randint(1, 8), self.now)
            for lease in leases:
                self.take(worker, lease)
            if not worker.leases and not worker.visits:
                if worker.acked:
                    await self.commit(worker)
                worker.session._repaired_at = self.rng.choice([-inf, inf])  # no dependence on the wall clock
                if await worker.session.is_finished():
                    return self.finish(worker)
            await self.rest(worker, self.rng.choice(BUSY_S if worker.leases and self.is_disturbed else IDLE_S))
            await self.do_something(worker, connection)

    def take(self, worker: Worker, lease: Lease) -> None:
        """Start to process a lease."""
        partition, count = worker.session.partition_of(lease.record.host), self.partitions
        transfer = self.model.parts[partition.number].leased[lease.token // count]
        if lease.record.kind == RecordKind.PAGE:
            assert transfer is self.model.records[number_of(lease.record)]
            assert transfer.state == "leased" or worker.name not in self.model.parts[0].last_call
        if lease.record.kind != RecordKind.RESOLVE and self.rng.random() < 0.7:
            worker.frontier.report_start(transfer.host, self.now)
        if self.is_disturbed and lease.record.kind == RecordKind.PAGE and self.rng.random() < self.claim_rate:
            visit = self.loop.create_task(self.visit(worker, lease, transfer))
            worker.visits[visit] = None
            visit.add_done_callback(worker.visits.pop)
        else:
            worker.leases.append((lease, transfer))

    async def visit(self, worker: Worker, lease: Lease, record: Record) -> None:
        """A callback that fetches inline: one after the other, or several at a time."""
        same_host = [record.host] if self.rng.random() < 0.8 else []
        hosts = self.rng.sample(HOSTS, 2) + same_host * self.rng.randint(1, 5)
        chosen = self.rng.sample(hosts, self.rng.randint(1, len(hosts)))
        try:
            if self.rng.random() < 0.5:
                for host in chosen:
                    await self.inline(worker, host, lease)
            else:
                await asyncio.gather(*(self.inline(worker, host, lease) for host in chosen))
        except StateError:
            pass  # there was no response; or the worker has expired, which it will notice itself
        except Exception as error:
            self.check(_raise, error)
        worker.leases.append((lease, record))

    async def inline(self, worker: Worker, host: str, lease: Lease) -> None:
        """One inline fetch. It may be cancelled while it waits."""
        frontier, needs_address = worker.frontier, self.policy.limits_addresses

        async def resolve(host: str) -> None:
            await self.find(worker, host)

        timeout_s = self.rng.choice([0.3, 5.0, 1e3, 1e3, 1e3])
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(timeout_s),
                claim_host(host, frontier, self.clock, lease, resolve if needs_address else None),
            ):
                if self.rng.random() < 0.7:
                    frontier.report_start(host, self.now)
                await self.rest(worker, self.rng.choice([0.0, 0.1, 0.5]))

    async def do_something(self, worker: Worker, connection: WorkerConnection) -> None:
        """Settle some of the leases, and do other things at random."""
        rng, probability = self.rng, 0.1 if self.is_disturbed else 0.0
        for lease, record in rng.sample(worker.leases, rng.randint(min(1, len(worker.leases)), len(worker.leases))):
            if rng.random() < 2 * probability:
                await self.push(worker, connection, [self.any_record() for _ in range(8)])
            worker.leases.remove((lease, record))
            if record.kind:
                await self.answer(worker, connection, lease, record)
            else:
                await self.settle(worker, connection, lease, record)
        now = self.now
        for lease, record in worker.leases:
            if not record.kind and rng.random() < probability:
                worker.frontier.end_transfer(lease, now, contacted=rng.random() < 0.7)
        host = rng.choice(worker.leases)[1].host if worker.leases else rng.choice(HOSTS)
        if rng.random() < probability:
            await self.recall(worker, host)
        if rng.random() < probability:
            await self.block(worker, connection, host)
        if rng.random() < probability:
            delay = rng.choice([0.0, 0.3, 1.0])
            self.expect(worker, connection, host, "throttle", host, delay)
            await worker.frontier.set_delay(host, delay, now)
        if rng.random() < probability / 2:
            await worker.session.leave()
            raise StateError("the worker has left")
        if worker.acked and rng.random() < 0.4:
            await self.commit(worker)

    async def push(self, worker: Worker, connection: WorkerConnection, records: list[UrlRecord]) -> None:
        """Push records from outside."""
        for record in records:
            self.expect(worker, connection, record.host, "push", self.model.records[number_of(record)])
        await worker.frontier.push(records)

    async def block(self, worker: Worker, connection: WorkerConnection, host: str) -> None:
        until = self.now + self.rng.choice([0.1, 0.2, 0.6, 3.0])
        self.expect(worker, connection, host, "block", host, until)
        await worker.frontier.block_host(host, until)

    async def answer(self, worker: Worker, connection: WorkerConnection, lease: Lease, question: Transfer) -> None:
        """Finish a question about a host."""
        frontier, host, now = worker.frontier, question.host, self.clock.now()
        contacted = self.rng.random() < 0.7
        if self.is_disturbed and self.rng.random() < 0.3:
            retry_at = now + self.rng.uniform(0.1, 2.0)
            self.expect(worker, connection, host, "unanswered", question, contacted, retry_at)
            assert await frontier.nack(lease, "503", retry_at, now, contacted=contacted)
            return
        if question.kind == RecordKind.RESOLVE:
            await self.find(worker, host)
        else:
            delay = self.rng.choice([0.0, 0.0, 0.3, 1.0]) if self.is_disturbed else 0.0
            facts = HostFacts(host.encode(), 200, now - self.rng.choice([0.0, 0.0, 1.0]), delay)
            await frontier.set_host_facts(host, facts, now)
        self.expect(worker, connection, host, "answered", question, contacted)
        assert await frontier.ack(lease, "answered", (), now, contacted=contacted)

    async def find(self, worker: Worker, host: str) -> None:
        """Set the address of a host; "" means that it is unknown."""
        now = self.clock.now()
        until = now + self.rng.choice([1.0, 2.0, 1e6])
        await worker.frontier.set_address(host, self.rng.choice(ADDRESSES), until, now)

    async def recall(self, worker: Worker, host: str) -> None:
        """Check that the known facts of a host are those that any worker sent last."""
        part = self.model.parts[worker.session.partition_of(host).number]
        facts = await worker.frontier.host_facts(host)
        assert (encode(facts) if facts else None) == part.facts.get(host)

    async def settle(self, worker: Worker, connection: WorkerConnection, lease: Lease, record: Record) -> None:
        """Finish a lease of a page."""
        frontier, now = worker.frontier, self.now
        contacted = self.rng.random() < 0.7
        if self.is_disturbed and not contacted and self.rng.random() < 0.2:
            await self.block(worker, connection, record.host)
        outcome = self.rng.choice(["ack", "ack", "ack", "retry", "dead", "release"]) if self.is_disturbed else "ack"
        if outcome == "ack":
            links = [self.any_record() for _ in range(self.rng.randrange(7))] if self.is_disturbed else []
            children = [link for link in links if not self.is_known(frontier, link)]
            not_sent = tuple(self.model.records[number_of(link)] for link in links if link not in children)
            sent = [
                (worker.session.partition_of(link.host).number, self.model.records[number_of(link)])
                for link in children
            ]
            self.expect(worker, connection, record.host, "ack", record, contacted, sent, not_sent)
            assert await frontier.ack(lease, "200", children, now, contacted=contacted)
            worker.acked.append(record)
        elif outcome == "release":
            self.expect(worker, connection, record.host, "release", record)
            assert await frontier.release(lease, now)
        else:
            retry_at = now + self.rng.uniform(0.1, 4) if outcome == "retry" else None
            self.expect(worker, connection, record.host, "nack", record, contacted, retry_at)
            assert await frontier.nack(lease, "503", retry_at, now, contacted=contacted)

    async def commit(self, worker: Worker) -> None:
        """Commit. Once the commit is confirmed, no ack may be lost any more."""
        worker.session.now = self.now
        await worker.frontier.commit({"items": self.rng.randrange(1000)})
        name = worker.name
        for record in worker.acked:
            prepared = record.commit is not None and record.worker == name
            decided = prepared and record.commit <= self.model.decided.get(name, 0)
            assert record.state == "done" or decided, f"{record} is not committed"
        worker.acked = []

    def finish(self, worker: Worker) -> None:
        """Check that the crawl is finished when the worker finds so."""
        assert self.model.is_over, f"{worker.slot} finishes too early: {[part.live for part in self.model.parts]}"
        worker.finished = True

    # ---------------------------------------------------------------------------------------------------------- records

    def expect(self, worker: Worker, connection: WorkerConnection, host: str, verb: str, *arguments: Any) -> None:
        """Announce the effect of the next call to the model."""
        connection.expect(worker.session.partition_of(host).number, Effect(verb, arguments))

    def is_known(self, frontier: Any, link: UrlRecord) -> bool:
        """Whether the link need not be pushed, since it was pushed from here."""
        return not link.dont_filter and link.fingerprint in frontier.known(link.segment, [link.fingerprint])

    def any_record(self) -> UrlRecord:
        """Return a random link."""
        rng, page = self.rng, self.rng.randrange(PAGES)
        key = rng.choice(SEGMENTS), page
        if rng.random() < 0.03 and self.unfiltered < UNFILTERED_MAX:
            self.unfiltered += 1
            return self.record(rng.choice(HOSTS), key, unfiltered=True)
        due = self.now + rng.uniform(-1, 4) if rng.random() < 0.1 else 0.0
        return self.record(HOSTS[page % len(HOSTS)], key, rng.choice([0, 0, 0, 1, -5]), due)

    def record(
        self, host: str, key: tuple[str, int], priority: int = 0, due: float = 0.0, *, unfiltered: bool = False
    ) -> UrlRecord:
        """Return one more record, which the model finds by its number."""
        self.records += 1
        segment, page = key
        identity = None if unfiltered else key
        self.model.records[self.records] = Record(
            host, self.records, identity, segment, starts_at(segment), priority, due
        )
        fingerprint = (page + 1) * 0x9E3779B97F4A7C15 % 2**64
        url = f"{host}/{page}?{self.records}"
        return UrlRecord(
            1, fingerprint, url, host, segment, priority=priority, not_before=due, dont_filter=unfiltered
        )  # fmt: skip


def number_of(record: UrlRecord) -> int:
    return int(record.url.rpartition("?")[2])


def _raise(error: Exception) -> None:
    raise error
