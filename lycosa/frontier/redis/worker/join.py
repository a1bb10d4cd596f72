"""Joins a crawl in Redis."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from lycosa.core.errors import StorageFull
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin.visit import told_of_beginning
from lycosa.frontier.redis.packing import pack_in_c
from lycosa.frontier.redis.replicas import Replicas
from lycosa.frontier.redis.server import crawl_server
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.frontier.redis.worker.frontier import RedisFrontier, shared_policy
from lycosa.frontier.redis.worker.heartbeat import WorkerHeartbeat
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.peers import limits_of_others, refuse_twin, told_limits
from lycosa.frontier.redis.worker.session import CRAWLS, Session
from lycosa.infra.clock import Clock
from lycosa.infra.redis.server import JOIN_MAX_S, RECONNECT_MAX_S


async def redis_frontier(
    url: str,
    name: str,
    policy: Policy,
    member: Membership,
    say: Callable[[str], None],
    *,
    spider: str = "",
    partitions: int = 1,
    ahead: int = 0,
    keep_alive: bool = False,
    keep_done: bool = False,
    share_cookies: bool = False,
    replicas: int = 0,
    again: bool = False,
) -> RedisFrontier:
    """Join the crawl of this name, which is one of `spider`. Raises `UsageError` or `StateError`.

    `again`: this process took part before, and was given up. `say` hears that the server is waited for, and what
    changes for others. A commit waits until so many `replicas` have it. What the member is to remember is noted in
    `member`.
    """
    server = crawl_server(url, say)
    clients = await server.clients(RECONNECT_MAX_S if member.crawl else JOIN_MAX_S)
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
            keeps_done=keep_done,
        )
        session.now = Clock().now()
        frontier = RedisFrontier(session, policy, ahead=ahead, keep_alive=keep_alive)
        frontier.cookies = RedisCookies(session) if share_cookies else None
        if again:
            await refuse_twin(session)
        before = await limits_of_others(session)
        member.crawl = await frontier.open(member.crawl)
        for line in await told_limits(session, before, shared_policy(policy)):
            say(line)
        await session.look()
        if session.begun:
            say(await told_of_beginning(session, server.text))
        with suppress(StorageFull):  # who joins again is in it, and the crawl waits for room by itself
            await server.retry(lambda: clients.loop.sadd(CRAWLS, name))
    except BaseException:
        clients.blocking.close()
        await clients.loop.aclose()
        raise
    frontier.server_url, frontier.commits.member = server.text, member
    frontier.commits.replicas = Replicas(clients.blocking, replicas, say) if replicas else None
    first = session.partitions[0]
    frontier.heart = WorkerHeartbeat(clients.blocking, first.key, first.worker, lambda: first.heard_at)
    return frontier


async def simulated_frontier(
    client: Any,
    name: str,
    policy: Policy,
    now: float,
    *,
    worker: str = "worker",
    partitions: int = 1,
    keep_done: bool = False,
) -> RedisFrontier:
    """Join a crawl by the clock of the callers, with no heart."""
    session = Session(client, name, worker, _at_once, partitions, callers_clock=True, keeps_done=keep_done)
    session.now = now
    frontier = RedisFrontier(session, policy)
    await frontier.open()
    return frontier


async def _at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()
