"""Deletes a crawl in Redis.

First each partition is marked: no process joins, reads or changes it any more. Then the keys are deleted in small
steps. The META keys and the crawl's entry in the set of crawls are deleted last: until then, a later deletion finds the
crawl, and can complete an interrupted one.
"""

from __future__ import annotations

from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.frontier.redis.admin.keyspace import ALWAYS, CHECK, UNLESS_IT_HAS_WORKERS, delete_keys
from lycosa.frontier.redis.admin.open_crawl import only_name, stored_crawls
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.worker.partition import LIVE, STATES
from lycosa.frontier.redis.worker.session import Session
from lycosa.infra.clock import Clock


async def delete_crawl(url: str, name: str, report: Callable[[str], None], *, force: bool = False) -> int:
    """Return how many URLs the crawl knew.

    Raises `UsageError` if it has workers or unfetched URLs, unless `force` is set; `StateError` if the server is down.
    """
    server = crawl_server(url, report)
    client, blocking = await server.clients()
    blocking.close()
    try:
        found = await stored_crawls(client, server.retry)
        only_name(name, found, server.text, creates=False)
        session = Session(client, name, "", server.retry, found[name].partitions, callers_clock=False)
        session.now = Clock().now()
        workers, urls, unfetched = await _look(session)
        if not force:
            _refuse(session.crawl, workers, unfetched)
        for partition in session.partitions:
            # The first partition knows the workers, and a worker joins it first.
            mode = ALWAYS if force or partition.number else UNLESS_IT_HAS_WORKERS
            _, workers, _ = await session.operate(partition, "delete", mode)
            if mode == UNLESS_IT_HAS_WORKERS:
                _refuse(session.crawl, workers, 0)
        await delete_keys(session)
        return urls
    finally:
        await client.aclose()


async def _look(session: Session) -> tuple[int, int, int]:
    """Return the numbers of workers, of known URLs, and of URLs still to be fetched."""
    workers, counts = 0, dict.fromkeys(STATES, 0)
    for partition in session.partitions:
        _, alive, fields = await session.operate(partition, "delete", CHECK)
        workers = workers if partition.number else alive
        for field, count in zip(fields[::2], fields[1::2], strict=True):
            counts[field.decode().partition("|")[0]] += int(count)
    unfetched = sum(counts[state] for state in LIVE)
    return workers, sum(counts.values()) - counts["uncommitted"], unfetched


def _refuse(crawl: str, workers: int, unfetched: int) -> None:
    if workers:
        who, them = ("1 worker", "it") if workers == 1 else (f"{workers:,} workers", "them")
        raise UsageError(f"the crawl {crawl!r} has {who}: stop {them} first, or use --force to delete it anyway")
    if unfetched:
        urls, have = ("1 URL", "has") if unfetched == 1 else (f"{unfetched:,} URLs", "have")
        raise UsageError(f"{urls} of the crawl {crawl!r} {have} not been fetched yet: use --force to delete it anyway")
