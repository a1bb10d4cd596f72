"""Builds one run over an open frontier: `_build` names its parts in the order in which they are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lycosa.app.crawl.description import remember_seeds
from lycosa.app.crawl.extras import conditions_of, memory_of
from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.job import Job, RunHooks
from lycosa.app.crawl.outputs import Feeds
from lycosa.app.crawl.parts import indexer_of, tell, written_to
from lycosa.app.crawl.runtime import (
    Cast,
    Site,
    cast_of,
    downloader_of,
    extras_of,
    inline_of,
    join_gates,
    leaser_for,
    spider_chain_of,
    visitor_among,
    visitor_of,
)
from lycosa.app.crawl.spec import Crew, Member
from lycosa.app.crawl.workers import WorkerProcesses, open_workers
from lycosa.config import Settings
from lycosa.core.errors import StateError
from lycosa.crawl.engine.close_monitor import CloseMonitor
from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.engine.engine import Engine, EngineLimits, LeaseVisitor
from lycosa.crawl.engine.run_parts import HostLookups, RunMonitor, RunStorage
from lycosa.crawl.engine.state_saver import StateSaver
from lycosa.crawl.engine.visit import Visitor
from lycosa.crawl.events.dispatcher import EventDispatcher, SpiderListener
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import counting_logs
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.inline import InlineFetcher
from lycosa.crawl.items.indexer import Indexer
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.middlewares.auto_throttle import SetDelay
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.workers.remote import CookieBroadcast
from lycosa.frontier.ports import Frontier, SharedCookies
from lycosa.frontier.state_dir import StateDir
from lycosa.http.resolver import SystemResolver
from lycosa.infra.clock import Clock
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from lycosa.storage.ports import Sink


@asynccontextmanager
async def wired(
    crew: Crew,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    channel: ItemChannel | None = None,
) -> AsyncIterator[Job]:
    """Build one run over an open frontier, and close its parts afterwards, the last one first.

    With `channel` the items go there, too.
    """
    job = None
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(counting_logs(crew.target.crawler.stats))
            job = await _build(stack, crew, state, opened, sinks, channel)
            yield job
    finally:
        if job is not None:
            await job.stopped()


async def _build(
    stack: AsyncExitStack,
    crew: Crew,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    channel: ItemChannel | None,
) -> Job:
    settings, clock = crew.settings, Clock()
    stats = RunStats(clock.now())
    seeds = remember_seeds(state, crew)

    # What the run reads from and writes to.
    outputs = await _open_outputs(stack, crew, state, opened, sinks, stats)
    storage = outputs.storage

    # What all spiders share, then what each has of its own: fetchers, middlewares, callbacks.
    addresses = HostAddresses(storage.frontier, SystemResolver(settings.connect_timeout), clock)
    process_cookies = CookieBroadcast() if settings.processes > 1 else None
    site = await _site(stack, crew, state, opened, process_cookies or opened.cookies, outputs, stats, clock)
    troupe = [await cast_of(stack, member, storage.frontier, addresses, seeds, site) for member in crew.members]
    gates = join_gates([cast.gate for cast in troupe])

    # Pages are visited in this process, or in others; callbacks of the owner fetch inline either way.
    spiders = await _spiders(stack, troupe, site, storage.frontier, addresses, channel)
    processes = None
    if process_cookies is not None:
        processes = open_workers(stack, crew, state, seeds, opened, addresses, site, gates, process_cookies)
    visitor: LeaseVisitor = processes if processes is not None else visitor_among(spiders.visitors)

    # The engine leases, lets visit, and settles.
    monitor = _monitor(crew, stats, processes)
    questions = HostLookups(gates[0], addresses)
    engine = Engine(storage, visitor, questions, _limits(settings), monitor, clock)
    if processes is not None:
        processes.begin(engine)
    for cast, inline in zip(troupe, spiders.inlines, strict=True):
        cast.crawler.set_stop(engine.close)
        inline.wake = engine.wake

    # The run: start requests, signals, `lycosa frontier`, the summary.
    commit, paused = partial(_commit, storage.committer), partial(_paused, storage.space)
    operations = opened.operations(commit, engine.wake, paused)
    hooks = RunHooks(spiders.begins, outputs.feeds, processes)
    return Job(crew, state, opened, storage, engine, monitor, operations, hooks)


class _Outputs(NamedTuple):
    """Where a run writes: its storage, the feeds that tell spiders of outputs, what is kept beside the frontier."""

    storage: RunStorage
    feeds: Feeds
    state_saver: StateSaver


async def _open_outputs(
    stack: AsyncExitStack, crew: Crew, state: StateDir, opened: OpenFrontier, sinks: Sequence[Sink], stats: RunStats
) -> _Outputs:
    """Open the outputs where the last commit of the frontier says that they end. The stack closes them."""
    settings, frontier = crew.settings, opened.frontier
    indexer = _indexer(stack, settings, state)
    listener = tell(indexer)
    space = FreeSpace(written_to(settings, state), settings.free_space, other_shortage=opened.shortage)
    committer = Committer(frontier, sinks, settings.commit_every, settings.commit_acks, _each(listener, space))
    feeds = await stack.enter_async_context(Feeds(sinks, [member.target.crawler for member in crew.members]))
    earlier = await frontier.positions()
    starts = await committer.open_sinks(afresh=settings.overwrite)
    stats.notes += _moved(earlier, starts, settings)
    if indexer is not None:
        indexer.start()
        stack.push_async_callback(_ended, indexer)
        listener(starts)
    state_saver = StateSaver(SqliteKeyStore(state.records, sync=settings.sync))
    stack.push_async_callback(state_saver.close)
    committer.save = state_saver.save
    return _Outputs(RunStorage(frontier, sinks, committer, space), feeds, state_saver)


async def _site(
    stack: AsyncExitStack,
    crew: Crew,
    state: StateDir,
    opened: OpenFrontier,
    cookies: SharedCookies | None,
    outputs: _Outputs,
    stats: RunStats,
    clock: Clock,
) -> Site:
    settings, frontier = crew.settings, opened.frontier
    return Site(
        known=_known(frontier, stats),
        prepare=_preparer(outputs.storage.sinks),
        stats=stats,
        state_saver=outputs.state_saver,
        clock=clock,
        rest=frontier.block_host,
        set_delay=_delayer(frontier, clock),
        state=str(state.path.resolve()),
        shared_cookies=cookies,
        leaser=await leaser_for(stack, settings, clock),
        report_starts=opened.report_starts(clock),
    )


class _Spiders(NamedTuple):
    """What the spiders of a run do: fetch inline, begin (`process_start` of their middlewares), and visit pages, if
    that is done in this process; the last two by the name that their records carry."""

    inlines: list[InlineFetcher]
    begins: dict[str, Sequence[Method]]
    visitors: dict[str, Visitor]


async def _spiders(
    stack: AsyncExitStack,
    troupe: Sequence[Cast],
    site: Site,
    frontier: Frontier,
    addresses: HostAddresses,
    channel: ItemChannel | None,
) -> _Spiders:
    spiders = _Spiders([], {}, {})
    for cast in troupe:
        downloader = downloader_of(cast, site)
        spiders.inlines.append(inline_of(cast, frontier, downloader, site.clock, addresses))
        name, chain = cast.member.target.naming.spider, spider_chain_of(cast)
        spiders.begins[name] = chain.starts
        if cast.member.settings.processes == 1:
            pipelines = await extras_of(stack, cast, channel)
            spiders.visitors[name] = visitor_of(cast, site, downloader, chain, pipelines)
    return spiders


def _monitor(crew: Crew, stats: RunStats, processes: WorkerProcesses | None) -> RunMonitor:
    settings, crawlers = crew.settings, [member.target.crawler for member in crew.members]
    held = processes.memory_bytes if processes is not None else None
    endings = CloseMonitor(conditions_of(settings), stats, crawlers[0].stats, memory_of(settings, crawlers, held))
    return RunMonitor(stats, endings, EventDispatcher([_listener(member) for member in crew.members]))


def _limits(settings: Settings) -> EngineLimits:
    return EngineLimits(
        settings.concurrency,
        settings.max_pages,
        settings.max_lease,
        exit_when_idle=settings.exit_when_idle,
        shared=bool(settings.frontier),
    )


def _indexer(stack: AsyncExitStack, settings: Settings, state: StateDir) -> Indexer | None:
    """Return what follows the items into the index, if there is to be one."""
    if not settings.index:
        return None
    from lycosa.app.search import open_index  # slow to import, and seldom needed

    index = open_index(Path(settings.index), write=True)
    stack.callback(index.close)
    return indexer_of(settings, state, index)


async def _ended(indexer: Indexer) -> None:
    """Let it index the rest; when nobody waits for that, end it all the same: its index is closed next."""
    try:
        await asyncio.to_thread(indexer.close)
    except asyncio.CancelledError:
        indexer.close(drain=False)
        raise


def _listener(member: Member) -> SpiderListener:
    return SpiderListener(member.target.naming.spider, member.spider, member.target.crawler.signals)


def _known(frontier: Frontier, stats: RunStats) -> Callable[[str, Sequence[int]], AbstractSet[int]]:
    """Return the question for what is known, which counts the answers."""

    def known(segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        found = frontier.known(segment, fingerprints)
        stats.known_links += len(found)
        return found

    return known


def _delayer(frontier: Frontier, clock: Clock) -> SetDelay:
    def set_delay(host: str, delay_s: float) -> Awaitable[None]:
        return frontier.set_delay(host, delay_s, clock.now())

    return set_delay


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


def _preparer(sinks: Sequence[Sink]) -> Callable[[object], list[object]]:
    return lambda item: [sink.prepare(item) for sink in sinks]


def _moved(earlier: Mapping[str, int], starts: Mapping[str, int], settings: Settings) -> list[str]:
    others = [name.partition(":")[2] for name, size in earlier.items() if ":" in name and size and name not in starts]
    if not others or settings.overwrite:
        return []
    there = f"earlier items of this crawl are in {', '.join(others)}"
    return [there if settings.frontier else f"{there}; -O starts afresh"]
