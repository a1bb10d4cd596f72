"""One crawl, from settings to summary."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from lycosa.app.parts import (
    Target,
    fetch_settings_of,
    indexer_of,
    items_file,
    policy_of,
    remember_seeds,
    retry_policy_of,
    rules_of,
    sinks_of,
    state_of,
    target_of,
    tell,
    written_to,
)
from lycosa.app.search import erase_index, open_index
from lycosa.app.visiting import visitor_of
from lycosa.clock import Clock, chance
from lycosa.config import Settings
from lycosa.core.errors import BadSpider, StateError
from lycosa.core.frontier import State
from lycosa.core.model import SegmentState, UrlRecord
from lycosa.engine.addresses import Addresses, FoundOnly
from lycosa.engine.committer import Committer
from lycosa.engine.engine import STOP_GRACE_S, Engine, Limits
from lycosa.engine.pipeline import Pipelines
from lycosa.engine.records import to_record
from lycosa.engine.refresh import CarryOver, refresh
from lycosa.engine.robots import RobotsGate
from lycosa.engine.space import FreeSpace
from lycosa.engine.spider import Spider, start_requests, users_code
from lycosa.engine.stats import RunStats, Snapshot, Summary
from lycosa.fetchers.curl import CurlFetcher
from lycosa.fetchers.resolver import SystemResolver
from lycosa.frontiers.embedded import embedded_frontier
from lycosa.frontiers.local import LocalFrontier
from lycosa.frontiers.operations import LocalOperations
from lycosa.frontiers.served import served
from lycosa.frontiers.statedir import StateDir
from lycosa.ports import Frontier, FrontierOperations, Sink

log = logging.getLogger(__name__)

SEEDS_BATCH = 1000
OBSERVE_EVERY_S = 0.25
DEAD_SHOWN = 10
CLOSED = (SegmentState.ARCHIVED, SegmentState.DROPPED)
SEEDS_LOOKED_UP = 100
"""Of so many start requests is looked up whether they are dead from an earlier run."""

GC_THRESHOLD = 20_000
"""Objects made before the garbage collector looks for cycles."""

Observer = Callable[[Snapshot], None]


def run_crawl(
    settings: Settings,
    target: Sequence[str] | type[Spider],
    *,
    spider_args: Mapping[str, str] | None = None,
    observe: Observer | None = None,
) -> Summary:
    """Crawl start URLs, or what a spider class says, until done or interrupted by SIGINT or SIGTERM.

    Blocks. Raises `LycosaError`; what was committed before stands, and the same call resumes it.
    """
    # A crawl makes garbage by the page and hardly any of it in cycles: looking for them less often saves a tenth.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(crawl(settings, target_of(settings, target, spider_args or {}), observe))


async def crawl(settings: Settings, target: Target, observe: Observer | None = None) -> Summary:
    """Crawl on the running loop. See `run_crawl`."""
    async with AsyncExitStack() as stack:
        state = StateDir(state_of(settings, target))
        stack.callback(state.close)
        if settings.overwrite:
            await _start_afresh(settings, state)
        state.refuse_half()
        frontier = embedded_frontier(
            state.frontier, policy_of(settings), sync=settings.sync, now=Clock().now(), expected=settings.expect
        )
        stack.push_async_callback(frontier.close)
        job = await stack.enter_async_context(wired(settings, target, state, frontier))
        await stack.enter_async_context(served(state.socket, job.operations))
        await job.push_seeds()
        idle = (await frontier.stats()).unfinished == 0
        if idle:
            await job.end()
        else:
            await job.run(observe)
        return await job.summary(nothing_to_do=idle)


@asynccontextmanager
async def wired(
    settings: Settings, target: Target, state: StateDir, frontier: LocalFrontier[Any]
) -> AsyncIterator[Job]:
    """Wire the parts of one run around a frontier, and close them afterwards, the last one first."""
    async with AsyncExitStack() as stack:
        seeds = remember_seeds(state, target, settings)
        rules = rules_of(settings, target, seeds)
        clock = Clock()
        stats = RunStats(clock.now())
        fetcher = CurlFetcher(fetch_settings_of(settings))
        stack.push_async_callback(fetcher.close)
        indexer = None
        if settings.index:
            index = open_index(Path(settings.index), write=True)
            stack.callback(index.close)
            indexer = indexer_of(settings, state, index)
        sinks = sinks_of(settings, state)
        listener = tell(indexer)
        space = FreeSpace(written_to(settings, state), settings.free_space)
        committer = Committer(frontier, sinks, settings.commit_every, settings.commit_acks, _each(listener, space))
        for sink in sinks:
            stack.push_async_callback(sink.close)
        earlier = await frontier.positions()
        starts = await committer.open_sinks(afresh=settings.overwrite)
        if indexer is not None:
            indexer.start()
            stack.push_async_callback(asyncio.to_thread, indexer.close)
            listener(starts)
        pipelines = Pipelines(target.spider.pipelines, target.spider)
        await pipelines.open()
        stack.push_async_callback(pipelines.close)
        addresses = Addresses(frontier, SystemResolver(settings.connect_timeout), clock)
        found_only = FoundOnly(fetcher, addresses)
        gate = RobotsGate(frontier, found_only, settings.user_agent, retry_policy_of(settings), chance)
        visitor = visitor_of(
            settings, target, rules, found_only, gate, pipelines, _preparer(sinks), frontier.known, stats, clock
        )
        limits = Limits(
            settings.concurrency, settings.max_pages, settings.lease_max, exit_when_idle=settings.exit_when_idle
        )
        engine = Engine(frontier, sinks, visitor, gate, addresses, committer, limits, stats, clock, space)
        operations = LocalOperations(frontier, partial(_commit, committer), engine.wake, partial(_paused, space))
        stats.notes += _moved(earlier, starts, settings)
        yield Job(settings, target, state, frontier, operations, engine, committer, stats)


class Job:
    """The wired parts of one run."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        state: StateDir,
        frontier: Frontier,
        operations: FrontierOperations,
        engine: Engine,
        committer: Committer,
        stats: RunStats,
    ) -> None:
        self._settings = settings
        self._spider = target.spider
        self._naming = target.naming
        self._state = state
        self._frontier = frontier
        self.operations = operations
        self._engine = engine
        self._committer = committer
        self._stats = stats
        self._interrupted = False
        self._resumed = False
        self._segment = self._closed = ""
        self._carry = CarryOver(frontier, operations, committer, "")

    async def push_seeds(self) -> None:
        """Queue the start requests; those known from an earlier run are dropped by the frontier.

        The first one decides which segment the run belongs to.
        """
        before = await self._frontier.stats()
        self._resumed = bool(before.done or before.dead)
        batch: list[UrlRecord] = []
        first: list[UrlRecord] = []
        segment = None
        async for request in start_requests(self._spider):
            if segment is None:
                segment = self._naming.segments.of_run(request, self._stats.started_at)
                await self._fetch_again(segment)
            batch.append(to_record(request, self._spider, naming=self._naming, segment=segment))
            if before.dead and len(first) < SEEDS_LOOKED_UP:
                first.append(batch[-1])
            if len(batch) >= SEEDS_BATCH:
                await self._push(batch)
                batch = []
        await self._push(batch)
        if segment is None:
            await self._fetch_again("")
        await self._note_the_dead(first)
        await self._note_a_closed_segment()
        if segment is None and not (self._resumed or before.unfinished):
            raise BadSpider(f"{type(self._spider).__name__} has nothing to start with: write start_urls in the class")

    async def _note_the_dead(self, seeds: Sequence[UrlRecord]) -> None:
        for seed in seeds:
            for row in await self.operations.find(seed.fingerprint, seed.host):
                if row.state == State.DEAD and row.record.segment == seed.segment:
                    again = f"lycosa frontier requeue --state {self._state.path} gives the dead a new life"
                    self._stats.note(f"the start URL {seed.url} is dead from an earlier run ({row.reason}): {again}")

    async def _note_a_closed_segment(self) -> None:
        """Say so when the segment of this run takes no more, for its seeds were refused without a word."""
        views = {view.name: view for view in await self.operations.segments()}
        if (view := views.get(self._segment)) is None or view.state not in CLOSED:
            return
        self._closed = f"segment {view.name} was {view.state}"
        what = f"segment {view.name}, which this run would fill, was {view.state} and takes no more"
        later = "wait until the next one begins, " if view.starts_at else ""
        self._stats.note(f"{what}: {later}give another --segment, or start afresh with -O")

    async def run(self, observe: Observer | None) -> None:
        """Crawl until nothing is left or a signal comes; then tell the spider."""
        reason = "failed"
        try:
            with _signals(self._interrupt):
                await self._watched(observe)
            reason = "interrupted" if self._interrupted else "finished"
        finally:
            with users_code(f"{type(self._spider).__name__}.closed"):
                told = self._spider.closed(reason)
                if inspect.isawaitable(told):
                    await told

    async def end(self) -> None:
        """There was nothing to do."""
        await self._committer.end()

    async def summary(self, *, nothing_to_do: bool) -> Summary:
        """Tell how it ended."""
        stats = await self._frontier.stats()
        dead = await self._frontier.dead(DEAD_SHOWN)
        enough = self._engine.enough and stats.unfinished > 0
        snapshot = await self._engine.snapshot()
        return Summary(
            finished=stats.unfinished == 0,
            interrupted=self._interrupted and stats.unfinished > 0 and not enough,
            nothing_to_do=nothing_to_do,
            resumed=self._resumed,
            snapshot=snapshot,
            reasons=stats.reasons,
            dead_reasons=stats.dead_reasons,
            skipped=dict(self._stats.skipped),
            dead=[(record.url, reason) for record, reason in dead],
            notes=self._notes(enough=enough),
            idle_until=self._engine.idle_until,
            ended_at=self._stats.started_at + snapshot.elapsed_s,
            items_path=items_file(self._settings),
            state_path=str(self._state.path),
            closed=self._closed,
        )

    def _notes(self, *, enough: bool) -> list[str]:
        if not enough:
            return self._stats.notes
        limit = self._settings.max_pages
        return [*self._stats.notes, f"stopped at --max-pages {limit}; with a larger number the same command goes on"]

    async def _fetch_again(self, segment: str) -> None:
        """Queue what of the kept state is to be fetched again; before the seeds, for it has validators."""
        self._segment = segment
        self._carry = CarryOver(self._frontier, self.operations, self._committer, segment)
        now, age_s = self._stats.started_at, self._settings.refresh
        old = 0 if age_s is None else await refresh(self.operations, segment, now - age_s, now)
        carried = await self._carry.more(now)
        if old or carried:
            log.info("to be fetched again: %d by age, %d of the segment before", old, carried)

    async def _push(self, batch: list[UrlRecord]) -> None:
        await self._frontier.push(batch)
        await self._committer.commit()
        await asyncio.sleep(0)  # or Ctrl-C would have to wait for the last of millions

    def _interrupt(self) -> None:
        if not self._interrupted and self._engine.busy:
            log.warning("stopping: what is under way gets %g s to end; once more ends it at once", STOP_GRACE_S)
        self._interrupted = True
        self._engine.stop()

    async def _watched(self, observe: Observer | None) -> None:
        watching = asyncio.create_task(self._observe(observe)) if observe else None
        try:
            await self._engine.run(self.operations, self._segment, self._carry.more)
        finally:
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def _observe(self, observe: Observer) -> None:
        while True:
            await asyncio.sleep(OBSERVE_EVERY_S)
            seen = await self._engine.snapshot()
            observe(seen)
            await self._engine.until_stirred(seen)


class _signals:  # noqa: N801  used like a function
    """SIGINT and SIGTERM call `handler` while this is open."""

    def __init__(self, handler: Callable[[], None]) -> None:
        self._handler = handler
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(name, self._handler)

    def __exit__(self, *_: object) -> None:
        for name in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(name)


def _each(listener: Callable[[Mapping[str, int]], None], space: FreeSpace) -> Callable[[Mapping[str, int]], None]:
    def committed(positions: Mapping[str, int]) -> None:
        listener(positions)
        space.check()

    return committed


def _paused(space: FreeSpace) -> str:
    return str(space.shortage or "")


async def _commit(committer: Committer) -> None:
    """Make durable what was changed from outside, together with the items. Raises `StateError`."""
    if not await committer.commit():
        raise StateError("the crawl is failing: what was changed now is not kept")


async def _start_afresh(settings: Settings, state: StateDir) -> None:
    """Forget the crawl, but only once it is certain that its output and its index can be written.

    In this order: killed in between, the next run refuses what it finds, and never puts new items beside old ones.
    """
    await _opened_and_closed(settings, state, None)
    if settings.index:
        _forget_indexed(settings, state, Path(settings.index))
    await _opened_and_closed(settings, state, 0)
    state.clear()


def _forget_indexed(settings: Settings, state: StateDir, folder: Path) -> None:
    """Read the items from their start again. An index of nothing else is emptied too; one of several crawls keeps pages
    that this crawl may not find any more."""
    with closing(open_index(folder, write=True)) as index:
        source = indexer_of(settings, state, index).source
        alone = set(index.positions()) <= {source}
        index.commit({source: 0})
    if alone:
        erase_index(folder)


async def _opened_and_closed(settings: Settings, state: StateDir, position: int | None) -> None:
    for sink in sinks_of(settings, state):
        await sink.open(position)
        await sink.close()


def _preparer(sinks: Sequence[Sink]) -> Callable[[object], list[object]]:
    return lambda item: [sink.prepare(item) for sink in sinks]


def _moved(earlier: Mapping[str, int], starts: Mapping[str, int], settings: Settings) -> list[str]:
    others = [name.partition(":")[2] for name, size in earlier.items() if ":" in name and size and name not in starts]
    if not others or settings.overwrite:
        return []
    return [f"earlier items of this crawl are in {', '.join(others)}; -O starts afresh"]
