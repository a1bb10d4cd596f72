"""Random histories of five workers on one crawl in a real Redis, beside a model of it (C3, C6, F4-F7).

Virtual time; calls and answers are lost, late and repeated; workers are killed, leave, or stand still for longer than
the silence after which they are buried; partitions are away; the server's clock jumps. Workers follow what an engine
does, with the real frontier; `redis_model` is told each call that a partition does, and checks its answer: what was
lent, in which order, how soon, what was new, and all counts. So each step agrees, also those in between of a commit, a
forwarding, a burial. Nobody finishes too early, everybody does in the end, and a commit that was answered stands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha1
from secrets import token_hex
from typing import Any

import pytest
import redis as real_redis
from redis.exceptions import ConnectionError as Lost

from lycosa.core.errors import StateError
from lycosa.core.frontier import Policy
from lycosa.core.model import Lease, UrlRecord
from lycosa.core.segments import starts_at
from lycosa.frontiers.redis import scripts, wire
from lycosa.frontiers.redis.connection import Server
from lycosa.frontiers.redis.frontier import RedisFrontier
from lycosa.frontiers.redis.lanes import decode
from lycosa.frontiers.redis.partition import Partition
from lycosa.frontiers.redis.session import Session
from tests.conftest import PROVE
from tests.sim.redis_model import Crawl, Effect, Part, Record, told, trimmed, unknown
from tests.sim.virtual import VirtualLoop

pytestmark = pytest.mark.redis

HISTORIES = 2000 if PROVE else 16
PARTS = 8
WORKERS = 5
HOSTS = [f"http://h{n}.example:80" for n in (0, 1, 3, 7, 8, 12, 14, 16)]
"""Two of the first of three partitions, three of each other."""

PAGES = 40
UNFILTERED_MAX = 8
SEGMENTS = ["", "2001-09-08", "2001-09-09T01:46", "2001-09-09T01:47"]
BEGIN = starts_at(SEGMENTS[-1]) - 6
"""The last segment begins while the crawl runs."""

CALL_S = 0.8
STUBBORN_S = 2.5
BEAT_S = 0.5
TROUBLE_S = 12.0
STILL_MAX_S = 5.0
LATE_MAX_S = 4.0
STRIKES = {"commit": 0.15, "open": 0.01, "leave": 0.1, "gone": 0.1, "known": 0.1, "bring": 0.03, "brought": 0.03}
"""How often a worker is struck after such a call."""

BUSY_S, IDLE_S = [0.0, 0.01, 0.1, 0.1, 2.5], [0.1, 0.3, 1.0]
JUMPS = [-15.0, -1.5, 0.7, 1.5, 40.0]
END_MAX_S = TROUBLE_S + 150.0
SMALLER = {"BUCKET = 256": "BUCKET = 4", "RETAINED = 1000": "RETAINED = 3", "RETAINED_S = 5 ": "RETAINED_S = 0.5 "}
"""What the script does with many records, done with few."""

SLICE = 3


@dataclass(eq=False)
class Worker:
    """A slot: its processes come one after the other. `held` are leases that it works on, `acked` what it reported."""

    slot: str
    number: int
    frontier: Any = None
    held: list[tuple[Lease, Record]] = field(default_factory=list)
    acked: list[Record] = field(default_factory=list)
    still_until: float = 0.0
    life: asyncio.Task[None] | None = None
    finished: bool = False

    @property
    def session(self) -> Session:
        """What it has with the crawl."""
        session: Session = self.frontier.session
        return session

    @property
    def name(self) -> str:
        """The name that it has now."""
        return self.session.partitions[0].worker


class Line:
    """The way of one process to the server: a client. `effects` are what its waiting verbs mean, for each partition."""

    def __init__(self, history: History, worker: Worker) -> None:
        self.history, self.worker = history, worker
        self.effects: dict[int, list[Effect]] = {}
        self.sent: dict[tuple[int, int], list[Effect]] = {}

    def listen(self, partition: Partition) -> None:
        """Hear of the verbs that the frontier adds by itself: those of a commit, and of starts that matter."""
        add, meant = partition.add, {"p": "prepare", "q": "prepared", "c": "commit"}

        def heard(verb: str, *arguments: Any) -> None:
            if verb in meant:
                self.mean(partition.number, Effect(meant[verb], arguments[:1]))
            elif verb == "s":
                self.mean(partition.number, Effect("start", (arguments[0], float(arguments[1]))))
            add(verb, *arguments)

        partition.add = heard  # type: ignore[method-assign]

    def mean(self, partition: int, effect: Effect) -> None:
        """Note what the next verb to a partition means."""
        self.effects.setdefault(partition, []).append(effect)

    async def execute_command(self, *command: Any) -> Any:
        """Send a call, and wait for its answer. Raises `Lost` when there is none."""
        loop, history = asyncio.get_running_loop(), self.history
        answer: asyncio.Future[Any] = loop.create_future()
        _, _, _, key, _, name, worker, *arguments = command
        number = history.numbers[key]
        if name == "exchange" and (number, arguments[0]) not in self.sent:
            self.sent[number, arguments[0]] = self.effects.pop(number, [])
        call = Call(self, number, name, worker, arguments, command)

        def arrives() -> None:
            if not history.is_away(number):
                said = history.execute(call)
                for seconds in history.ways(self.worker):
                    loop.call_later(seconds, answers, said)

        def answers(said: Any) -> None:
            if loop.time() < self.worker.still_until:
                loop.call_later(self.worker.still_until - loop.time(), answers, said)
            elif not answer.done():
                answer.set_exception(said) if isinstance(said, Exception) else answer.set_result(said)

        for seconds in history.ways(self.worker):
            loop.call_later(seconds, arrives)
        loop.call_later(CALL_S, answers, Lost("no answer"))
        return await answer


@dataclass(frozen=True)
class Call:
    """One call of a script."""

    line: Line
    partition: int
    name: str
    worker: str
    arguments: list[Any]
    command: tuple[Any, ...]


class History:
    """One history. Workers' clocks show `now`, that of the server `jumped` more."""

    keeps_done = False

    def __init__(self, url: str, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.redis = real_redis.Redis.from_url(url)
        self.name = f"history-{seed}-{token_hex(4)}"
        self.loop = VirtualLoop()
        self.partitions = chance.choice([1, 3, 3])
        places, delay = chance.choice([1, 2, 8]), chance.choice([0.0, 0.4, 0.4])
        self.policy = Policy(delay, places, 1e6, robots=False)
        self.model = Crawl(self.partitions, places, delay, punctual=chance.random() < 0.5)
        self.trouble = chance.choice([0.0, 0.02, 0.05])
        self.jumped = 0.0
        self.away_until = [0.0] * self.partitions
        self.workers = [Worker(f"w{number}", number) for number in range(WORKERS)]
        self.numbers: dict[str, int] = {}
        self.records = self.unfiltered = 0
        self.broken: asyncio.Future[None] = self.loop.create_future()

    # ------------------------------------------------------------------------------------------------ time, and trouble

    @property
    def now(self) -> float:
        """What the workers' clocks show."""
        return BEGIN + self.loop.time()

    @property
    def troubled(self) -> bool:
        """Whether there is trouble, still."""
        return self.loop.time() < TROUBLE_S

    def is_away(self, partition: int) -> bool:
        """Whether nothing arrives there."""
        return self.loop.time() < self.away_until[partition]

    def ways(self, worker: Worker) -> Iterator[float]:
        """Yield how long a message is under way, as often as it arrives. One worker is far away."""
        trouble = self.trouble if self.troubled else 0.0
        drawn = self.chance.random()
        if drawn >= trouble:
            yield self.chance.uniform(0.001, 0.1 if worker.number == 1 else 0.01)
        if trouble < drawn < 2 * trouble:
            yield self.chance.uniform(0.02, LATE_MAX_S)
        if drawn < trouble / 2:
            yield self.chance.uniform(0.5, LATE_MAX_S)

    async def make_trouble(self) -> None:
        """Kill, stop, jump, until it is enough."""
        for _ in range(self.chance.randrange(12)):
            await asyncio.sleep(self.chance.uniform(0, TROUBLE_S / 6))
            if not self.troubled:
                return
            kind = self.chance.choice(["worker", "worker", "away", "jump"])
            if kind == "worker":
                self.strike(self.chance.choice(self.workers))
            elif kind == "away":
                away_s = self.chance.uniform(0.1, STILL_MAX_S)
                self.away_until[self.chance.randrange(self.partitions)] = self.loop.time() + away_s
            else:
                self.jumped += self.chance.choice(JUMPS)

    def strike(self, worker: Worker) -> None:
        """Kill a worker, or let it stand still."""
        seconds = self.chance.uniform(0.1, STILL_MAX_S)
        if self.chance.random() < 0.5:
            worker.still_until = self.loop.time() + seconds
        elif worker.life and not worker.finished:
            worker.life.cancel()
            if worker.number == 0 or self.chance.random() < 0.9:
                self.loop.call_later(seconds, self.start, worker)

    def tempt(self, call: Call) -> None:
        """Strike between two calls of what is not one step."""
        often = STRIKES.get(call.name, 0.0)
        if call.name == "exchange":
            verbs = {effect.what for effect in call.line.sent.get((call.partition, call.arguments[0]), [])}
            often = STRIKES["commit"] if verbs & {"prepare", "commit"} else often
        if self.troubled and self.chance.random() < often:
            self.loop.call_soon(self.strike, call.line.worker)

    def run(self) -> None:
        """Play it."""
        try:
            self.loop.run_until_complete(self.play())
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.close()
            self.redis.close()

    async def play(self) -> None:
        """Until everybody has finished."""
        for worker in self.workers:
            self.loop.call_later(self.chance.uniform(0, 2), self.start, worker)
        self.loop.call_later(END_MAX_S, self.check, self.never_ends)
        trouble = asyncio.create_task(self.make_trouble())
        ends = asyncio.create_task(self.end())
        await asyncio.wait([self.broken, ends], return_when=asyncio.FIRST_COMPLETED)
        for done in (self.broken, ends):
            if done.done():
                done.result()
        await trouble

    async def end(self) -> None:
        """Wait until no process runs, and none will."""
        while self.somebody_works:  # noqa: ASYNC110  time is virtual
            await asyncio.sleep(1.0)
        assert self.model.is_over
        for record in self.model.records.values():
            if record.state == "done":
                assert not unknown(record.links, self.model.parts), f"what {record} links to is lost"

    @property
    def somebody_works(self) -> bool:
        """Whether a process runs, or the one of the first slot will: it always comes back."""
        return not self.workers[0].finished or any(each.life and not each.life.done() for each in self.workers)

    def never_ends(self) -> None:
        """Too late."""
        left = [part.live for part in self.model.parts]
        raise AssertionError(f"it never ends: {[each.slot for each in self.workers if not each.finished]} {left}")

    def check(self, act: Callable[..., Any], *arguments: Any) -> Any:
        """Do it; whatever is raised is what the history comes to."""
        try:
            return act(*arguments)
        except Exception as error:
            if not self.broken.done():
                self.broken.set_exception(error)
            raise

    # ----------------------------------------------------------------------------------------------- what a server does

    def execute(self, call: Call) -> Any:
        """Do a call, in Redis and in the model, and compare."""
        return self.check(self._execute, call)

    def _execute(self, call: Call) -> Any:
        now = self.now + self.jumped
        command = list(call.command)
        command[4] = repr(now)
        said = self.redis.execute_command(*command)
        part = self.model.parts[call.partition]
        part.latest = max(part.latest, now)
        known = getattr(self, f"did_{call.name}")(part, call, said, now)
        assert (said[0] == b"ok") == known, f"{call.name} of {call.worker}: {said}"
        self.tempt(call)
        return said

    def did_exchange(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Verbs, and leases."""
        serial, worker = call.arguments[0], call.worker
        if not part.hear(now, worker):
            return False
        last = part.serials.get(worker, 0)
        if serial == last:  # the answer was lost
            tokens = {int(each[0]) for each in said[3]}
            mine = [each for each in part.live.values() if each.worker == worker and each.state == "leased"]
            assert len(tokens) == len(said[3]) == len(mine), "it is told another time what it has, and that is not true"
            return True
        if serial < last:  # late, and nobody waits for its answer
            return False
        if serial > last + 1:  # what came in between is lost, and was no more than half of what it wanted to say
            part.give_up(worker, now)
            return False
        part.serials[worker] = serial
        new = sum(part.apply(worker, effect, now) for effect in call.line.sent[part.number, serial])
        _, added, refused, leases, outlook, *_ = said
        assert added == new, f"{added} are new, not {new}"
        assert not refused
        records = [self.model.records[number_of(decode(each[3]))] for each in leases]
        part.lend(worker, records, call.arguments[-2], now)
        self.compare(part, outlook, now)
        return True

    def compare(self, part: Part, outlook: Any, now: float) -> None:
        """What a partition tells of itself is true."""
        view = Partition("", part.number)
        view.heard(*outlook)
        said, true = told(view.segments), trimmed(part.counts())
        assert said == true, f"it tells {said}, and has {true}"
        assert view.arrived == part.arrived
        assert set(view.gone) == part.gone
        due = part.due_at(now)
        assert due == float("inf") or (view.due is not None and view.due <= max(due, now)), f"{view.due}, not {due}"

    def did_open(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Join."""
        joined = said[1].decode() if said[0] == b"ok" else ""
        return part.open(now, call.arguments[0], call.worker, joined)

    def did_beat(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """It lives."""
        return part.hear(now, call.worker)

    def did_leave(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """It goes."""
        if call.worker in part.heard:
            part.bury_here(call.worker, now)
        return True

    def did_gone(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Another partition has buried it."""
        part.bury(call.arguments[0], now)
        part.refused.add(call.arguments[0])
        return True

    def did_known(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """All know it."""
        worker = call.arguments[0]
        assert all(worker in other.refused for other in self.model.parts[1:])
        part.gone.discard(worker)
        return True

    def did_strangers(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Others know workers that are not known here."""
        part.gone |= {worker.decode() for worker in call.arguments[1:]} - set(part.heard)
        return True

    def did_whole(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """All partitions are there."""
        return True

    did_state = did_taken = did_whole

    def did_outgoing(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """A slice of an outbox."""
        return True

    def did_bring(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Records of another partition."""
        source, _, _, first, count, *_ = call.arguments
        part.bring(source, first, count)
        assert int(said[1]) == part.taken[source]
        return True

    def did_brought(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """They are there."""
        to, _, upto = call.arguments
        assert upto <= self.model.parts[to].taken[part.number]
        part.brought[to] = max(part.brought[to], upto)
        return True

    # ----------------------------------------------------------------------------------------------- what a worker does

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
            heart = None
            try:
                line = await self.join(worker)
                heart = self.loop.create_task(self.beat(worker, line, worker.session.partitions[0]))
                await self.work(worker, line)
            except StateError:
                await self.rest(worker, 0.1)
            except Exception as error:
                self.check(_raise, error)
            finally:
                if heart:
                    heart.cancel()

    async def beat(self, worker: Worker, line: Line, first: Partition) -> None:
        """A thread of its own: only what stops the process stops it."""
        while True:
            await self.rest(worker, BEAT_S)
            command = ("EVALSHA", scripts.script()[1], 1, first.key, "", "beat", first.worker)
            try:
                await line.execute_command(*command)
            except Lost:
                continue

    async def join(self, worker: Worker) -> Line:
        """Take part under a new name; the first record is pushed by everybody."""
        line = Line(self, worker)
        server = Server("redis://127.0.0.1:1/0", lambda said: None)  # the history is what answers

        async def patient(act: Callable[[], Awaitable[Any]]) -> Any:
            return await server.patiently(act, STUBBORN_S)

        keeps = self.keeps_done
        session = Session(line, self.name, worker.slot, patient, self.partitions, callers_clock=True, keeps_done=keeps)
        for partition in session.partitions:
            self.numbers[partition.key] = partition.number
            line.listen(partition)
        worker.held, worker.acked = [], []
        worker.frontier = RedisFrontier(session, self.policy, ahead=self.chance.choice([0, 0, 4]))
        session.callers_clock = not self.model.punctual  # else the frontier takes it that all start at once
        await worker.frontier.open()
        session.callers_clock = True
        session.now = self.now
        await self.push(worker, line, [self.record(HOSTS[0], (SEGMENTS[0], 0))])
        return line

    async def work(self, worker: Worker, line: Line) -> None:
        """Lend, fetch, report, commit; look whether it is over."""
        while True:
            leases = await worker.frontier.lease(self.chance.randint(1, 8), self.now)
            for lease in leases:
                record = self.model.records[number_of(lease.record)]
                assert record.state == "leased" or worker.name not in self.model.parts[0].heard
                worker.held.append((lease, record))
                if self.chance.random() < 0.7:
                    worker.frontier.started(record.host, self.now)
            if not worker.held:
                if worker.acked:
                    await self.commit(worker)
                if await worker.session.is_over():
                    return self.finish(worker)
            await self.rest(worker, self.chance.choice(BUSY_S if worker.held and self.troubled else IDLE_S))
            await self.do_something(worker, line)

    async def do_something(self, worker: Worker, line: Line) -> None:
        """Settle some of what it holds, and whatever else there is to do."""
        chance, few = self.chance, 0.1 if self.troubled else 0.0
        for lease, record in chance.sample(worker.held, chance.randint(min(1, len(worker.held)), len(worker.held))):
            if chance.random() < 2 * few:
                await self.push(worker, line, [self.any_record() for _ in range(8)])
            worker.held.remove((lease, record))
            await self.settle(worker, line, lease, record)
        now = self.now
        host = chance.choice(worker.held)[1].host if worker.held else chance.choice(HOSTS)
        if chance.random() < few:
            await self.block(worker, line, host)
        if chance.random() < few:
            delay = chance.choice([0.0, 0.3, 1.0])
            self.mean(worker, line, host, "throttle", host, delay)
            await worker.frontier.set_delay(host, delay, now)
        if chance.random() < few / 2:
            await worker.session.leave()
            raise StateError("it has left")
        if worker.acked and chance.random() < 0.4:
            await self.commit(worker)

    async def push(self, worker: Worker, line: Line, records: list[UrlRecord]) -> None:
        """Seeds, which come while something is lent, or are the first."""
        for record in records:
            self.mean(worker, line, record.host, "push", self.model.records[number_of(record)])
        await worker.frontier.push(records)

    async def block(self, worker: Worker, line: Line, host: str) -> None:
        """A host rests."""
        until = self.now + self.chance.choice([0.1, 0.2, 0.6, 3.0])
        self.mean(worker, line, host, "block", host, until)
        await worker.frontier.block_host(host, until)

    async def settle(self, worker: Worker, line: Line, lease: Lease, record: Record) -> None:
        """The end of a lease."""
        frontier, now = worker.frontier, self.now
        contacted = self.chance.random() < 0.7
        if self.troubled and not contacted and self.chance.random() < 0.2:
            await self.block(worker, line, record.host)
        how = self.chance.choice(["ack", "ack", "ack", "retry", "dead", "release"]) if self.troubled else "ack"
        if how == "ack":
            links = [self.any_record() for _ in range(self.chance.randrange(7))] if self.troubled else []
            children = [link for link in links if not self.is_known(frontier, link)]
            known = tuple(self.model.records[number_of(link)] for link in links if link not in children)
            told = [(worker.session.of(link.host).number, self.model.records[number_of(link)]) for link in children]
            self.mean(worker, line, record.host, "ack", record, contacted, told, known)
            assert await frontier.ack(lease, "200", children, now, contacted=contacted)
            worker.acked.append(record)
        elif how == "release":
            self.mean(worker, line, record.host, "release", record)
            assert await frontier.release(lease, now)
        else:
            again = now + self.chance.uniform(0.1, 4) if how == "retry" else None
            self.mean(worker, line, record.host, "nack", record, contacted, again)
            assert await frontier.nack(lease, "503", again, now, contacted=contacted)

    async def commit(self, worker: Worker) -> None:
        """What was acked is done: once that is answered, it stays so."""
        worker.session.now = self.now
        await worker.frontier.commit({"items": self.chance.randrange(1000)})
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
        line.mean(worker.session.of(host).number, Effect(what, arguments))

    def is_known(self, frontier: Any, link: UrlRecord) -> bool:
        """Whether it need not be pushed, for it was from here."""
        return not link.dont_filter and link.fingerprint in frontier.known(link.segment, [link.fingerprint])

    def any_record(self) -> UrlRecord:
        """Return a link."""
        chance, page = self.chance, self.chance.randrange(PAGES)
        key = chance.choice(SEGMENTS), page
        if chance.random() < 0.03 and self.unfiltered < UNFILTERED_MAX:
            self.unfiltered += 1
            return self.record(chance.choice(HOSTS), key, unfiltered=True)
        due = self.now + chance.uniform(-1, 4) if chance.random() < 0.1 else 0.0
        return self.record(HOSTS[page % len(HOSTS)], key, chance.choice([0, 0, 0, 1, -5]), due)

    def record(
        self, host: str, key: tuple[str, int], priority: int = 0, due: float = 0.0, *, unfiltered: bool = False
    ) -> UrlRecord:
        """Return one more record, which the model knows by its number."""
        self.records += 1
        segment, page = key
        known = None if unfiltered else key
        self.model.records[self.records] = Record(self.records, known, segment, starts_at(segment), priority, host, due)
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


def shrunk(url: str, monkeypatch: pytest.MonkeyPatch, *changes: tuple[str, str]) -> None:
    """Let the script split its sets, trim its outboxes and slice them with few records; change it so beside."""
    text = scripts.script()[0].decode()
    for what, _ in (*SMALLER.items(), *changes):
        assert text.count(what) == 1, f"{what!r} is not in the script"
    made = {}
    for parts in (scripts.WORKERS, scripts.OPERATIONS):
        text = scripts.script(parts)[0].decode()
        for what, instead in (*SMALLER.items(), *changes):
            text = text.replace(what, instead)
        made[parts] = text.encode(), sha1(text.encode(), usedforsecurity=False).hexdigest()
    monkeypatch.setattr(scripts, "script", lambda parts=scripts.WORKERS: made[parts])
    monkeypatch.setattr(wire, "FORWARDED", SLICE)
    with real_redis.Redis.from_url(url) as client:
        for script, _ in made.values():
            client.script_load(script)


@pytest.mark.parametrize("part", range(PARTS))
def test_histories(redis, monkeypatch: pytest.MonkeyPatch, part: int) -> None:
    shrunk(redis.url, monkeypatch)
    for number in range(HISTORIES // PARTS):
        seed = random.randrange(1 << 32)
        print("seed", seed, "of part", part, "number", number)
        History(redis.url, seed).run()
