"""Random histories of five workers on one crawl in a real Redis, compared with a model of it (C3, C6, F4-F7).

Time is virtual. Calls and responses are lost, late and repeated; workers are killed, leave, or pause until they
expire; partitions are unreachable; the server's clock jumps. Workers do what an engine does, with the real frontier.
`model` gets each call that a partition executes and checks the response: which records were leased, in which order,
how soon, how many were new, and all counts. So every step agrees, also those within a commit, a delivery or an
expiry. No worker finishes too early, all of them finish in the end, and a commit that was confirmed lasts.
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
from tests.frontier.sim.redis.connection import Call, RawConnection, Worker
from tests.frontier.sim.redis.host_schedule import PAGE, Limits
from tests.frontier.sim.redis.model import Crawl, LeaseGrant, Part, nonzero_counts, unknown_links, without_zeros
from tests.frontier.sim.redis.work import SEGMENTS, Work, number_of
from tests.virtual import VirtualLoop

WORKERS = 5
START_S = starts_at(SEGMENTS[-1]) - 6
"""The last segment starts during the crawl."""

DISTURBED_S = 12.0
PAUSE_MAX_S = 5.0
SHARING_PAUSE_S = 0.02
"""A worker that has its part of the slots of all ready hosts asks again after this time."""
LATE_MAX_S = 4.0
DISTURB_AFTER = {
    "commit": 0.15, "join": 0.01, "leave": 0.1, "expire": 0.1, "expired_everywhere": 0.1, "deliver": 0.03,
    "delivered": 0.03,
}  # fmt: skip
"""The probability that a worker is killed or paused after such a call."""

JUMPS = [-15.0, -1.5, 0.7, 1.5, 40.0]
END_MAX_S = DISTURBED_S + 150.0


class History(Work):
    """One history. Workers' clocks show `now`, that of the server `clock_offset` more."""

    def __init__(self, url: str, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        self.direct = RawConnection(url)
        self.name = f"history-{seed}-{token_hex(4)}"
        self.loop = VirtualLoop()
        self.clock = SimpleNamespace(
            now=lambda: self.now + self.clock_offset
        )  # the offset of the server's clock is known to the workers
        self.partitions = rng.choice([1, 3, 3])
        self.policy = policy = self.any_policy()
        punctual, ttl = rng.random() < 0.5, policy.robots_ttl_s if policy.robots else inf
        ip = policy.concurrency_per_ip, policy.delay_per_ip_s
        self.model = Crawl(self.partitions, Limits(policy.concurrency_per_host, policy.delay_s, punctual, ttl, *ip))
        self.claim_rate = rng.choice([0.0, 0.3, 0.7])
        self.loss_rate = rng.choice([0.0, 0.02, 0.05])
        self.clock_offset = 0.0
        self.unreachable_until = [0.0] * self.partitions
        self.workers = [Worker(f"w{number}", number) for number in range(WORKERS)]
        self.numbers: dict[str, int] = {}
        self.failure: asyncio.Future[None] = self.loop.create_future()

    def any_policy(self) -> Policy:
        """Return random limits. Those per address need a single partition."""
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

    # -------------------------------------------------------------------------------------------- time and disturbances

    @property
    def now(self) -> float:
        """The time shown by the workers' clocks."""
        return START_S + self.loop.time()

    @property
    def is_disturbed(self) -> bool:
        """Whether disturbances still happen."""
        return self.loop.time() < DISTURBED_S

    def is_unreachable(self, partition: int) -> bool:
        """Whether calls to this partition are lost."""
        return self.loop.time() < self.unreachable_until[partition]

    def delivery_times(self, worker: Worker) -> Iterator[float]:
        """Yield the delivery time of each copy of a message. One worker has a slow connection."""
        loss_rate = self.loss_rate if self.is_disturbed else 0.0
        drawn = self.rng.random()
        if drawn >= loss_rate:
            yield self.rng.uniform(0.001, 0.1 if worker.number == 1 else 0.01)
        if loss_rate < drawn < 2 * loss_rate:
            yield self.rng.uniform(0.02, LATE_MAX_S)
        if drawn < loss_rate / 2:
            yield self.rng.uniform(0.5, LATE_MAX_S)

    async def make_disturbances(self) -> None:
        """Kill and pause workers, make partitions unreachable, and set the clock."""
        for _ in range(self.rng.randrange(12)):
            await asyncio.sleep(self.rng.uniform(0, DISTURBED_S / 6))
            if not self.is_disturbed:
                return
            kind = self.rng.choice(["worker", "worker", "outage", "jump"])
            if kind == "worker":
                self.disturb(self.rng.choice(self.workers))
            elif kind == "outage":
                outage_s = self.rng.uniform(0.1, PAUSE_MAX_S)
                self.unreachable_until[self.rng.randrange(self.partitions)] = self.loop.time() + outage_s
            else:
                self.clock_offset += self.rng.choice(JUMPS)

    def disturb(self, worker: Worker) -> None:
        """Kill or pause a worker."""
        seconds = self.rng.uniform(0.1, PAUSE_MAX_S)
        if self.rng.random() < 0.5:
            worker.paused_until = self.loop.time() + seconds
        elif worker.task and not worker.finished:
            worker.task.cancel()
            self.loop.call_soon(worker.task.cancel)  # after the first cancellation, a commit goes on
            if worker.number == 0 or self.rng.random() < 0.9:
                self.loop.call_later(seconds, self.start, worker)

    def maybe_disturb(self, call: Call) -> None:
        """Disturb a worker between two calls of an operation that takes several."""
        probability = DISTURB_AFTER.get(call.name, 0.0)
        if call.name == "exchange":
            verbs = {effect.verb for effect in call.connection.sent.get((call.partition, call.arguments[0]), [])}
            probability = DISTURB_AFTER["commit"] if verbs & {"prepare", "commit"} else probability
        if self.is_disturbed and self.rng.random() < probability:
            self.loop.call_soon(self.disturb, call.connection.worker)

    def run(self) -> None:
        try:
            self.loop.run_until_complete(self.run_until_finished())
        finally:
            self.loop.run_until_complete(self.stop())
            self.loop.close()
            self.direct.close()

    async def stop(self) -> None:
        """Cancel all tasks."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def run_until_finished(self) -> None:
        """Run until all workers have finished."""
        for worker in self.workers:
            self.loop.call_later(self.rng.uniform(0, 2), self.start, worker)
        self.loop.call_later(END_MAX_S, self.check, self.fail_late)
        disturbances = asyncio.create_task(self.make_disturbances())
        end = asyncio.create_task(self.end())
        await asyncio.wait([self.failure, end], return_when=asyncio.FIRST_COMPLETED)
        for done in (self.failure, end):
            if done.done():
                done.result()
        await disturbances

    async def end(self) -> None:
        """Wait until all workers have finished, and check the result."""
        while self.is_working:  # noqa: ASYNC110  time is virtual
            await asyncio.sleep(1.0)
        assert self.model.is_over
        for record in self.model.records.values():
            if record.state == "done":
                assert not unknown_links(record.links, self.model.parts), f"what {record} links to is lost"

    @property
    def is_working(self) -> bool:
        """Whether a process runs. The first slot is always restarted, until it finishes."""
        return not self.workers[0].finished or any(each.task and not each.task.done() for each in self.workers)

    def fail_late(self) -> None:
        """Raise an error: the history takes too long."""
        live = [part.live for part in self.model.parts]
        raise AssertionError(f"not finished: {[each.slot for each in self.workers if not each.finished]} {live}"[:2000])

    def check(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function. An error that it raises makes the history fail."""
        try:
            return function(*arguments)
        except Exception as error:
            if not self.failure.done():
                self.failure.set_exception(error)
            raise

    # ------------------------------------------------------------------------------------------ execution by the server

    def execute(self, call: Call) -> Any:
        """Execute a call in Redis and in the model, and compare."""
        return self.check(self._execute, call)

    def _execute(self, call: Call) -> Any:
        now = self.now + self.clock_offset
        command = list(call.command)
        command[5] = repr(now)
        response = self.direct.execute(*command)
        part = self.model.parts[call.partition]
        part.latest_now = max(part.latest_now, now)
        known = getattr(self, f"check_{call.name}")(part, call, response, now)
        assert (response[0] == b"ok") == known, f"{call.name} of {call.worker}: {response}"
        self.maybe_disturb(call)
        return response

    def check_exchange(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """The worker sends verbs, and asks for leases."""
        serial, worker = call.arguments[0], call.worker
        if not part.touch(now, worker):
            return False
        last = part.serials.get(worker, 0)
        if serial == last:  # the response was lost
            tokens = {int(each[0]) for each in response[3]}
            live = [each for each in part.live.values() if each.worker == worker and each.state == "leased"]
            expected = [each for each in (*live, *part.questions(worker)) if not each.ended]
            assert len(tokens) == len(response[3]) == len(expected), "the repeated response differs from its leases"
            return True
        if serial < last:  # late; no caller waits for its response
            return False
        if serial > last + 1:  # the calls in between are lost
            part.give_up(worker, now)
            return False
        part.serials[worker] = serial
        _, added, refused, leases, summary, answers, _ = response
        part.answers = iter(answers)
        new = sum(part.apply(worker, effect, now) for effect in call.connection.sent[part.number, serial])
        assert added == new, f"{added} are new, not {new}"
        assert not refused
        part.check_leases(worker, [self.read_lease(*each) for each in leases], call.arguments[-2], now)
        self.compare(part, summary, now, SHARING_PAUSE_S if part.starved_others(worker, now) else 0.0)
        return True

    def read_lease(
        self,
        token: bytes,
        kind: bytes,
        host: bytes,
        data: bytes,
        address: bytes,
        attempts: int,
        is_paced: int,
        known_until: bytes,
    ) -> LeaseGrant:
        """Convert a lease of a response."""
        record = self.model.records[number_of(decode(data))] if int(kind) == PAGE else None
        target = host.decode(), record, address.decode()
        return LeaseGrant(int(token), int(kind), *target, int(attempts), bool(is_paced), float(known_until))

    def compare(self, part: Part, summary: Any, now: float, pause_s: float = 0.0) -> None:
        """Compare the summary of a partition with the model. It may name a time up to `pause_s` later."""
        view = Partition("", part.number)
        view.update(*summary)
        reported, expected = nonzero_counts(view.segments), without_zeros(part.counts())
        assert reported == expected, f"it reports {reported}, not {expected}"
        assert view.arrived == part.arrived
        assert set(view.expired) == part.expired
        due = part.due_at(now)
        assert due == inf or (view.due is not None and view.due <= max(due, now) + pause_s), f"{view.due}, not {due}"

    def check_join(self, part: Part, call: Call, response: Any, now: float) -> bool:
        joined = response[1].decode() if response[0] == b"ok" else ""
        slot, _, _ = call.arguments[0].partition("#")
        return part.open(now, slot, call.worker, joined)

    def check_beat(self, part: Part, call: Call, response: Any, now: float) -> bool:
        return part.touch(now, call.worker)

    def check_leave(self, part: Part, call: Call, response: Any, now: float) -> bool:
        if call.worker in part.last_call:
            part.expire_here(call.worker, now)
        return True

    def check_expire(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """Another partition has expired the worker."""
        part.expire(call.arguments[0], now)
        part.refused.add(call.arguments[0])
        return True

    def check_expired_everywhere(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """All partitions know of the expiry."""
        worker = call.arguments[0]
        assert all(worker in other.refused for other in self.model.parts[1:])
        part.expired.discard(worker)
        return True

    def check_expire_unknown(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """Other partitions know workers that this one does not know."""
        part.expired |= {worker.decode() for worker in call.arguments[1:]} - set(part.last_call)
        return True

    def check_whole(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """All partitions are complete."""
        return True

    check_failover_state = check_last_taken = check_whole

    def check_read_outbox(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """One slice of an outbox."""
        return True

    def check_deliver(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """Records from another partition."""
        source, _, _, first, count, *_ = call.arguments
        part.receive(source, first, count)
        assert int(response[1]) == part.received[source]
        return True

    def check_delivered(self, part: Part, call: Call, response: Any, now: float) -> bool:
        """The other partition has confirmed the records."""
        target, _, last = call.arguments
        assert last <= self.model.parts[target].received[part.number]
        part.delivered[target] = max(part.delivered[target], last)
        return True
