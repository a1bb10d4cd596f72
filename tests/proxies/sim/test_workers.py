"""A hundred workers share a pool, and some of their processes are killed: no double lease, exact counts."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyLease, ProxyPool, ProxyView, TargetView
from lycosa.proxies.redis.pool import redis_pool
from tests.conftest import PROVE, ROOT
from tests.proxies.sim.proxy_worker import RECORD, Event, Job, read_events

ACQUIRES = 1_000_000 if PROVE else 100_000
"""The number of leases on Redis. In memory, where no process can be killed, it is a tenth."""

WORKERS, PROCESSES, KILLED = 100, 5, 2
PROXIES, TARGETS = 400, 5
LEAKED = 0.05
LEASE_S = 2.0
RECOVERY_MAX_S = 1.0
"""From the deadline of an unreleased lease until its proxy can be leased again."""

TICK_S = 0.001
"""Tolerance for the difference between the clocks of Redis and Python."""

END_MAX_S = 1800.0 if PROVE else 300.0


def proxies() -> list[Proxy]:
    return [Proxy("http", f"10.0.{n // 250}.{n % 250 + 1}", 8080) for n in range(PROXIES)]


# --------------------------------------------------------------------------------------------------------- one process


class LeaseRecorder:
    """Records leases and releases as their workers report them."""

    def __init__(self) -> None:
        self.open: dict[tuple[str, str], ProxyLease] = {}
        self.uses: Counter[tuple[str, str]] = Counter()
        self.leaked = self.double_leases = 0

    def lease(self, lease: ProxyLease) -> None:
        """Record a lease. It is a double one if another worker has the proxy and will release it in time."""
        key, now = (lease.target, lease.proxy.key), time.time()
        self.uses[key] += 1
        if now >= lease.deadline:  # the grant arrived late: others may lease the proxy already
            return
        if key in self.open:
            self.double_leases += now < self.open[key].deadline - TICK_S
        self.open[key] = lease

    def start_release(self, lease: ProxyLease) -> None:
        """Others may lease the proxy from now on; if the lease has expired, another worker may have it already."""
        key = lease.target, lease.proxy.key
        if key in self.open and self.open[key].token == lease.token:
            del self.open[key]

    def finish_release(self, lease: ProxyLease, uses: int) -> None:
        self.uses[lease.target, lease.proxy.key] += max(0, uses - 1)


async def work(pool: ProxyPool, recorder: LeaseRecorder, acquires: int, rng: random.Random) -> None:
    for _ in range(acquires):
        (lease,) = await pool.acquire(f"site{rng.randrange(TARGETS)}.example", wait_s=60.0)
        recorder.lease(lease)
        await asyncio.sleep(0)
        if rng.random() < LEAKED:
            recorder.leaked += 1
            continue
        uses = rng.choice([0, 1, 1, 1, 3])
        recorder.start_release(lease)
        if await pool.release(lease, [Outcome()] * uses):
            recorder.finish_release(lease, uses)
        else:
            assert time.time() > lease.deadline


def test_a_hundred_workers_of_one_process_get_no_double_lease() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)

    async def main() -> tuple[LeaseRecorder, list[TargetView], list[tuple[str, ProxyView]]]:
        pool = LocalPool(lambda _: TargetPolicy(lease_s=LEASE_S, members=PROXIES))
        await pool.add(proxies())
        recorder = LeaseRecorder()
        each = ACQUIRES // 10 // WORKERS
        await asyncio.gather(*(work(pool, recorder, each, random.Random(seed + n)) for n in range(WORKERS)))
        return recorder, *(await final_state(pool))

    recorder, targets, views = asyncio.run(main())
    assert recorder.double_leases == 0
    assert {(target, view.proxy.key): view.uses for target, view in views if view.uses} == dict(recorder.uses)
    assert sum(view.granted for view in targets) == ACQUIRES // 10 + PROXIES * TARGETS
    assert sum(view.leaked for view in targets) >= recorder.leaked


async def final_state(pool: ProxyPool) -> tuple[list[TargetView], list[tuple[str, ProxyView]]]:
    """Return the state of a pool after all leases have ended, and assert that all proxies can be leased at once."""
    await asyncio.sleep(LEASE_S + RECOVERY_MAX_S)
    names = [view.target for view in await pool.targets()]
    views = [(name, view) for name in names for view in await pool.proxies(name)]
    for name in names:
        lease = await pool.acquire(name, PROXIES, lease_s=END_MAX_S)
        assert len({each.proxy.key for each in lease}) == PROXIES, "every leaked lease has expired in time"
    targets = await pool.targets()
    assert sum(view.leases for view in targets) == PROXIES * TARGETS
    return targets, views


# ---------------------------------------------------------------------------------------------------- several processes


@dataclass
class RecordedHistory:
    """The events of all processes."""

    uses: Counter[tuple[int, int]] = field(default_factory=Counter)
    uncertain: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Uses of releases that a kill left unanswered."""

    spans: defaultdict[tuple[int, int], list[tuple[float, float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """The leases of each target and proxy: begin, end, and token."""

    granted: int = 0
    refused: int = 0
    unanswered: int = 0
    leaked: int = 0

    def read(self, events: Iterable[Event]) -> None:
        """Read the events of one process."""
        grants: dict[tuple[int, int], Event] = {}
        sent: dict[tuple[int, int], Event] = {}
        for event in events:
            lease = event.target, event.token
            if event.kind == b"G":
                grants[lease] = event
            elif event.kind == b"S":
                sent[lease] = event
            else:
                self._add_span(grants.pop(lease), sent.pop(lease).at)
                self._add_release(event)
        for lease, event in sent.items():
            self.unanswered += 1
            self.uncertain[event.target, event.key] += max(0, int(event.number) - 1)
            self._add_span(grants.pop(lease), event.at)
        self.leaked += len(grants)
        for event in grants.values():
            self._add_span(event, event.number)

    def _add_release(self, event: Event) -> None:
        if event.kind == b"R":
            self.uses[event.target, event.key] += max(0, int(event.number) - 1)
        else:
            self.refused += 1

    def _add_span(self, grant: Event, until: float) -> None:
        """Add the time from the grant to the release or the deadline. On a busy machine the deadline may precede the
        grant; then no worker had the lease.
        """
        self.granted += 1
        self.uses[grant.target, grant.key] += 1
        if grant.at >= grant.number:
            return
        self.spans[grant.target, grant.key].append((grant.at, min(until, grant.number), grant.token))

    def double_leases(self) -> list[tuple[float, float, int]]:
        """Return the leases that overlap, or whose tokens do not ascend."""
        found = []
        for spans in self.spans.values():
            spans.sort()
            for before, after in pairwise(spans):
                if after[0] < before[1] - TICK_S or after[2] <= before[2]:
                    found.append(after)
        return found


class ProcessGroup:
    """Runs the processes, and kills and replaces two of them."""

    def __init__(self, job: Job, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.journals: list[Path] = []

    def run(self) -> None:
        each = self.job.acquires // PROCESSES
        with ExitStack() as stack:
            running = [self.start(stack, each) for _ in range(PROCESSES)]
            for number in range(KILLED):
                done = self.kill(*running.pop(0), each // (number + 2))
                running.append(self.start(stack, each - done))
            for process, _ in running:
                assert process.wait(END_MAX_S) == 0

    def start(self, stack: ExitStack, acquires: int) -> tuple[subprocess.Popen[bytes], Path]:
        journal = self.folder / str(len(self.journals))
        journal.touch()
        self.journals.append(journal)
        job = replace(self.job, journal=str(journal), seed=self.job.seed + len(self.journals), acquires=acquires)
        process = subprocess.Popen(job.command(), cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
        stack.callback(process.wait)
        stack.callback(process.kill)
        return process, journal

    def kill(self, process: subprocess.Popen[bytes], journal: Path, acquires: int) -> int:
        """Kill a process after this many leases. Return the number of its leases."""
        deadline = time.monotonic() + END_MAX_S
        while journal.stat().st_size < 2 * acquires * RECORD.size and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return sum(event.kind == b"G" for event in read_events(journal))


@pytest.mark.redis
def test_killed_processes_cause_no_double_lease_and_no_wrong_count(redis: Any, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    workers = WORKERS // PROCESSES
    job = Job(redis.url, token_hex(4), "", seed, ACQUIRES, workers, TARGETS, LEASE_S, LEAKED)
    processes = ProcessGroup(job, tmp_path)

    async def before() -> None:
        pool = await redis_pool(job.url, job.name, print, job.policy)
        assert await pool.add(proxies()) == PROXIES
        await pool.close()

    async def after() -> tuple[list[TargetView], list[tuple[str, ProxyView]]]:
        pool = await redis_pool(job.url, job.name, print, job.policy)
        try:
            return await final_state(pool)
        finally:
            await pool.close()

    asyncio.run(before())
    started_at = time.monotonic()
    processes.run()
    took_s = time.monotonic() - started_at
    targets, views = asyncio.run(after())
    history = RecordedHistory()
    for journal in processes.journals:
        history.read(read_events(journal))
    print(f"{history.granted / took_s:,.0f} leases a second; {history.leaked:,} leaked, {history.refused:,} were late")
    assert_consistent(history, targets, views, KILLED * workers)


def assert_consistent(
    history: RecordedHistory, targets: Sequence[TargetView], views: Iterable[tuple[str, ProxyView]], killed: int
) -> None:
    """Compare the events with the state of the pool. Each of `killed` workers may have one unrecorded lease."""
    assert history.double_leases() == []
    assert history.granted >= ACQUIRES
    unrecorded = sum(view.granted for view in targets) - PROXIES * TARGETS - history.granted
    assert 0 <= unrecorded <= killed
    extra = {}
    for target, view in views:
        pair = int(target.partition(".")[0]), int(view.proxy.key, 16)
        if view.uses != history.uses[pair]:
            extra[pair] = view.uses - history.uses[pair]
            assert 0 < extra[pair] <= history.uncertain[pair] + unrecorded, (
                "the pool counted a use that was not made, or lost one"
            )
    assert unrecorded <= sum(extra.values()) <= unrecorded + history.uncertain.total(), "counts are exact"
    assert history.refused <= sum(view.stale for view in targets) <= history.refused + history.unanswered
    assert (
        history.leaked
        <= sum(view.leaked for view in targets)
        <= history.leaked + unrecorded + history.refused + history.unanswered
    )
