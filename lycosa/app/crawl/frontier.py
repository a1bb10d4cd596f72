"""Opens the frontier of a crawl: its own, or one that it shares with other workers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from lycosa.app.crawl.description import description_of, refuse_others
from lycosa.app.crawl.spec import Crew
from lycosa.core.errors import StateError, UsageError
from lycosa.crawl.events.reporting import Reporter
from lycosa.crawl.fetching.start_reporter import StartReportingFetcher
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.ports import Frontier, FrontierOperations, SharedCookies, SharedCrawl, SharedFrontier
from lycosa.frontier.redis.worker.membership import membership
from lycosa.frontier.state_dir import WORKER, StateDir
from lycosa.http.ports import Fetcher
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

LEAVE_MAX_S = 5.0
"""A worker that ends takes so long to say so."""


@dataclass(frozen=True, slots=True)
class OpenFrontier:
    """The frontier of a crawl, and what it can do beyond the port.

    `operations` makes the operations on it, see `SharedFrontier.operations`. `shared` is the same frontier if workers
    share it. `delays` are for the processes of one crawl (`LocalFrontier.delays`); workers that share one have none.
    """

    frontier: Frontier
    operations: Callable[[Callable[[], Awaitable[None]], Callable[[], None], Callable[[], str]], FrontierOperations]
    shared: SharedFrontier | None = None
    delays: Callable[[str], Sequence[tuple[str, float]]] = lambda _: ()

    @classmethod
    def own(cls, frontier: LocalFrontier[Any]) -> OpenFrontier:
        """Return one that only this process uses."""
        return cls(frontier, partial(LocalOperations, frontier), delays=frontier.delays)

    @classmethod
    def joined(cls, frontier: SharedFrontier) -> OpenFrontier:
        """Return one that workers share."""
        return cls(frontier, frontier.operations, frontier)

    @property
    def cookies(self) -> SharedCookies | None:
        """The cookies that the workers share; None when each has its own."""
        return self.shared.cookies if self.shared is not None else None

    def shortage(self) -> str:
        """Return why the frontier leases nothing, "" for no reason of its own."""
        return self.shared.shortage if self.shared is not None else ""

    async def is_over(self) -> bool:
        """Whether a crawl with nothing unfinished is over: our own is; in a shared one others may have work left."""
        return self.shared is None or await self.shared.is_over()

    def report_starts(self, clock: Clock) -> Callable[[Fetcher], Fetcher]:
        """Return what makes a fetcher report its starts, to a frontier that others share."""
        shared = self.shared
        return (lambda fetcher: StartReportingFetcher(fetcher, shared, clock)) if shared is not None else _unchanged

    def report_with(self, reporter: Reporter) -> None:
        """Let this worker report, while it lives and when it leaves, if there are others."""
        if self.shared is not None:
            self.shared.report_with(reporter.packed, partial(reporter.packed, ended=True))

    async def totals(self, reporter: Reporter) -> dict[str, int]:
        """Return the totals of a shared crawl with our last report; nothing for our own, or if the server is away."""
        if self.shared is not None:
            with suppress(StateError):  # no reason for the crawl to fail
                return await self.shared.totals(reporter.packed())
        return {}


def _unchanged(fetcher: Fetcher) -> Fetcher:
    return fetcher


async def frontier_of(stack: AsyncExitStack, crew: Crew, state: StateDir, *, again: bool = False) -> OpenFrontier:
    """Open the frontier, `again` when it was given up; the stack closes it. Raises `LycosaError`."""
    if crew.settings.frontier:
        return OpenFrontier.joined(await _join(stack, crew, state, again=again))
    state.refuse_half()
    frontier = embedded_frontier(
        state.frontier, crew.policy, sync=crew.settings.sync, now=Clock().now(), expected=crew.settings.expect
    )
    stack.push_async_callback(frontier.close)
    return OpenFrontier.own(frontier)


async def _join(stack: AsyncExitStack, crew: Crew, state: StateDir, *, again: bool) -> SharedFrontier:
    settings = crew.settings
    if settings.refresh is not None and not settings.keep_done:
        raise UsageError("--refresh needs all of what is done: begin the shared crawl with -s keep_done=true")
    from lycosa.frontier.redis.worker.join import redis_frontier  # an extra

    name = settings.crawl_name or crew.target.name
    member = membership(state.path / WORKER, name)
    frontier = await redis_frontier(
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
    seeds = await _describe(frontier.crawl, f"the crawl {name!r}", crew)
    known = dict.fromkeys([*state.description.seeds, *seeds])
    state.describe(msgspec.structs.replace(state.description, seeds=list(known)))
    return frontier


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


async def _describe(crawl: SharedCrawl, place: str, crew: Crew) -> list[str]:
    """Say what the crawl is, unless others are at something else under its name. Raises `ForeignState`.

    Return the start URLs of all workers: whoever is lent a page of one of them follows its links.
    """
    known, ours = await crawl.description(), list(crew.target.seeds)
    refuse_others(known, place, crew, "another --crawl-name")
    await crawl.describe(description_of(crew, ours))
    if known.seeds and not {*ours} <= {*known.seeds} and await crawl.workers() > 1:
        log.warning("%s has other start URLs: workers that are there already follow no links of these new ones", place)
    return list(dict.fromkeys([*known.seeds, *ours]))
