"""Lets the keys of a finished crawl expire, and makes them permanent again when the crawl is continued.

1. Each partition without unfinished URLs announces the expiry. The first one must also have no worker left.
2. If all partitions have announced it, and the first one still does, the keys get their expiry, a small batch at a
   time. For each batch, its partition must still announce the expiry. The key with the announcement comes last.
3. A worker that joins, or a process that pushes URLs, withdraws the announcements, beginning with the first partition,
   and makes all keys permanent. If the expiry was less than `revival.MARGIN_S` seconds away, that process deletes the
   remaining keys; otherwise the crawl continues.

So a crawl with unfinished URLs keeps all of its keys, even if any of these processes dies at any point.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.frontier.redis.admin import keyspace
from lycosa.frontier.redis.admin.open_crawl import open_crawl
from lycosa.frontier.redis.admin.revival import home_of
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.scripts import SILENT_S
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

WORKERS_MAX_S = SILENT_S + 0.5
"""Maximum seconds to wait for killed workers to expire.

A worker that is listed for longer is alive: the last worker to end lets the crawl expire.
"""

WORKERS_CHECK_S = 0.1


async def expire_crawl(url: str, name: str, after_s: float, report: Callable[[str], None]) -> bool:
    """Let the keys of a crawl expire. Return False if it has workers or unfinished URLs."""
    try:
        async with open_crawl(url, name, report) as opened:
            return await _expire(opened.session, after_s)
    except UsageError:  # it was deleted
        return False


async def _expire(session: Session, after_s: float) -> bool:
    announced: dict[Partition, bytes] = {}
    for partition in session.partitions:
        if at := await _announce(session, partition, after_s):
            announced[partition] = at
    first = session.partitions[0]
    holds = len(announced) == len(session.partitions)
    if not (holds and (await session.operate(first, "check_expiry", announced[first]))[1]):
        for partition, at in announced.items():
            await session.operate(partition, "withdraw_expiry", at)
        return False
    metas = [(partition.key + Key.META).encode() for partition in session.partitions]
    async for batch in keyspace.batches(session.calls.client, session.calls.retry, session.crawl):
        home = home_of(session, batch)
        await session.operate(home, "expire_keys", announced[home], *(key for key in batch if key not in metas))
    replies = [
        await session.operate(partition, "expire_keys", announced[partition], meta)
        for partition, meta in zip(session.partitions, metas, strict=True)
    ]
    return all(reply[1] for reply in replies)


async def _announce(session: Session, partition: Partition, after_s: float) -> bytes:
    """Return when the keys of the partition expire; b"" if they do not."""
    loop = asyncio.get_running_loop()
    until = loop.time() + WORKERS_MAX_S
    while True:
        _, at, workers = await session.operate(partition, "announce_expiry", repr(after_s))
        if at or not workers or loop.time() >= until:
            return bytes(at)
        await asyncio.sleep(WORKERS_CHECK_S)
