"""A process whose workers lease proxies of a pool on Redis, and record their leases (see `test_workers`).

`python -m tests.proxies.sim.proxy_worker JOB`, with a `Job` as JSON. Each event is one `write`, so it survives a kill.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import struct
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.ports import ProxyLease
from lycosa.proxies.redis.pool import RedisPool, redis_pool

RECORD = struct.Struct("<cIQQdd")
WAIT_S = 60.0
LATE = 0.0005
"""The share of leases that are released after their deadline. Leaked ones are never released."""

USES = (0, 1, 1, 1, 3)


@dataclass(frozen=True)
class Job:
    """The arguments of a process; `journal` is the file it writes."""

    url: str
    name: str
    journal: str
    seed: int
    acquires: int
    workers: int
    targets: int
    lease_s: float
    leaked: float

    def policy(self, _: str = "") -> TargetPolicy:
        """Return the policy of all targets."""
        return TargetPolicy(lease_s=self.lease_s, members=10_000)

    def command(self) -> list[str]:
        """Return the command that starts the process."""
        return [sys.executable, "-m", "tests.proxies.sim.proxy_worker", json.dumps(asdict(self))]


class Event(NamedTuple):
    """An event of a lease.

    `kind`: G: the lease was granted. S: its release is about to be sent. R: the release was accepted. L: the release
    came too late.
    """

    kind: bytes
    target: int
    key: int
    token: int
    at: float
    number: float
    """Of a grant: its deadline. Of a release: the number of uses."""


def read_events(path: Path) -> Iterator[Event]:
    """Return the events of a process."""
    data = path.read_bytes()
    return map(Event._make, RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]))


class Process:
    """Runs the workers of a job."""

    def __init__(self, job: Job, pool: RedisPool) -> None:
        self.job, self.pool, self.remaining = job, pool, job.acquires
        self.rng = random.Random(job.seed)
        self.file = os.open(job.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, kind: bytes, lease: ProxyLease, number: float) -> None:
        target = int(lease.target.partition(".")[0])
        os.write(self.file, RECORD.pack(kind, target, int(lease.proxy.key, 16), lease.token, time.time(), number))

    async def work(self) -> None:
        while self.remaining > 0:
            self.remaining -= 1
            target = f"{self.rng.randrange(self.job.targets)}.example"
            (lease,) = await self.pool.acquire(target, wait_s=WAIT_S)
            self.record(b"G", lease, lease.deadline)
            if self.rng.random() < self.job.leaked:
                continue
            late_s = self.job.lease_s + 0.2 if self.rng.random() < LATE else 0.0
            await asyncio.sleep(late_s)
            outcomes = [Outcome(latency_s=0.1)] * self.rng.choice(USES)
            self.record(b"S", lease, len(outcomes))
            self.record(b"R" if await self.pool.release(lease, outcomes) else b"L", lease, len(outcomes))


async def main(job: Job) -> None:
    """Run until all work is done."""
    pool = await redis_pool(job.url, job.name, print, job.policy)
    process = Process(job, pool)
    await asyncio.gather(*(process.work() for _ in range(job.workers)))
    await pool.close()


if __name__ == "__main__":
    asyncio.run(main(Job(**json.loads(sys.argv[1]))))
