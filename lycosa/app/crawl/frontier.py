"""Open the frontier of a crawl: in this process, or shared with other workers on a server."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from lycosa.app import NOTICES
from lycosa.app.crawl.description import description_of, refuse_other_crawl
from lycosa.app.crawl.spec import CrawlSpec
from lycosa.core.errors import StateError, UsageError
from lycosa.crawl.events.reporting import WorkerReporter
from lycosa.crawl.fetching.start_reporter import StartReportingFetcher
from lycosa.frontier.core.states import Policy
from lycosa.frontier.core.telemetry import RunProgress
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.ports import Frontier, FrontierOperations, SharedCookies, SharedCrawl, SharedFrontier
from lycosa.frontier.redis.worker.membership import membership
from lycosa.frontier.state_dir import WORKER, StateDir
from lycosa.http.ports import Fetcher
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

LEAVE_MAX_S = 5.0
"""Maximum seconds that a worker waits for the server when it leaves a shared crawl."""


@dataclass(frozen=True, slots=True)
class OpenFrontier:
    """The frontier of a crawl. If workers share it, `shared` is the same object.

    `delays` returns the delays of a host, for worker processes to observe. `rejoined`: the other workers had removed
    this one.
    """

    frontier: Frontier
    operations: Callable[[Callable[[], Awaitable[None]], Callable[[], None], Callable[[], str]], FrontierOperations]
    shared: SharedFrontier | None = None
    delays: Callable[[str], Sequence[tuple[str, float]]] = lambda _: ()
    rejoined: bool = False

    @classmethod
    def own(cls, frontier: LocalFrontier[Any]) -> OpenFrontier:
        return cls(frontier, partial(LocalOperations, frontier), delays=frontier.delays)

    @classmethod
    def joined(cls, frontier: SharedFrontier, *, rejoined: bool = False) -> OpenFrontier:
        return cls(frontier, frontier.operations, frontier, rejoined=rejoined)

    @property
    def cookies(self) -> SharedCookies | None:
        """The cookies that the workers share, if any."""
        return self.shared.cookies if self.shared is not None else None

    def shortage(self) -> str:
        """Return why a shared frontier leases nothing although URLs may be due."""
        return self.shared.shortage if self.shared is not None else ""

    async def is_finished(self) -> bool:
        """Whether the crawl is finished. Call it when this worker sees no unfinished URLs.

        Other workers may have leases or uncommitted URLs, so a shared frontier checks all partitions. True is certain;
        after False, call again.
        """
        return self.shared is None or await self.shared.is_finished()

    def report_starts(self, clock: Clock) -> Callable[[Fetcher], Fetcher]:
        shared = self.shared
        return lambda fetcher: StartReportingFetcher(fetcher, shared, clock) if shared is not None else fetcher

    def set_reporter(self, reporter: WorkerReporter) -> None:
        """In a shared crawl, send this worker's reports, regularly and when it leaves."""
        if self.shared is not None:
            self.shared.set_reporter(reporter.encode, partial(reporter.encode, ended=True))

    def progress_reader(self, reporter: WorkerReporter) -> Callable[[], Awaitable[RunProgress]] | None:
        """Return a function that sends this worker's counters and returns those of all workers."""
        shared = self.shared
        return (lambda: shared.progress(reporter.encode())) if shared is not None else None

    async def totals(self, reporter: WorkerReporter) -> dict[str, int]:
        if self.shared is not None:
            with suppress(StateError):  # missing totals must not fail the crawl
                return await self.shared.totals(reporter.encode())
        return {}


async def open_frontier(
    stack: AsyncExitStack, crawl: CrawlSpec, state: StateDir, *, rejoins: bool = False
) -> OpenFrontier:
    """Open the frontier. The stack closes it. Raises `LycosaError`.

    `rejoins`: the other workers have removed this one.
    """
    if crawl.settings.frontier:
        return OpenFrontier.joined(await _join(stack, crawl, state, rejoins=rejoins), rejoined=rejoins)
    if crawl.settings.expire_after:
        log.warning("expire_after has no effect without --frontier: only a crawl on Redis expires")
    state.check_complete()
    frontier = embedded_frontier(
        state.frontier, crawl.policy, sync=crawl.settings.sync, now=Clock().now(), expected=crawl.settings.expected_urls
    )
    stack.push_async_callback(frontier.close)
    return OpenFrontier.own(frontier)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for a state, and delete it after the block."""
    with tempfile.TemporaryDirectory(prefix="lycosa-") as folder:
        yield Path(folder)


def open_in_memory(stack: AsyncExitStack, policy: Policy) -> OpenFrontier:
    """Open a frontier in memory. The stack closes it."""
    frontier = memory_frontier(policy)
    stack.push_async_callback(frontier.close)
    return OpenFrontier.own(frontier)


async def _join(stack: AsyncExitStack, crawl: CrawlSpec, state: StateDir, *, rejoins: bool) -> SharedFrontier:
    settings = crawl.settings
    if settings.refresh is not None and not settings.keep_done:
        raise UsageError("--refresh needs the done URLs: start the shared crawl with -s keep_done=true")
    from lycosa.frontier.redis.worker.join import redis_frontier  # optional dependency

    name = settings.crawl_name or crawl.target.name
    member = membership(state.path / WORKER, name)
    frontier = await redis_frontier(
        settings.frontier,
        name,
        crawl.policy,
        member,
        log.warning,
        spider=_kind_of(crawl),
        partitions=settings.partitions,
        ahead=settings.concurrency,
        keep_alive=settings.keep_alive,
        keep_done=settings.keep_done,
        share_cookies=settings.cookies_shared,
        replicas=settings.replicas,
        again=rejoins,
        on_created=logging.getLogger(NOTICES).info,
    )
    stack.push_async_callback(_leave, frontier)
    member.changed()
    seeds = await _describe(frontier.crawl, f"the crawl {name!r}", crawl)
    known = dict.fromkeys([*state.description.seeds, *seeds])
    state.describe(msgspec.structs.replace(state.description, seeds=list(known)))
    return frontier


async def expire_finished(crawl: CrawlSpec, *, finished: bool) -> None:
    """Let a finished shared crawl expire, if the settings say so. Call it after this worker has left."""
    settings = crawl.settings
    if not (settings.frontier and settings.expire_after and finished):
        return
    from lycosa.frontier.redis.admin.expiry import expire_crawl  # optional dependency

    name = settings.crawl_name or crawl.target.name
    try:
        await expire_crawl(settings.frontier, name, settings.expire_after, log.warning)
    except StateError as error:
        log.warning("the crawl %r is finished, but does not expire: %s", name, error)


async def _leave(frontier: Frontier) -> None:
    """Leave the shared crawl, but give up after LEAVE_MAX_S seconds: the other workers then notice by themselves that
    this one has ended.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(LEAVE_MAX_S):
            await frontier.close()


def _kind_of(crawl: CrawlSpec) -> str:
    """Return a string that must be equal for all workers of a shared crawl."""
    names, rules = crawl.spider_names.replace("+", ", "), crawl.target.key
    kind = f"spider {names}" if names else "start URLs"
    return f"{kind} (--fingerprint-rules {' --fingerprint-rules '.join(rules)})" if rules else kind


async def _describe(shared: SharedCrawl, place: str, crawl: CrawlSpec) -> list[str]:
    """Store this worker's description. Return the start URLs of all workers, which define the scope.

    Raises `ForeignState` if the crawl has other spiders or fingerprint rules.
    """
    known, ours = await shared.description(), list(crawl.target.seeds)
    refuse_other_crawl(known, place, crawl, "another --crawl-name")
    await shared.describe(description_of(crawl, ours))
    if known.seeds and not {*ours} <= {*known.seeds} and await shared.workers() > 1:
        log.warning("new start URLs for %s: workers that joined earlier ignore links in the scope of these URLs", place)
    return list(dict.fromkeys([*known.seeds, *ours]))
