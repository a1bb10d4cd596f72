"""A process that shares a pool of proxies until SIGTERM: `python -m tests.proxies.e2e.pool_members POOL DIARY LOCKS`.

Each line of the diary is one `write`, so it survives a kill right afterwards. A leased proxy has a locked file in the
folder LOCKS; the system drops the lock when the process dies. So a second lease of the same proxy is seen at once.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import signal
import sys
from pathlib import Path

from lycosa.app.proxies.pools import open_pool
from lycosa.core.errors import NoProxy
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.ports import ProxyLease, ProxyPool
from tests.queues.e2e.queue_members import Log

TARGETS = ("a.example", "b.example")
TASKS = 4
LEASE_S = 5.0
WAIT_S = 60.0


async def lease_repeatedly(pool: ProxyPool, diary: Log, locks: Path, stop: asyncio.Event) -> None:
    """Lease proxies until stopped, and write each request, lease, release and its result to the diary."""
    while not stop.is_set():
        diary.write("acquire")
        try:
            (lease,) = await pool.acquire(random.choice(TARGETS), lease_s=LEASE_S, wait_s=WAIT_S)
        except NoProxy as error:
            diary.write("none", error)
            return
        diary.write("leased", lease.target, lease.token, lease.proxy.key)
        uses = random.randrange(4)
        await use(lease, diary, locks)
        diary.write("release", lease.target, lease.proxy.key, uses)
        was_in_time = await pool.release(lease, [Outcome()] * uses)
        diary.write("released" if was_in_time else "late")


async def use(lease: ProxyLease, diary: Log, locks: Path) -> None:
    """Lock the proxy for a moment; write `double` if it is locked already."""
    handle = os.open(locks / f"{lease.target}-{lease.proxy.key}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await asyncio.sleep(random.choice([0.0, 0.0, 0.001, 0.01, 0.3]))
    except BlockingIOError:
        diary.write("double", lease.target, lease.proxy.key)
    finally:
        os.close(handle)


async def main(address: str, name: str, locks: str) -> None:
    """Join the pool, and lease proxies in several tasks."""
    diary, stop = Log(name), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    pool = await open_pool(address)
    diary.write("joined")
    try:
        await asyncio.gather(
            *(lease_repeatedly(pool, Log(f"{name}.{task}"), Path(locks), stop) for task in range(TASKS))
        )
    finally:
        await pool.close()
    diary.write("end")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
