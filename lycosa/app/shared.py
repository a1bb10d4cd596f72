"""Opens the frontier of a crawl: its own, or one that it shares with other workers."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from lycosa.app.members import Crew
from lycosa.clock import Clock
from lycosa.core.model import Request, Response
from lycosa.core.url import host_key
from lycosa.frontiers.embedded import embedded_frontier
from lycosa.frontiers.local import LocalFrontier
from lycosa.frontiers.operations import LocalOperations
from lycosa.frontiers.redis.membership import Membership
from lycosa.frontiers.statedir import StateDir
from lycosa.ports import Fetcher, Frontier, FrontierOperations

log = logging.getLogger(__name__)

WORKER = "worker"
"""The file of a state that holds the name under which it takes part in a shared crawl."""


async def frontier_of(stack: AsyncExitStack, crew: Crew, state: StateDir) -> Frontier:
    """Open the frontier; the stack closes it. Raises `LycosaError`."""
    settings = crew.settings
    if settings.frontier:
        from lycosa.frontiers.redis.joining import redis_frontier  # an extra

        member = _membership(state)
        name = settings.crawl_name or crew.target.name
        frontier: Any = await redis_frontier(
            settings.frontier,
            name,
            crew.policy,
            member,
            log.warning,
            partitions=settings.partitions,
            ahead=settings.concurrency,
            keep_alive=settings.keep_alive,
        )
        _remember(state, member)
    else:
        state.refuse_half()
        frontier = embedded_frontier(
            state.frontier, crew.policy, sync=settings.sync, now=Clock().now(), expected=settings.expect
        )
    stack.push_async_callback(frontier.close)
    return frontier  # type: ignore[no-any-return]


def operations_of(
    frontier: Frontier, commit: Callable[[], Awaitable[None]], changed: Callable[[], None], paused: Callable[[], str]
) -> FrontierOperations:
    """Return the operations on it."""
    if isinstance(frontier, LocalFrontier):
        return LocalOperations(frontier, commit, changed, paused)
    from lycosa.frontiers.redis.operations import RedisOperations

    return RedisOperations(frontier, commit, changed, paused)  # type: ignore[arg-type, return-value]


def _membership(state: StateDir) -> Membership:
    file = state.path / WORKER
    worker, _, crawl = file.read_text().strip().partition(" ") if file.exists() else ("", "", "")
    return Membership(worker or secrets.token_hex(4), crawl)


def _remember(state: StateDir, member: Membership) -> None:
    (state.path / WORKER).write_text(f"{member.worker} {member.crawl}")


class Punctual:
    """See `ports.Fetcher`: another one, whose starts are told to a frontier that others share."""

    def __init__(self, fetcher: Fetcher, started: Callable[[str, float], None], clock: Clock) -> None:
        self._fetcher = fetcher
        self._started = started
        self._clock = clock

    async def fetch(self, request: Request, **options: Any) -> Response:
        """Do one transfer. See the port."""
        host = host_key(request.url)
        self._started(host, self._clock.now())
        response = await self._fetcher.fetch(request, **options)
        timings = response.timings  # a busy loop may have sent it later than it was told
        self._started(host, self._clock.now() - timings.total_s + max(timings.connect_s, timings.tls_s))
        return response

    async def close(self) -> None:
        """Close the other one."""
        await self._fetcher.close()


def punctual(fetcher: Fetcher, frontier: Frontier, clock: Clock) -> Fetcher:
    """Return a fetcher whose starts the frontier is told, if it wants to know."""
    started = getattr(frontier, "started", None)
    return fetcher if started is None else Punctual(fetcher, started, clock)
