"""Joins a crawl in Redis."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from lycosa.core.errors import StorageFull
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin.open_crawl import created_message
from lycosa.frontier.redis.admin.revival import revive
from lycosa.frontier.redis.hiredis_packing import pack_in_c
from lycosa.frontier.redis.replicas import Replicas
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.frontier.redis.worker.frontier import RedisFrontier, shared_policy
from lycosa.frontier.redis.worker.heartbeat import WorkerHeartbeat
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.peers import limit_messages, limits_of_others, reject_duplicate_worker
from lycosa.frontier.redis.worker.session import CRAWLS, Session
from lycosa.infra.clock import Clock
from lycosa.infra.redis.server import JOIN_MAX_S, RECONNECT_MAX_S, RetryLimits


async def redis_frontier(
    url: str,
    name: str,
    policy: Policy,
    member: Membership,
    report: Callable[[str], None],
    *,
    spider: str = "",
    partitions: int = 1,
    ahead: int = 0,
    keep_alive: bool = False,
    keep_done: bool = False,
    share_cookies: bool = False,
    replicas: int = 0,
    again: bool = False,
    on_created: Callable[[str], None] | None = None,
) -> RedisFrontier:
    """Join the crawl of this name and spider. Store its number in `member.crawl`. Raises `UsageError` or `StateError`.

    `again`: this process was a worker of the crawl before, and has expired. `report` gets a message when a call waits
    for the server, and when joining changes the limits of the other workers or of this one. `on_created` (default:
    `report`) gets one if this worker has created the crawl. A commit waits until `replicas` replicas have it, but only
    for a limited time: see `Replicas`."""
    server = crawl_server(url, report)
    clients = await server.clients(RetryLimits(RECONNECT_MAX_S if member.crawl else JOIN_MAX_S))
    pack_in_c(clients.loop)
    try:
        session = Session(
            clients.loop,
            name,
            member.worker,
            server.retry,
            partitions,
            callers_clock=False,
            spider=spider,
            keep_done=keep_done,
        )
        session.now = Clock().now()
        session.rejoins = again
        frontier = RedisFrontier(session, policy, ahead=ahead, keep_alive=keep_alive)
        frontier.cookies = RedisCookies(session) if share_cookies else None
        if again:
            await reject_duplicate_worker(session)
        before = await limits_of_others(session)
        member.crawl = await frontier.open(member.crawl)
        await revive(session)
        for message in await limit_messages(session, before, shared_policy(policy)):
            report(message)
        await session.refresh()
        if session.has_begun:
            (on_created or report)(await created_message(session, server.text))
        # A full server refuses this write, but not the join: the next worker that joins adds the name.
        with suppress(StorageFull):
            await server.retry(lambda: clients.loop.sadd(CRAWLS, name))
    except BaseException:
        clients.blocking.close()
        await clients.loop.aclose()
        raise
    frontier.server_url, frontier.commits.member = server.text, member
    frontier.commits.replicas = Replicas(clients.blocking, replicas, report) if replicas else None
    first = session.partitions[0]
    frontier.heartbeat = WorkerHeartbeat(clients.blocking, first.key, first.worker, lambda: first.answered_at)
    return frontier
