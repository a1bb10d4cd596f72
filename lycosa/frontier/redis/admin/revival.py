"""Cancels the expiry of a finished crawl: makes its keys permanent again (see `expiry`)."""

from __future__ import annotations

from lycosa.core.errors import StateError
from lycosa.frontier.redis.admin import keyspace
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

MARGIN_S = 5.0
"""A crawl can be used again until this many seconds before its expiry: the clocks of the servers may differ."""


async def revive(session: Session) -> None:
    """Make all keys permanent, if their expiry was announced. Raises `StateError` if it is too late."""
    partitions = session.partitions
    if not any([(await session.operate(each, "revive"))[1] for each in partitions]):
        return
    async for batch in keyspace.batches(session.calls.client, session.calls.retry, session.crawl):
        await session.operate(home_of(session, batch), "persist_keys", *batch)
    if all([(await session.operate(each, "revived", MARGIN_S))[1] for each in partitions]):
        return
    for each in partitions:
        await session.operate(each, "delete", keyspace.ALWAYS)
    await keyspace.delete_keys(session)
    raise StateError(f"the crawl {session.crawl!r} has expired, and its remaining data was deleted: start it again")


def home_of(session: Session, batch: list[bytes]) -> Partition:
    """Return the partition of a batch of keys."""
    return next(each for each in session.partitions if batch[0].startswith(each.key.encode()))
