"""Termination detection and fencing of a shared crawl (C3, C6, C7) in virtual time: 2,000 histories of five workers.

Calls and answers are lost, late or repeated. Some workers pause, often for so long that they expire. Others are killed,
and may or may not come back. Partitions are unreachable for a while. Workers follow the protocol of the frontier, with
the real `TerminationDetector`. Each history checks that no worker finishes while anything is left, that each URL is
committed once and its item is in the files once, that late calls of expired workers change nothing, and that all
workers finish soon after the last commit. Deliberate defects have to be found.
"""

from __future__ import annotations

import copy
import heapq
import random
import re
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from lycosa.frontier.core.finish import PartitionStatus, RoundResult, TerminationDetector
from tests.conftest import PROVE
from tests.frontier.sim.barrier_model import UNKNOWN, Partition

HISTORIES = 2000 if PROVE else 60
MUTANT_HISTORIES_MAX = 400
FIRST_SEEDS = {} if PROVE else {"continues after a lost reply": 95, "may expire the caller": 122}
"""Seeds to start with for defects that show late: the earlier histories take seconds, and do not show them."""

WORKERS = 5
CALL_S = 1.0
"""How long a worker waits for an answer. Without one, it does not know whether its call was done, so it gives up its
names, and joins again under new ones."""

BEAT_S = 0.5
POLL_S = 0.1
DISTURBED_S = 20.0
PAUSE_MAX_S = 6.0
DELIVERY_MAX_S = 5.0
FINISH_MAX_S = 5.0
"""Time from the last commit, or the last disturbance, until all workers have finished."""

Steps = Generator[Any, Any, Any]


class GaveUpError(Exception):
    """The worker has expired, or cannot know whether its call was done."""


@dataclass(eq=False)
class Worker:
    """A slot, whose files survive a kill. `process` counts its processes; events of an earlier process are void."""

    slot: str
    number: int
    files: dict[int, list[int]]
    names: dict[int, str] = field(default_factory=dict)
    calls: int = 0
    process: int = 0
    steps: Steps | None = None
    expected_answer: int = 0
    paused_until: float = 0.0
    finished_at: float = -1.0


class History:
    """One crawl from its seed. `mutant` names a deliberate defect."""

    def __init__(self, seed: int, mutant: str = "") -> None:
        self.seed, self.mutant = seed, mutant
        self.rng = rng = random.Random(seed)
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        count = rng.randint(2, 4)
        self.graph = graph_of(rng, rng.randint(10, 40))
        self.partitions = [Partition(each, count, self.graph, mutant) for each in range(count)]
        self.unreachable_until = [0.0] * count
        self.workers = [Worker(f"w{n}", n, {p: [] for p in range(count)}) for n in range(WORKERS)]
        self.disturbance = rng.choice((0.0, 0.01, 0.03))
        self.fetch_s = rng.choice((0.002, 0.3))
        self.slow = rng.randrange(WORKERS)
        self.disturbed_at = 0.0

    # Events.

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + seconds, self.number, do))

    def run(self) -> History:
        for worker in self.workers:
            self.after(self.rng.uniform(0, 2), lambda worker=worker: self.start(worker))
        for _ in range(self.rng.randint(0, 12)):
            self.after(self.rng.uniform(0, DISTURBED_S), self.disturb)
        while self.events:
            self.now, _, do = heapq.heappop(self.events)
            do()
            assert self.now < 10 * DISTURBED_S, "a worker does not finish"
        self.check_outcome()
        return self

    def disturb(self) -> None:
        worker = self.rng.choice(self.workers)
        if worker.finished_at >= 0:
            return
        self.disturbed_at = self.now
        kind = self.rng.choice(("kill", "kill", "pause", "pause", "unreachable"))
        seconds = self.rng.uniform(0.1, PAUSE_MAX_S)
        if kind == "kill" and worker.steps:
            worker.steps, worker.process = None, worker.process + 1
            if worker.number == 0 or self.rng.random() < 0.8:
                self.after(seconds, lambda: self.start(worker))
        elif kind == "pause":
            worker.paused_until = self.now + seconds
        elif kind == "unreachable":
            self.unreachable_until[self.rng.randrange(len(self.partitions))] = self.now + seconds

    def start(self, worker: Worker) -> None:
        worker.steps, worker.expected_answer, worker.paused_until = self.crawl(worker), 0, 0.0
        self.beat(worker, worker.process)
        self.resume(worker, worker.process, 0, None)

    def resume(self, worker: Worker, process: int, call: int, answer: Any) -> None:
        """Give the worker the answer it waits for, and do its next call."""
        if process != worker.process or call != worker.expected_answer or worker.steps is None:
            return
        if self.now < worker.paused_until:
            self.after(worker.paused_until - self.now, lambda: self.resume(worker, process, call, answer))
            return
        worker.calls += 1
        worker.expected_answer = number = worker.calls
        try:
            if answer in (UNKNOWN, None) and call:
                request = worker.steps.throw(GaveUpError)
            else:
                request = worker.steps.send(answer if call else None)
        except StopIteration:
            worker.steps, worker.expected_answer = None, 0
            return
        if isinstance(request, float):
            self.after(request, lambda: self.resume(worker, process, number, True))
        else:
            self.send(worker, number, *request)

    def send(self, worker: Worker, number: int, partition: int, verb: str, *arguments: Any) -> None:
        name, process = worker.names.get(partition, ""), worker.process

        def deliver() -> None:
            if self.now < self.unreachable_until[partition]:
                return
            answer = self.call(partition, name, number, verb, *arguments)
            for seconds in self.delivery_times(worker):
                self.after(seconds, lambda: self.resume(worker, process, number, answer))

        for seconds in self.delivery_times(worker):
            self.after(seconds, deliver)
        self.after(CALL_S, lambda: self.resume(worker, process, number, None))

    def delivery_times(self, worker: Worker) -> Iterator[float]:
        """Yield the delivery time of each copy of a message. One worker has a slow connection."""
        rng = self.rng
        rate = self.disturbance if self.now < DISTURBED_S else 0.0
        drawn = rng.random()
        if drawn < 3 * rate:
            self.disturbed_at = self.now
        if drawn >= rate:
            yield rng.uniform(0.001, 0.15 if worker.number == self.slow else 0.01)
        if rate < drawn < 2 * rate:
            yield rng.uniform(0.02, DELIVERY_MAX_S)
        if drawn < rate / 2:
            yield rng.uniform(0.5, DELIVERY_MAX_S)

    def call(self, partition: int, name: str, number: int, verb: str, *arguments: Any) -> Any:
        """Call a partition, and check that a call with an unknown name changes nothing."""
        model = self.partitions[partition]
        if verb == "open" or name in model.last_heard or self.mutant:
            return model.call(self.now, name, number, verb, *arguments)
        before = copy.deepcopy(model, {id(self.graph): self.graph})  # the links never change
        answer = model.call(self.now, name, number, verb, *arguments)
        assert model == before, f"a late {verb} of {name} changed something"
        return answer

    def beat(self, worker: Worker, process: int) -> None:
        """Send heartbeats, which come from a separate thread and stop only with the process."""
        if process != worker.process or worker.finished_at >= 0:
            return
        if self.now >= worker.paused_until:
            for partition, name in worker.names.items():
                if self.now >= self.unreachable_until[partition]:
                    self.call(partition, name, 0, "beat")
        self.after(BEAT_S, lambda: self.beat(worker, process))

    # The workers.

    def crawl(self, worker: Worker) -> Steps:
        """Yield calls, or seconds to wait, until the crawl is finished."""
        while True:
            try:
                yield from self.join(worker)
                yield from self.work(worker)
            except GaveUpError:
                yield POLL_S
                continue
            self.finish(worker)
            return

    def join(self, worker: Worker) -> Steps:
        """Join all partitions under new names, and truncate the files to the positions committed under the old ones."""
        worker.names = {}
        for partition in range(len(self.partitions)):
            name, position = yield partition, "open", worker.slot
            worker.names[partition] = name
            del worker.files[partition][position:]
        yield 0, "push", 0

    def work(self, worker: Worker) -> Steps:
        rng, count = self.rng, len(self.partitions)
        detector = TerminationDetector(count)
        while True:
            worked = False
            for partition in rng.sample(range(count), count):
                worked |= yield from self.visit(worker, partition)
            if not worked:
                if (yield from self.check_finished(detector)):
                    return
                yield self.rng.uniform(0.0, POLL_S)

    def visit(self, worker: Worker, partition: int) -> Steps:
        """Lease, fetch and ack; commit at random times, at the latest at the end."""
        try:
            leases, boxes = yield partition, "lease", self.rng.randint(1, 4)
        except GaveUpError:
            if self.mutant != "continues after a lost reply":
                raise
            return False
        file = worker.files[partition]
        for token, url in leases:
            yield self.rng.uniform(0.0, self.fetch_s)
            if url % 7 == 3 and url not in self.partitions[partition].failed:
                yield partition, "nack", token
                continue
            file.append(url)
            acked = yield partition, "ack", token
            assert acked or self.mutant
            if self.rng.random() < 0.2:
                yield partition, "commit", len(file)
        if leases:
            yield self.rng.uniform(0.0, self.fetch_s)
            yield partition, "commit", len(file)
        for to in boxes:
            yield from self.forward(partition, to)
        return bool(leases or boxes)

    def forward(self, source: int, to: int) -> Steps:
        entries = yield source, "outbox", to
        if entries and self.mutant == "trims first":
            yield source, "trim", to, entries[-1][0]
        if entries:
            upto = yield to, "forward", source, entries
            yield source, "trim", to, upto

    def check_finished(self, detector: TerminationDetector) -> Steps:
        """Read all partitions, in any order, as often as the detector wants. Return whether the crawl is finished."""
        count = len(self.partitions)
        result = RoundResult.AGAIN
        while result is RoundResult.AGAIN:
            statuses = {}
            for partition in self.rng.sample(range(count), count):
                live, arrived = yield partition, "read"
                statuses[partition] = PartitionStatus(live, 0 if self.mutant == "arrived not compared" else arrived)
            result = detector.round(statuses)
            if self.mutant == "one round" and result is RoundResult.AGAIN:
                return True
        return result is RoundResult.FINISHED

    def finish(self, worker: Worker) -> None:
        worker.finished_at = self.now
        assert all(each.is_finished for each in self.partitions), f"{worker.slot} finishes too early, at {self.now:.3f}"

    # Checks.

    def check_outcome(self) -> None:
        urls = Counter(self.graph.keys())
        assert sum((each.committed for each in self.partitions), Counter()) == urls, "not each URL was committed once"
        assert all(each.is_finished for each in self.partitions), "URLs are left"
        kept: Counter[int] = Counter()
        for worker in self.workers:
            for partition, file in worker.files.items():
                kept.update(file[: self.partitions[partition].positions[worker.slot]])
        assert kept == urls, f"items lost {urls - kept}, written twice {kept - urls}"
        for source in self.partitions:
            for to in self.partitions:
                assert to.taken[source.number] == source.last[to.number]
        for each in self.partitions:
            pushes = each.arrived - each.taken.total()
            assert pushes >= 0 if each.number == 0 else pushes == 0, "an entry was counted twice"
        assert self.workers[0].finished_at >= 0
        last = max(*(each.committed_at for each in self.partitions), self.disturbed_at + PAUSE_MAX_S + CALL_S)
        for worker in self.workers:
            assert worker.finished_at <= last + FINISH_MAX_S, f"{worker.slot} finished late"
            assert worker.finished_at >= 0 or worker.steps is None


def graph_of(rng: random.Random, count: int) -> dict[int, list[int]]:
    """Return pages with links, all reachable from page 0. The last half, or all, form a chain."""
    chain = rng.choice((0, count // 2))
    graph: dict[int, list[int]] = {url: [] for url in range(count)}
    for url in range(1, count):
        graph[url - 1 if url > chain else rng.randrange(url)].append(url)
        graph[url].append(rng.randrange(url))
    return graph


@pytest.mark.parametrize("part", range(10))
def test_all_workers_finish_and_none_too_early(part):
    for seed in range(part, HISTORIES, 10):
        print(f"seed {seed}")
        History(seed).run()


@pytest.mark.parametrize(
    ("mutant", "error"),
    [
        ("one round", "finishes too early"),
        ("arrived not compared", "finishes too early"),
        ("not counted: uncommitted", "finishes too early"),
        ("not counted: outbox", "finishes too early"),
        ("not counted: delayed", "finishes too early"),
        ("trims first", "skipped|not each URL|finish"),
        ("numbers not compared", "counted twice|taken"),
        ("no fence", "items lost|written twice"),
        ("two workers of a slot", "items lost|written twice"),
        ("repeats are applied", "items lost|written twice"),
        ("may expire the caller", "items lost|written twice"),
        ("continues after a lost reply", "does not finish|finished late"),
    ],
)
def test_deliberate_defects_are_found(mutant, error):
    first = FIRST_SEEDS.get(mutant, 0)
    for seed in range(first, first + MUTANT_HISTORIES_MAX):
        try:
            History(seed, mutant).run()
        except AssertionError as found:
            if re.search(error, str(found)):
                return
    pytest.fail(f"{mutant}: not found in {MUTANT_HISTORIES_MAX} histories")
