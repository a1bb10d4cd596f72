"""A process that shares a pool of proxies: `python -m tests.proxies.e2e.pool_members POOL DIARY HELD`. SIGTERM ends it.

A line is written to the diary with one `write`, so it is there when the process is killed right afterwards. While it
holds a proxy it has a lock on a file in HELD, which the system drops when it dies: a second holder is seen at once.
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
from tests.queues.e2e.queue_members import Diary

TARGETS = ("a.example", "b.example")
TASKS = 4
LEASE_S = 5.0
WAIT_S = 60.0


async def borrow(pool: ProxyPool, diary: Diary, held: Path, stop: asyncio.Event) -> None:
    """Borrow proxies for ever, and note what is asked, what is lent, what is given back, and what was heard of it."""
    while not stop.is_set():
        diary.write("ask")
        try:
            (lease,) = await pool.acquire(random.choice(TARGETS), lease_s=LEASE_S, wait_s=WAIT_S)
        except NoProxy as error:
            diary.write("none", error)
            return
        diary.write("got", lease.target, lease.token, lease.proxy.key)
        uses = random.randrange(4)
        await hold(lease, diary, held)
        diary.write("return", lease.target, lease.proxy.key, uses)
        was_in_time = await pool.release(lease, [Outcome()] * uses)
        diary.write("returned" if was_in_time else "late")


async def hold(lease: ProxyLease, diary: Diary, held: Path) -> None:
    """Be the only one who uses it."""
    handle = os.open(held / f"{lease.target}-{lease.proxy.key}", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        await asyncio.sleep(random.choice([0.0, 0.0, 0.001, 0.01, 0.3]))
    except BlockingIOError:
        diary.write("double", lease.target, lease.proxy.key)
    finally:
        os.close(handle)


async def main(address: str, name: str, held: str) -> None:
    """Join the pool, and borrow from it in several tasks."""
    diary, stop = Diary(name), asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    pool = await open_pool(address)
    diary.write("joined")
    try:
        await asyncio.gather(*(borrow(pool, Diary(f"{name}.{task}"), Path(held), stop) for task in range(TASKS)))
    finally:
        await pool.close()
    diary.write("end")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
