"""Random histories of five workers on one crawl in a real Redis, beside a model of it (C3, C6, F4-F7).

Virtual time; calls and answers are lost, late and repeated; workers are killed, leave, or stand still for longer than
the silence after which they are buried; partitions are away; the server's clock jumps. Workers follow what an engine
does, with the real frontier; `model` is told each call that a partition does, and checks its answer: what was
lent, in which order, how soon, what was new, and all counts. So each step agrees, also those in between of a commit, a
forwarding, a burial. Nobody finishes too early, everybody does in the end, and a commit that was answered stands.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from math import inf
from secrets import token_hex
from types import SimpleNamespace
from typing import Any

from lycosa.frontier.core.segments import starts_at
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.lanes import decode
from lycosa.frontier.redis.worker.partition import Partition
from tests.frontier.sim.redis.line import Call, Direct, Worker
from tests.frontier.sim.redis.model import Crawl, Lent, Part, told, trimmed, unknown
from tests.frontier.sim.redis.turns import PAGE, Limits
from tests.frontier.sim.redis.work import SEGMENTS, Work, number_of
from tests.virtual import VirtualLoop

WORKERS = 5
BEGIN = starts_at(SEGMENTS[-1]) - 6
"""The last segment begins while the crawl runs."""

TROUBLE_S = 12.0
STILL_MAX_S = 5.0
LATE_MAX_S = 4.0
STRIKES = {
    "commit": 0.15, "join": 0.01, "leave": 0.1, "expire": 0.1, "expired_everywhere": 0.1, "deliver": 0.03,
    "delivered": 0.03,
}  # fmt: skip
"""How often a worker is struck after such a call."""

JUMPS = [-15.0, -1.5, 0.7, 1.5, 40.0]
END_MAX_S = TROUBLE_S + 150.0


class History(Work):
    """One history. Workers' clocks show `now`, that of the server `jumped` more."""

    def __init__(self, url: str, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.direct = Direct(url)
        self.name = f"history-{seed}-{token_hex(4)}"
        self.loop = VirtualLoop()
        self.clock = SimpleNamespace(now=lambda: self.now + self.jumped)  # workers know how theirs differs
        self.partitions = rng.choice([1, 3, 3])
        self.policy = policy = self.any_policy()
        punctual, ttl = rng.random() < 0.5, policy.robots_ttl_s if policy.robots else inf
        ip = policy.concurrency_per_ip, policy.delay_per_ip_s
        self.model = Crawl(self.partitions, Limits(policy.concurrency_per_host, policy.delay_s, punctual, ttl, *ip))
        self.often_claims = rng.choice([0.0, 0.3, 0.7])
        self.trouble = rng.choice([0.0, 0.02, 0.05])
        self.jumped = 0.0
        self.away_until = [0.0] * self.partitions
        self.workers = [Worker(f"w{number}", number) for number in range(WORKERS)]
        self.numbers: dict[str, int] = {}
        self.broken: asyncio.Future[None] = self.loop.create_future()

    def any_policy(self) -> Policy:
        """Return limits; those of addresses need a single partition."""
        rng = self.rng
        limits = Policy(
            delay_s=rng.choice([0.0, 0.4, 0.4]),
            concurrency_per_host=rng.choice([1, 2, 8]),
            lease_s=1e6,
            robots=rng.random() < 0.4,
            robots_ttl_s=rng.choice([3.0, 1e6]),
        )
        if self.partitions > 1 or rng.random() < 0.3:
            return limits
        return replace(limits, concurrency_per_ip=rng.choice([0, 1, 3]), delay_per_ip_s=rng.choice([0.0, 0.3]))

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
        drawn = self.rng.random()
        if drawn >= trouble:
            yield self.rng.uniform(0.001, 0.1 if worker.number == 1 else 0.01)
        if trouble < drawn < 2 * trouble:
            yield self.rng.uniform(0.02, LATE_MAX_S)
        if drawn < trouble / 2:
            yield self.rng.uniform(0.5, LATE_MAX_S)

    async def make_trouble(self) -> None:
        """Kill, stop, jump, until it is enough."""
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(self.rng.uniform(0, TROUBLE_S / 6))
            if not self.troubled:
                return
            kind = self.rng.choice(["worker", "worker", "away", "jump"])
            if kind == "worker":
                self.strike(self.rng.choice(self.workers))
            elif kind == "away":
                away_s = self.rng.uniform(0.1, STILL_MAX_S)
                self.away_until[self.rng.randrange(self.partitions)] = self.loop.time() + away_s
            else:
                self.jumped += self.rng.choice(JUMPS)

    def strike(self, worker: Worker) -> None:
        """Kill a worker, or let it stand still."""
        seconds = self.rng.uniform(0.1, STILL_MAX_S)
        if self.rng.random() < 0.5:
            worker.still_until = self.loop.time() + seconds
        elif worker.life and not worker.finished:
            worker.life.cancel()
            if worker.number == 0 or self.rng.random() < 0.9:
                self.loop.call_later(seconds, self.start, worker)

    def tempt(self, call: Call) -> None:
        """Strike between two calls of what is not one step."""
        often = STRIKES.get(call.name, 0.0)
        if call.name == "exchange":
            verbs = {effect.what for effect in call.line.sent.get((call.partition, call.arguments[0]), [])}
            often = STRIKES["commit"] if verbs & {"prepare", "commit"} else often
        if self.troubled and self.rng.random() < often:
            self.loop.call_soon(self.strike, call.line.worker)

    def run(self) -> None:
        """Play it."""
        try:
            self.loop.run_until_complete(self.play())
        finally:
            self.loop.run_until_complete(self.stop())
            self.loop.close()
            self.direct.close()

    async def stop(self) -> None:
        """Let nothing go on."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def play(self) -> None:
        """Until everybody has finished."""
        for worker in self.workers:
            self.loop.call_later(self.rng.uniform(0, 2), self.start, worker)
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
        raise AssertionError(
            f"it never ends: {[each.slot for each in self.workers if not each.finished]} {left}"[:2000]
        )

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
        command[5] = repr(now)
        said = self.direct.ask(*command)
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
            live = [each for each in part.live.values() if each.worker == worker and each.state == "leased"]
            mine = [each for each in (*live, *part.questions(worker)) if not each.over]
            assert len(tokens) == len(said[3]) == len(mine), "it is told another time what it has, and that is not true"
            return True
        if serial < last:  # late, and nobody waits for its answer
            return False
        if serial > last + 1:  # what came in between is lost, and was no more than half of what it wanted to say
            part.give_up(worker, now)
            return False
        part.serials[worker] = serial
        _, added, refused, leases, outlook, turns = said
        part.answers = iter(turns)
        new = sum(part.apply(worker, effect, now) for effect in call.line.sent[part.number, serial])
        assert added == new, f"{added} are new, not {new}"
        assert not refused
        part.lend(worker, [self.lent(*each) for each in leases], call.arguments[-2], now)
        self.compare(part, outlook, now)
        return True

    def lent(
        self, token: bytes, kind: bytes, host: bytes, data: bytes, address: bytes, tries: int, paced: int, until: bytes
    ) -> Lent:
        """Read what a worker is told of a lease."""
        record = self.model.records[number_of(decode(data))] if int(kind) == PAGE else None
        where = host.decode(), record, address.decode()
        return Lent(int(token), int(kind), *where, int(tries), bool(paced), float(until))

    def compare(self, part: Part, outlook: Any, now: float) -> None:
        """What a partition tells of itself is true."""
        view = Partition("", part.number)
        view.update(*outlook)
        said, true = told(view.segments), trimmed(part.counts())
        assert said == true, f"it tells {said}, and has {true}"
        assert view.arrived == part.arrived
        assert set(view.expired) == part.expired
        due = part.due_at(now)
        assert due == float("inf") or (view.due is not None and view.due <= max(due, now)), f"{view.due}, not {due}"

    def did_join(self, part: Part, call: Call, said: Any, now: float) -> bool:
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

    def did_expire(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Another partition has buried it."""
        part.bury(call.arguments[0], now)
        part.refused.add(call.arguments[0])
        return True

    def did_expired_everywhere(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """All know it."""
        worker = call.arguments[0]
        assert all(worker in other.refused for other in self.model.parts[1:])
        part.expired.discard(worker)
        return True

    def did_expire_unknown(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Others know workers that are not known here."""
        part.expired |= {worker.decode() for worker in call.arguments[1:]} - set(part.heard)
        return True

    def did_whole(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """All partitions are there."""
        return True

    did_failover_state = did_last_taken = did_whole

    def did_read_outbox(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """A slice of an outbox."""
        return True

    def did_deliver(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """Records of another partition."""
        source, _, _, first, count, *_ = call.arguments
        part.bring(source, first, count)
        assert int(said[1]) == part.taken[source]
        return True

    def did_delivered(self, part: Part, call: Call, said: Any, now: float) -> bool:
        """They are there."""
        to, _, upto = call.arguments
        assert upto <= self.model.parts[to].taken[part.number]
        part.brought[to] = max(part.brought[to], upto)
        return True
