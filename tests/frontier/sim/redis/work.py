"""What the workers of `history` do: what an engine does with a frontier, at random.

They join, lend, fetch (pages, robots.txt, addresses), fetch inline in callbacks, report, commit, and look whether it is
over; and they tell `model` what each call means.
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
from tests.frontier.sim.redis.line import Line, Worker
from tests.frontier.sim.redis.model import Crawl, Effect, Record
from tests.frontier.sim.redis.turns import Transfer
from tests.virtual import VirtualLoop

HOSTS = [f"http://h{n}.example:80" for n in (0, 1, 3, 7, 8, 12, 14, 16)]
"""Two of the first of three partitions, three of each other."""

ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3", ""]
PAGES = 40
UNFILTERED_MAX = 8
SEGMENTS = ["", "2001-09-08", "2001-09-09T01:46", "2001-09-09T01:47"]
STUBBORN_S = 2.5
BEAT_S = 0.5
BUSY_S, IDLE_S = [0.0, 0.01, 0.1, 0.1, 2.5], [0.1, 0.3, 1.0]


class Work:
    """See `history.History`, which says what time it is and what trouble there is."""

    name: str
    rng: random.Random
    loop: VirtualLoop
    policy: Policy
    model: Crawl
    partitions: int
    numbers: dict[str, int]
    workers: list[Worker]
    clock: Any
    often_claims: float
    now: float
    troubled: bool
    keep_done = False
    records = unfiltered = 0

    def check(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Do it; whatever is raised is what the history comes to."""
        raise NotImplementedError

    def start(self, worker: Worker) -> None:
        """One more process of a slot."""
        if worker.life is None or worker.life.done():
            worker.still_until = 0.0
            worker.life = self.loop.create_task(self.live(worker))

    async def rest(self, worker: Worker, seconds: float) -> None:
        """Sleep, and for as long as it stands still."""
        await asyncio.sleep(seconds)
        if self.loop.time() < worker.still_until:
            await self.rest(worker, worker.still_until - self.loop.time())
        elif worker.frontier:
            worker.session.now = self.now

    async def live(self, worker: Worker) -> None:
        """Join, and work; again whenever that fails, until it has finished."""
        while not worker.finished:
            heart = line = None
            try:
                line = await self.join(worker)
                heart = self.loop.create_task(self.beat(worker, line, worker.session.partitions[0]))
                await self.work(worker, line)
            except StateError:
                await self.rest(worker, 0.1)
            except Exception as error:
                self.check(_raise, error)
            finally:
                for task in (*worker.visits, heart):
                    if task:
                        task.cancel()
                if line:
                    line.is_cut = True

    async def beat(self, worker: Worker, line: Line, first: Partition) -> None:
        """A thread of its own: only what stops the process stops it."""
        while True:
            await self.rest(worker, BEAT_S)
            command = WORKER_SCRIPT.command(keys_of(first.key), ("", "beat", first.worker))
            try:
                await line.execute_command(*command)
            except Lost:
                continue

    async def join(self, worker: Worker) -> Line:
        """Take part under a new name; the first record is pushed by everybody."""
        line = Line(self, worker)
        server = crawl_server("redis://127.0.0.1:1/0", lambda _: None)  # the history is what answers

        async def patient(act: Callable[[], Awaitable[Any]]) -> Any:
            return await server.retry(act, RetryLimits(STUBBORN_S))

        keeps = self.keep_done
        session = Session(line, self.name, worker.slot, patient, self.partitions, callers_clock=True, keep_done=keeps)
        for partition in session.partitions:
            self.numbers[partition.key] = partition.number
            line.listen(partition)
        worker.held, worker.acked, worker.visits = [], [], {}
        worker.frontier = RedisFrontier(session, self.policy, ahead=self.rng.choice([0, 0, 4]))
        session.callers_clock = not self.model.limits.punctual  # else the frontier takes it that all start at once
        await worker.frontier.open()
        session.callers_clock = True
        session.now = self.now
        await self.push(worker, line, [self.record(HOSTS[0], (SEGMENTS[0], 0))])
        return line

    async def work(self, worker: Worker, line: Line) -> None:
        """Lend, fetch, report, commit; look whether it is over."""
        while True:
            leases = await worker.frontier.lease(self.rng.randint(1, 8), self.now)
            for lease in leases:
                self.take(worker, lease)
            if not worker.held and not worker.visits:
                if worker.acked:
                    await self.commit(worker)
                worker.session._repaired_at = self.rng.choice([-inf, inf])  # no clock on the wall
                if await worker.session.is_finished():
                    return self.finish(worker)
            await self.rest(worker, self.rng.choice(BUSY_S if worker.held and self.troubled else IDLE_S))
            await self.do_something(worker, line)

    def take(self, worker: Worker, lease: Lease) -> None:
        """Begin with what was lent."""
        home, count = worker.session.partition_of(lease.record.host), self.partitions
        transfer = self.model.parts[home.number].lent[lease.token // count]
        if lease.record.kind == RecordKind.PAGE:
            assert transfer is self.model.records[number_of(lease.record)]
            assert transfer.state == "leased" or worker.name not in self.model.parts[0].heard
        if lease.record.kind != RecordKind.RESOLVE and self.rng.random() < 0.7:
            worker.frontier.report_start(transfer.host, self.now)
        if self.troubled and lease.record.kind == RecordKind.PAGE and self.rng.random() < self.often_claims:
            visit = self.loop.create_task(self.visit(worker, lease, transfer))
            worker.visits[visit] = None
            visit.add_done_callback(worker.visits.pop)
        else:
            worker.held.append((lease, transfer))

    async def visit(self, worker: Worker, lease: Lease, record: Record) -> None:
        """A callback that fetches inline: one after the other, or several at a time."""
        own = [record.host] if self.rng.random() < 0.8 else []
        hosts = self.rng.sample(HOSTS, 2) + own * self.rng.randint(1, 5)
        many = self.rng.sample(hosts, self.rng.randint(1, len(hosts)))
        try:
            if self.rng.random() < 0.5:
                for host in many:
                    await self.inline(worker, host, lease)
            else:
                await asyncio.gather(*(self.inline(worker, host, lease) for host in many))
        except StateError:
            pass  # it had no answer; or is not known any more, and its worker is told so, too
        except Exception as error:
            self.check(_raise, error)
        worker.held.append((lease, record))

    async def inline(self, worker: Worker, host: str, lease: Lease) -> None:
        """A transfer that is no record; it may be given up while it waits."""
        frontier, finds = worker.frontier, self.policy.limits_addresses

        async def find(host: str) -> None:
            await self.find(worker, host)

        patience_s = self.rng.choice([0.3, 5.0, 1e3, 1e3, 1e3])
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(patience_s),
                claim_host(host, frontier, self.clock, lease, find if finds else None),
            ):
                if self.rng.random() < 0.7:
                    frontier.report_start(host, self.now)
                await self.rest(worker, self.rng.choice([0.0, 0.1, 0.5]))

    async def do_something(self, worker: Worker, line: Line) -> None:
        """Settle some of what it holds, and whatever else there is to do."""
        rng, few = self.rng, 0.1 if self.troubled else 0.0
        for lease, record in rng.sample(worker.held, rng.randint(min(1, len(worker.held)), len(worker.held))):
            if rng.random() < 2 * few:
                await self.push(worker, line, [self.any_record() for _ in range(8)])
            worker.held.remove((lease, record))
            if record.kind:
                await self.answer(worker, line, lease, record)
            else:
                await self.settle(worker, line, lease, record)
        now = self.now
        host = rng.choice(worker.held)[1].host if worker.held else rng.choice(HOSTS)
        if rng.random() < few:
            await self.recall(worker, host)
        if rng.random() < few:
            await self.block(worker, line, host)
        if rng.random() < few:
            delay = rng.choice([0.0, 0.3, 1.0])
            self.mean(worker, line, host, "throttle", host, delay)
            await worker.frontier.set_delay(host, delay, now)
        if rng.random() < few / 2:
            await worker.session.leave()
            raise StateError("it has left")
        if worker.acked and rng.random() < 0.4:
            await self.commit(worker)

    async def push(self, worker: Worker, line: Line, records: list[UrlRecord]) -> None:
        """Seeds, which come while something is lent, or are the first."""
        for record in records:
            self.mean(worker, line, record.host, "push", self.model.records[number_of(record)])
        await worker.frontier.push(records)

    async def block(self, worker: Worker, line: Line, host: str) -> None:
        """A host rests."""
        until = self.now + self.rng.choice([0.1, 0.2, 0.6, 3.0])
        self.mean(worker, line, host, "block", host, until)
        await worker.frontier.block_host(host, until)

    async def answer(self, worker: Worker, line: Line, lease: Lease, question: Transfer) -> None:
        """The end of a question about a host."""
        frontier, host, now = worker.frontier, question.host, self.clock.now()
        contacted = self.rng.random() < 0.7
        if self.troubled and self.rng.random() < 0.3:
            again = now + self.rng.uniform(0.1, 2.0)
            self.mean(worker, line, host, "unanswered", question, contacted, again)
            assert await frontier.nack(lease, "503", again, now, contacted=contacted)
            return
        if question.kind == RecordKind.RESOLVE:
            await self.find(worker, host)
        else:
            delay = self.rng.choice([0.0, 0.0, 0.3, 1.0]) if self.troubled else 0.0
            facts = HostFacts(host.encode(), 200, now - self.rng.choice([0.0, 0.0, 1.0]), delay)
            await frontier.set_host_facts(host, facts, now)
        self.mean(worker, line, host, "answered", question, contacted)
        assert await frontier.ack(lease, "answered", (), now, contacted=contacted)

    async def find(self, worker: Worker, host: str) -> None:
        """Say where a host is, or that nobody knows."""
        now = self.clock.now()
        until = now + self.rng.choice([1.0, 2.0, 1e6])
        await worker.frontier.set_address(host, self.rng.choice(ADDRESSES), until, now)

    async def recall(self, worker: Worker, host: str) -> None:
        """What is known of a host is what was told last, by whoever."""
        part = self.model.parts[worker.session.partition_of(host).number]
        facts = await worker.frontier.host_facts(host)
        assert (encode(facts) if facts else None) == part.facts.get(host)

    async def settle(self, worker: Worker, line: Line, lease: Lease, record: Record) -> None:
        """The end of a lease."""
        frontier, now = worker.frontier, self.now
        contacted = self.rng.random() < 0.7
        if self.troubled and not contacted and self.rng.random() < 0.2:
            await self.block(worker, line, record.host)
        how = self.rng.choice(["ack", "ack", "ack", "retry", "dead", "release"]) if self.troubled else "ack"
        if how == "ack":
            links = [self.any_record() for _ in range(self.rng.randrange(7))] if self.troubled else []
            children = [link for link in links if not self.is_known(frontier, link)]
            known = tuple(self.model.records[number_of(link)] for link in links if link not in children)
            told = [
                (worker.session.partition_of(link.host).number, self.model.records[number_of(link)])
                for link in children
            ]
            self.mean(worker, line, record.host, "ack", record, contacted, told, known)
            assert await frontier.ack(lease, "200", children, now, contacted=contacted)
            worker.acked.append(record)
        elif how == "release":
            self.mean(worker, line, record.host, "release", record)
            assert await frontier.release(lease, now)
        else:
            again = now + self.rng.uniform(0.1, 4) if how == "retry" else None
            self.mean(worker, line, record.host, "nack", record, contacted, again)
            assert await frontier.nack(lease, "503", again, now, contacted=contacted)

    async def commit(self, worker: Worker) -> None:
        """What was acked is done: once that is answered, it stays so."""
        worker.session.now = self.now
        await worker.frontier.commit({"items": self.rng.randrange(1000)})
        name = worker.name
        for record in worker.acked:
            prepared = record.commit is not None and record.worker == name
            decided = prepared and record.commit <= self.model.decided.get(name, 0)
            assert record.state == "done" or decided, f"{record} is not committed"
        worker.acked = []

    def finish(self, worker: Worker) -> None:
        """It thinks that it is over."""
        assert self.model.is_over, f"{worker.slot} finishes too early: {[part.live for part in self.model.parts]}"
        worker.finished = True

    # ---------------------------------------------------------------------------------------------------------- records

    def mean(self, worker: Worker, line: Line, host: str, what: str, *arguments: Any) -> None:
        """Note what is about to be said about a host."""
        line.mean(worker.session.partition_of(host).number, Effect(what, arguments))

    def is_known(self, frontier: Any, link: UrlRecord) -> bool:
        """Whether it need not be pushed, for it was from here."""
        return not link.dont_filter and link.fingerprint in frontier.known(link.segment, [link.fingerprint])

    def any_record(self) -> UrlRecord:
        """Return a link."""
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
        """Return one more record, which the model knows by its number."""
        self.records += 1
        segment, page = key
        known = None if unfiltered else key
        self.model.records[self.records] = Record(host, self.records, known, segment, starts_at(segment), priority, due)
        fingerprint = (page + 1) * 0x9E3779B97F4A7C15 % 2**64
        url = f"{host}/{page}?{self.records}"
        return UrlRecord(
            1, fingerprint, url, host, segment, priority=priority, not_before=due, dont_filter=unfiltered
        )  # fmt: skip


def number_of(record: UrlRecord) -> int:
    """Return the number of a record in the model."""
    return int(record.url.rpartition("?")[2])


def _raise(error: Exception) -> None:
    raise error
