"""A hundred workers share a pool, and some are killed: no double lease, exact counts."""

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
"""Through Redis; a tenth of it in memory, where no process can be killed."""

WORKERS, PROCESSES, KILLED = 100, 5, 2
PROXIES, TARGETS = 400, 5
LEAKED = 0.05
LEASE_S = 2.0
BACK_WITHIN_S = 1.0
"""After the deadline of a lease that was not released."""

TICK_S = 0.001
"""The clocks of Redis and of Python agree so well."""

END_MAX_S = 1800.0 if PROVE else 300.0


def proxies() -> list[Proxy]:
    return [Proxy("http", f"10.0.{n // 250}.{n % 250 + 1}", 8080) for n in range(PROXIES)]


# --------------------------------------------------------------------------------------------------------- one process


class Bookkeeper:
    """Tracks leases as their holders report them."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], ProxyLease] = {}
        self.uses: Counter[tuple[str, str]] = Counter()
        self.leaked = self.twice = 0

    def lease(self, lease: ProxyLease) -> None:
        """Note a lease. A proxy that another worker still has, and will return in time, is leased twice."""
        key, now = (lease.target, lease.proxy.key), time.time()
        self.uses[key] += 1
        if now >= lease.deadline:  # the worker got it too late, and others may lease it again
            return
        if key in self.held:
            self.twice += now < self.held[key].deadline - TICK_S
        self.held[key] = lease

    def returns(self, lease: ProxyLease) -> None:
        """From now on others may lease it; if it has expired, another may have it already."""
        key = lease.target, lease.proxy.key
        if key in self.held and self.held[key].token == lease.token:
            del self.held[key]

    def returned(self, lease: ProxyLease, uses: int) -> None:
        self.uses[lease.target, lease.proxy.key] += max(0, uses - 1)


async def work(pool: ProxyPool, books: Bookkeeper, acquires: int, rng: random.Random) -> None:
    for _ in range(acquires):
        (lease,) = await pool.acquire(f"site{rng.randrange(TARGETS)}.example", wait_s=60.0)
        books.lease(lease)
        await asyncio.sleep(0)
        if rng.random() < LEAKED:
            books.leaked += 1
            continue
        uses = rng.choice([0, 1, 1, 1, 3])
        books.returns(lease)
        if await pool.release(lease, [Outcome()] * uses):
            books.returned(lease, uses)
        else:
            assert time.time() > lease.deadline


def test_a_hundred_workers_of_one_process() -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)

    async def story() -> tuple[Bookkeeper, list[TargetView], list[tuple[str, ProxyView]]]:
        pool = LocalPool(lambda _: TargetPolicy(lease_s=LEASE_S, members=PROXIES))
        await pool.add(proxies())
        books = Bookkeeper()
        each = ACQUIRES // 10 // WORKERS
        await asyncio.gather(*(work(pool, books, each, random.Random(seed + n)) for n in range(WORKERS)))
        return books, *(await looked_at(pool))

    books, targets, views = asyncio.run(story())
    assert books.twice == 0
    assert {(target, view.proxy.key): view.uses for target, view in views if view.uses} == dict(books.uses)
    assert sum(view.granted for view in targets) == ACQUIRES // 10 + PROXIES * TARGETS
    assert sum(view.leaked for view in targets) >= books.leaked


async def looked_at(pool: ProxyPool) -> tuple[list[TargetView], list[tuple[str, ProxyView]]]:
    """Return the state of a pool when every lease must have ended: then all proxies can be leased at once."""
    await asyncio.sleep(LEASE_S + BACK_WITHIN_S)
    names = [view.target for view in await pool.targets()]
    views = [(name, view) for name in names for view in await pool.proxies(name)]
    for name in names:
        lease = await pool.acquire(name, PROXIES, lease_s=END_MAX_S)
        assert len({each.proxy.key for each in lease}) == PROXIES, "every lease that leaked is back in time"
    targets = await pool.targets()
    assert sum(view.leases for view in targets) == PROXIES * TARGETS
    return targets, views


# ---------------------------------------------------------------------------------------------------- several processes


@dataclass
class Story:
    """The events of all processes."""

    uses: Counter[tuple[int, int]] = field(default_factory=Counter)
    doubtful: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Uses of returns whose answer the process did not live to hear."""

    spans: defaultdict[tuple[int, int], list[tuple[float, float, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    granted: int = 0
    refused: int = 0
    unheard: int = 0
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
                self._had(grants.pop(lease), sent.pop(lease).at)
                self._returned(event)
        for lease, event in sent.items():
            self.unheard += 1
            self.doubtful[event.target, event.key] += max(0, int(event.number) - 1)
            self._had(grants.pop(lease), event.at)
        self.leaked += len(grants)
        for event in grants.values():
            self._had(event, event.number)

    def _returned(self, event: Event) -> None:
        if event.kind == b"R":
            self.uses[event.target, event.key] += max(0, int(event.number) - 1)
        else:
            self.refused += 1

    def _had(self, grant: Event, until: float) -> None:
        """Somebody had it from its grant until he sent it back, or until its time was over: before he heard of it, if
        the machine was busy, and then nobody had it."""
        self.granted += 1
        self.uses[grant.target, grant.key] += 1
        if grant.at >= grant.number:
            return
        self.spans[grant.target, grant.key].append((grant.at, min(until, grant.number), grant.token))

    def twice(self) -> list[tuple[float, float, int]]:
        """Return the leases that overlap, or whose tokens do not ascend."""
        found = []
        for spans in self.spans.values():
            spans.sort()
            for before, after in pairwise(spans):
                if after[0] < before[1] - TICK_S or after[2] <= before[2]:
                    found.append(after)
        return found


class Crowd:
    """The processes, two of which are killed and replaced."""

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
        """Kill a process after so many events. Return the number of its events."""
        until = time.monotonic() + END_MAX_S
        while journal.stat().st_size < 2 * acquires * RECORD.size and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        return sum(event.kind == b"G" for event in read_events(journal))


@pytest.mark.redis
def test_a_hundred_workers_in_processes_some_of_which_are_killed(redis: Any, tmp_path: Path) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)
    workers = WORKERS // PROCESSES
    job = Job(redis.url, token_hex(4), "", seed, ACQUIRES, workers, TARGETS, LEASE_S, LEAKED)
    crowd = Crowd(job, tmp_path)

    async def before() -> None:
        pool = await redis_pool(job.url, job.name, print, job.policy)
        assert await pool.add(proxies()) == PROXIES
        await pool.close()

    async def after() -> tuple[list[TargetView], list[tuple[str, ProxyView]]]:
        pool = await redis_pool(job.url, job.name, print, job.policy)
        try:
            return await looked_at(pool)
        finally:
            await pool.close()

    asyncio.run(before())
    began = time.monotonic()
    crowd.run()
    took_s = time.monotonic() - began
    targets, views = asyncio.run(after())
    story = Story()
    for journal in crowd.journals:
        story.read(read_events(journal))
    print(f"{story.granted / took_s:,.0f} leases a second; {story.leaked:,} leaked, {story.refused:,} were late")
    judge(story, targets, views, KILLED * workers)


def judge(story: Story, targets: Sequence[TargetView], views: Iterable[tuple[str, ProxyView]], killed: int) -> None:
    """Compare the events with the state of the pool. `killed` workers may have leases they did not write down."""
    assert story.twice() == []
    assert story.granted >= ACQUIRES
    unnoted = sum(view.granted for view in targets) - PROXIES * TARGETS - story.granted
    assert 0 <= unnoted <= killed
    more = {}
    for target, view in views:
        which = int(target.partition(".")[0]), int(view.proxy.key, 16)
        if view.uses != story.uses[which]:
            more[which] = view.uses - story.uses[which]
            assert 0 < more[which] <= story.doubtful[which] + unnoted, "a use that was not made, or a lost one"
    assert unnoted <= sum(more.values()) <= unnoted + story.doubtful.total(), "counts are exact"
    assert story.refused <= sum(view.stale for view in targets) <= story.refused + story.unheard
    assert (
        story.leaked <= sum(view.leaked for view in targets) <= story.leaked + unnoted + story.refused + story.unheard
    )
