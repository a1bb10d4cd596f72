"""Joins a crawl in Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lycosa.core.frontier import Policy
from lycosa.frontiers.redis.connection import JOIN_MAX_S, check, clients_of, patiently, shown
from lycosa.frontiers.redis.frontier import RedisFrontier
from lycosa.frontiers.redis.heart import Heart
from lycosa.frontiers.redis.membership import Membership
from lycosa.frontiers.redis.session import Session


async def redis_frontier(
    url: str,
    name: str,
    policy: Policy,
    member: Membership,
    say: Callable[[str], None],
    *,
    partitions: int = 1,
    ahead: int = 0,
    keep_alive: bool = False,
) -> RedisFrontier:
    """Join the crawl of this name. Raises `UsageError` for what is no address of a Redis, and `StateError`.

    `say` hears that the server is waited for. What the member is to remember is noted in `member`.
    """
    where = shown(url)

    async def patient(act: Callable[[], Awaitable[Any]]) -> Any:
        return await patiently(act, where, say)

    clients = await patiently(lambda: asyncio.to_thread(clients_of, url), where, say, JOIN_MAX_S)
    await patient(lambda: check(clients.loop, where))
    session = Session(clients.loop, name, member.worker, patient, partitions, callers_clock=False)
    frontier = RedisFrontier(session, policy, ahead=ahead, keep_alive=keep_alive)
    member.crawl = await frontier.open(member.crawl)
    frontier.heart = Heart(clients.blocking, session.partitions[0].key, session.partitions[0].worker)
    return frontier


async def simulated_frontier(
    client: Any, name: str, policy: Policy, now: float, *, worker: str = "worker", partitions: int = 1
) -> RedisFrontier:
    """Join a crawl by the clock of the callers, with no heart."""
    session = Session(client, name, worker, _at_once, partitions, callers_clock=True)
    session.now = now
    frontier = RedisFrontier(session, policy)
    await frontier.open()
    return frontier


async def _at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()
