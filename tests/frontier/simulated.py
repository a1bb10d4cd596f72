"""A worker of a crawl in Redis whose clock is that of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.session import Session


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
    """Join a crawl as a worker that uses the clock of the caller and has no heartbeat."""
    session = Session(client, name, worker, _call_once, partitions, callers_clock=True, keep_done=keep_done)
    session.now = now
    frontier = RedisFrontier(session, policy)
    await frontier.open()
    return frontier


async def _call_once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()
