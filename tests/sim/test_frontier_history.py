"""One random history, played on a frontier and on a small model of it (C6, F4-F7).

Pushes, leases, good and bad ends, late tokens, expiries, blocks, jumps in time, commits and crashes. The model knows
for every URL which state it is in, at the last commit too; it shares no code with the frontiers. After every step the
frontier must agree with it: nothing is lent twice, nothing is lost, no host is asked too soon or too often.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lycosa.core.frontier import EXPIRIES_MAX, Policy
from lycosa.core.model import Lease, UrlRecord
from lycosa.frontiers import embedded, store
from lycosa.frontiers.memory import memory_frontier
from tests.conftest import PROVE

HOSTS = [f"http://h{n}.example:80" for n in range(4)]
LEASE_S = 20.0
READ_AHEAD = store.BUFFER_MAX
RUNS = settings(
    max_examples=2000 if PROVE else 60,
    stateful_step_count=80,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Model:
    """state: URL -> queued | sleeping | leased | done | dead; what a frontier must agree with."""

    state: dict[int, str] = field(default_factory=dict)
    due: dict[int, float] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    position: int = 0

    def count(self, state: str) -> int:
        return sum(1 for value in self.state.values() if value == state)

    def void_leases(self) -> None:
        for number, state in self.state.items():
            if state == "leased":
                self.state[number] = "queued"


class FrontierHistory(RuleBasedStateMachine):
    """Plays on `self.frontier` what hypothesis thinks of, and checks every answer against the model."""

    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.now = 1_000_000.0
        self.model = Model()
        self.committed = Model()
        self.held: dict[int, Lease] = {}
        self.stale: list[Lease] = []
        self.last_start: dict[str, float] = {}
        self.blocked: dict[str, float] = {}

    def do(self, call: Any) -> Any:
        return self.loop.run_until_complete(call)

    def open(self) -> Any:
        raise NotImplementedError

    @initialize(delay=st.sampled_from([0.0, 3.0]), places=st.integers(1, 3))
    def start(self, delay: float, places: int) -> None:
        self.policy = Policy(delay_s=delay, concurrency_per_host=places, lease_s=LEASE_S, robots=False)
        self.frontier = self.open()
        self.do(self.frontier.commit({"items": 0}))

    def record(self, number: int, later: float = 0.0) -> UrlRecord:
        host = HOSTS[number % len(HOSTS)]
        due = self.now + later if later else 0.0
        return UrlRecord(1, number, f"{host}/{number}", host, priority=number % 3, not_before=due)

    def added(self, record: UrlRecord) -> bool:
        number = record.fingerprint
        if number in self.model.state:
            return False
        self.model.state[number] = "sleeping" if record.not_before else "queued"
        self.model.due[number] = record.not_before
        self.model.attempts[number] = 0
        return True

    @rule(numbers=st.lists(st.integers(1, 200), max_size=30), later=st.sampled_from([0.0, 0.0, 5.0, 100.0]))
    def push(self, numbers: list[int], later: float) -> None:
        records = [self.record(number, later) for number in numbers]
        assert self.do(self.frontier.push(records)) == sum(map(self.added, records))

    @rule(limit=st.integers(0, 12))
    def lease(self, limit: int) -> None:
        leases = self.do(self.frontier.lease(limit, self.now))
        self.wake()
        assert len(leases) <= limit
        for lease in leases:
            self.check_lent(lease)
        if len(leases) < limit:
            ready = [
                number for number in self.model.state if self.model.state[number] == "queued" and self.free(number)
            ]
            assert not ready, f"{ready} could have been lent"

    def wake(self) -> None:
        for number, state in self.model.state.items():
            if state == "sleeping" and self.model.due[number] <= self.now:
                self.model.state[number] = "queued"

    def free(self, number: int) -> bool:
        host = HOSTS[number % len(HOSTS)]
        in_flight = sum(lease.record.host == host for lease in self.held.values())
        return in_flight < self.policy.concurrency_per_host and self.ready_at(host) <= self.now

    def ready_at(self, host: str) -> float:
        return max(self.last_start.get(host, 0.0) + self.policy.delay_s, self.blocked.get(host, 0.0))

    def check_lent(self, lease: Lease) -> None:
        record, number = lease.record, lease.record.fingerprint
        assert self.model.state[number] == "queued", f"{number} is {self.model.state[number]}"
        assert self.free(number), f"{record.host} is contacted too soon or too often"
        assert record.attempts == self.model.attempts[number]
        rivals = [n for n, s in self.model.state.items() if s == "queued" and HOSTS[n % len(HOSTS)] == record.host]
        assert record.priority == max(n % 3 for n in rivals), "a URL of higher priority was waiting"
        assert lease.token not in self.held
        self.model.state[number] = "leased"
        self.held[lease.token] = lease
        self.last_start[record.host] = self.now

    def some_lease(self, data: st.DataObject) -> Lease | None:
        return data.draw(st.sampled_from(list(self.held.values()))) if self.held else None

    @rule(data=st.data(), children=st.lists(st.integers(1, 200), max_size=5))
    def ack(self, data: st.DataObject, children: list[int]) -> None:
        lease = self.some_lease(data)
        if lease is not None:
            records = [self.record(number) for number in children]
            assert self.do(self.frontier.ack(lease, "200", records, self.now))
            self.ended(lease, "done")
            for record in records:
                self.added(record)

    @rule(data=st.data(), wait=st.one_of(st.none(), st.integers(1, 200).map(lambda quarters: quarters / 4)))
    def nack(self, data: st.DataObject, wait: float | None) -> None:
        lease = self.some_lease(data)
        if lease is not None:
            retry_at = None if wait is None else self.now + wait
            assert self.do(self.frontier.nack(lease, "503", retry_at, self.now))
            self.ended(lease, "dead" if wait is None else "sleeping")
            if retry_at is not None:
                self.model.due[lease.record.fingerprint] = retry_at
                self.model.attempts[lease.record.fingerprint] += 1

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        if lease is not None:
            assert self.do(self.frontier.release(lease, self.now))
            self.ended(lease, "queued")

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        lease = self.some_lease(data)
        if lease is not None:
            renewed = self.do(self.frontier.renew(lease, self.now))
            assert renewed.expires_at == self.now + LEASE_S
            self.held[lease.token] = renewed

    @rule(data=st.data())
    def use_a_stale_token(self, data: st.DataObject) -> None:
        if self.stale:
            lease = data.draw(st.sampled_from(self.stale))
            assert not self.do(self.frontier.ack(lease, "200", [self.record(999)], self.now))
            assert not self.do(self.frontier.nack(lease, "x", None, self.now))
            assert not self.do(self.frontier.release(lease, self.now))

    def ended(self, lease: Lease, state: str) -> None:
        del self.held[lease.token]
        self.stale.append(lease)
        self.model.state[lease.record.fingerprint] = state

    @rule()
    def expire(self) -> None:
        late = [lease for lease in self.held.values() if lease.expires_at <= self.now]
        assert self.do(self.frontier.expire(self.now)) == len(late)
        for lease in late:
            number = lease.record.fingerprint
            self.model.attempts[number] += 1
            self.ended(lease, "dead" if self.model.attempts[number] >= EXPIRIES_MAX else "queued")

    @rule(host=st.sampled_from(HOSTS), wait=st.floats(0, 40))
    def block(self, host: str, wait: float) -> None:
        self.do(self.frontier.block_host(host, self.now + wait))
        self.blocked[host] = max(self.blocked.get(host, 0.0), self.now + wait)

    @rule(seconds=st.sampled_from([0.0, 0.5, 3.0, 25.0, 500.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def commit(self) -> None:
        self.model.position += 10
        self.do(self.frontier.commit({"items": self.model.position}))
        self.committed = deepcopy(self.model)

    @rule()
    def next_ready_is_when_something_can_be_lent(self) -> None:
        self.wake()
        self.do(self.frontier.lease(0, self.now))
        at = self.do_next_ready()
        queued = [n for n, s in self.model.state.items() if s == "queued"]
        sleeping = [self.model.due[n] for n, s in self.model.state.items() if s == "sleeping"]
        hosts = {HOSTS[n % len(HOSTS)] for n in queued}
        ready = [self.ready_at(h) for h in hosts if self.in_flight(h) < self.policy.concurrency_per_host]
        if not sleeping and not ready:
            assert at is None
        else:
            assert at is not None
            assert at <= max(min([*ready, *sleeping]), self.now)

    def do_next_ready(self) -> float | None:
        return self.frontier.next_ready(self.now)  # type: ignore[no-any-return]

    def in_flight(self, host: str) -> int:
        return sum(lease.record.host == host for lease in self.held.values())

    @invariant()
    def counts_agree(self) -> None:
        if hasattr(self, "frontier"):
            stats = self.do(self.frontier.stats())
            waiting = self.model.count("queued") + self.model.count("sleeping")
            assert stats.queued + stats.delayed == waiting
            assert (stats.leased, stats.done, stats.dead) == tuple(map(self.model.count, ("leased", "done", "dead")))

    def teardown(self) -> None:
        if hasattr(self, "frontier"):
            self.do(self.frontier.close())
        self.loop.close()
        shutil.rmtree(self.folder)


class MemoryHistory(FrontierHistory):
    def open(self) -> Any:
        return memory_frontier(self.policy)


class EmbeddedHistory(FrontierHistory):
    """With a read-ahead of 4, so that most of a host is on the disk."""

    def open(self) -> Any:
        store.BUFFER_MAX = 4
        return embedded.embedded_frontier(self.folder, self.policy)

    def teardown(self) -> None:
        store.BUFFER_MAX = READ_AHEAD
        super().teardown()

    @rule()
    def crash(self) -> None:
        """The process dies: back to the last commit, all leases void."""
        self.do(self.frontier.close())
        self.frontier = self.open()
        self.model = deepcopy(self.committed)
        self.model.void_leases()
        self.stale += self.held.values()
        self.held.clear()
        assert self.do(self.frontier.positions()) == {"items": self.model.position}
        # Pauses that were not committed are forgotten; the next process is held to its own starts.
        self.last_start.clear()
        self.blocked.clear()
        self.frontier_pauses()

    def frontier_pauses(self) -> None:
        for host in HOSTS:
            memory = self.frontier.shelf.recall_host(host)
            self.blocked[host] = memory.blocked_until
            self.last_start[host] = memory.started_at


MemoryHistory.TestCase.settings = RUNS
EmbeddedHistory.TestCase.settings = RUNS
TestMemoryFrontier = MemoryHistory.TestCase
TestEmbeddedFrontier = EmbeddedHistory.TestCase
