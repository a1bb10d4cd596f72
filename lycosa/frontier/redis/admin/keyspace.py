"""Finds the keys of a crawl by scanning its servers, in steps that never block a server for long."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.calls import Retry
from lycosa.frontier.redis.worker.session import CRAWLS, Session, key_of

SCANNED_AT_ONCE = 1000
"""Approximate number of keys that one call examines, including keys outside the crawl."""

CHECK, UNLESS_IT_HAS_WORKERS, ALWAYS = range(3)
"""Modes of the operation `delete`: CHECK only reads, the others mark the partition as being deleted."""

SPECIAL = re.compile(r"([\\*?\[])")


async def batches(client: Any, retry: Retry, crawl: str) -> AsyncIterator[list[bytes]]:
    """Yield the keys of a crawl, in batches of one partition each.

    A key that exists during the whole scan is yielded, perhaps twice. Other keys may be missing.
    """
    before, after = key_of(crawl, 0).rsplit("0", 1)
    ours = re.compile(rf"{re.escape(before)}\d+{re.escape(after)}")
    match = SPECIAL.sub(r"\\\1", before) + "*"
    for node in client.get_primaries() if hasattr(client, "PRIMARIES") else [None]:
        where = {"target_nodes": node} if node is not None else {}
        cursor: Any = 0
        while True:
            found, keys = await retry(
                lambda: client.scan(cursor, match=match, count=SCANNED_AT_ONCE, **where)  # noqa: B023
            )
            cursor = found[node.name] if node is not None else found
            by_partition: dict[str, list[bytes]] = {}
            for key in keys:
                if prefix := ours.match(key.decode(errors="replace")):
                    by_partition.setdefault(prefix[0], []).append(key)
            for batch in by_partition.values():
                yield batch
            if not cursor:
                break


async def delete_keys(session: Session) -> None:
    """Delete all keys of a crawl, whose partitions must be marked as being deleted."""
    client, retry = session.calls.client, session.calls.retry
    metas = [partition.key + Key.META for partition in session.partitions]
    is_empty = False
    while not is_empty:  # until a scan finds nothing: a call in transit may have written a key
        is_empty = True
        async for batch in batches(client, retry, session.crawl):
            if batch := [key for key in batch if key.decode(errors="replace") not in metas]:
                is_empty = False
                await retry(lambda: client.unlink(*batch))  # noqa: B023
    for meta in reversed(metas):
        await retry(lambda: client.unlink(meta))  # noqa: B023
    await retry(lambda: client.srem(CRAWLS, session.crawl))
