"""Opens the frontier of a crawl: its own, or one that it shares with other workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import msgspec

from lycosa.app.crawl.description import description_of, refuse_others
from lycosa.app.crawl.spec import Crew
from lycosa.core.errors import NewerState, StateError, UsageError
from lycosa.crawl.events.reporting import Reporter
from lycosa.frontier.core.description import Description
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.ports import Frontier, FrontierOperations, SharedCookies
from lycosa.frontier.redis.worker.membership import membership
from lycosa.frontier.state_dir import WORKER, StateDir
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

LEAVE_MAX_S = 5.0
"""A worker that ends takes so long to say so."""


async def frontier_of(stack: AsyncExitStack, crew: Crew, state: StateDir, *, again: bool = False) -> Frontier:
    """Open the frontier, `again` when it was given up; the stack closes it. Raises `LycosaError`."""
    settings = crew.settings
    if settings.frontier:
        if settings.refresh is not None and not settings.keep_done:
            raise UsageError("--refresh needs all of what is done: begin the shared crawl with -s keep_done=true")
        from lycosa.frontier.redis.worker.join import redis_frontier  # an extra

        name = settings.crawl_name or crew.target.name
        member = membership(state.path / WORKER, name)
        frontier: Any = await redis_frontier(
            settings.frontier,
            name,
            crew.policy,
            member,
            log.warning,
            spider=_kind_of(crew),
            partitions=settings.partitions,
            ahead=settings.concurrency,
            keep_alive=settings.keep_alive,
            keep_done=settings.keep_done,
            share_cookies=settings.cookies_shared,
            replicas=settings.replicas,
            again=again,
        )
        stack.push_async_callback(_left, frontier)
        member.changed()
        seeds = await _describe(frontier.session, f"the crawl {name!r}", crew)
        known = dict.fromkeys([*state.description.seeds, *seeds])
        state.describe(msgspec.structs.replace(state.description, seeds=list(known)))
    else:
        state.refuse_half()
        frontier = embedded_frontier(
            state.frontier, crew.policy, sync=settings.sync, now=Clock().now(), expected=settings.expect
        )
        stack.push_async_callback(frontier.close)
    return frontier  # type: ignore[no-any-return]


async def _left(frontier: Frontier) -> None:
    """Leave a crawl. A server that is away is not waited for again: the others find out that we are gone."""
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_MAX_S):
            await frontier.close()


def _kind_of(crew: Crew) -> str:
    """Return what the crawl is one of, in words: workers of the same one may take part in it."""
    names = crew.spiders.replace("+", ", ")
    kind = f"spider {names}" if names else "start URLs"
    return f"{kind} (--key {' --key '.join(crew.target.key)})" if crew.target.key else kind


def operations_of(
    frontier: Frontier, commit: Callable[[], Awaitable[None]], changed: Callable[[], None], paused: Callable[[], str]
) -> FrontierOperations:
    """Return the operations on it."""
    if isinstance(frontier, LocalFrontier):
        return LocalOperations(frontier, commit, changed, paused)
    from lycosa.frontier.redis.admin.operations import RedisOperations

    shared: Any = frontier
    return RedisOperations(shared.session, commit, changed, paused, shared.forget)


async def shared_description(session: Any) -> Description:
    """Return what a crawl in Redis is, as far as somebody has said so. Raises `NewerState`."""
    text, seeds = await session.description()
    if not text:
        return Description()
    try:
        return msgspec.structs.replace(msgspec.json.decode(text, type=Description), seeds=seeds)
    except msgspec.MsgspecError as error:
        raise NewerState(f"the crawl {session.crawl!r} is described in a way that is not known here: {error}") from None


async def describe(session: Any, description: Description, *, begins: bool = False) -> None:
    """Write down what a crawl in Redis is; one that `begins` may be a worker's already, who knows better."""
    text = msgspec.json.encode(msgspec.structs.replace(description, seeds=[]))
    await session.describe(text, description.seeds, begins=begins)


async def _describe(session: Any, place: str, crew: Crew) -> list[str]:
    """Say what the crawl is, unless others are at something else under its name. Raises `ForeignState`.

    Return the start URLs of all workers: whoever is lent a page of one of them follows its links.
    """
    known, ours = await shared_description(session), list(crew.target.seeds)
    refuse_others(known, place, crew, "another --crawl-name")
    await describe(session, description_of(crew, ours))
    if known.seeds and not {*ours} <= {*known.seeds} and (await session.outlook()).workers > 1:
        log.warning("%s has other start URLs: workers that are there already follow no links of these new ones", place)
    return list(dict.fromkeys([*known.seeds, *ours]))


def shared_cookies(frontier: Frontier) -> SharedCookies | None:
    """Return what shares cookies with other workers; None when nothing does."""
    return getattr(frontier, "cookies", None)


async def is_over(frontier: Frontier) -> bool:
    """Whether nothing is left of a shared crawl that has just told that nothing waits: others may have some of it yet.

    A frontier of our own has told all there is.
    """
    session = getattr(frontier, "session", None)
    return session is None or bool(await session.is_over())


def tells(frontier: Frontier, reporter: Reporter) -> None:
    """Let a worker of a shared frontier tell of itself, while it lives and at its end."""
    heart, session = getattr(frontier, "heart", None), getattr(frontier, "session", None)
    if heart is not None and session is not None:
        heart.report = reporter.packed
        session.report = partial(reporter.packed, ended=True)


async def told_by_all(frontier: Frontier, reporter: Reporter) -> dict[str, int]:
    """Return the totals of a shared crawl, our last report among them; nothing for a crawl of our own."""
    session = getattr(frontier, "session", None)
    if session is None:
        return {}
    with suppress(StateError):  # it is not what the crawl fails of
        await session.wire.run(session.partitions[0], "beat", reporter.packed())
        found = await session.ask("hgetall", session.partitions[0], "wt")
        return {name.decode(errors="replace"): int(count) for name, count in found.items()}
    return {}


def shortage_of(frontier: Frontier) -> Callable[[], str]:
    """Return what tells why the frontier lends nothing, "" for no reason of its own."""
    return lambda: getattr(frontier, "shortage", "")
