"""Build the parts of a run and connect them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from lycosa.app.crawl.crawl_run import CrawlRun, RunHooks
from lycosa.app.crawl.description import log_start, remember_seeds
from lycosa.app.crawl.extras import close_conditions, commit_with_crawl, memory_monitor
from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.outputs import Feeds
from lycosa.app.crawl.parts import index_listener, indexer_of, written_paths
from lycosa.app.crawl.runtime import (
    CrawlContext,
    combine_visitors,
    connect_gates,
    make_downloader,
    make_inline_fetcher,
    open_leaser,
    open_runtime,
    open_visitor,
    spider_chain_of,
)
from lycosa.app.crawl.spec import CrawlSpec
from lycosa.app.crawl.workers import WorkerProcesses, open_workers
from lycosa.app.index_places import index_place
from lycosa.config import Settings
from lycosa.core.errors import BadSetting, StateError
from lycosa.crawl.engine.close_monitor import CloseMonitor
from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.engine.engine import Engine, EngineLimits, LeaseVisitor
from lycosa.crawl.engine.refresh import CARRIED
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
from lycosa.crawl.items.pipeline_commits import PipelineCommits
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.workers.remote import CookieBroadcast
from lycosa.frontier.state_dir import StateDir
from lycosa.http.resolver import SystemResolver
from lycosa.infra.clock import Clock
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from lycosa.storage.ports import Sink


@asynccontextmanager
async def open_run(
    crawl: CrawlSpec,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    channel: ItemChannel | None = None,
) -> AsyncIterator[CrawlRun]:
    """Build one run on an open frontier. Afterwards close its parts in reverse order.

    Items are also sent to `channel`.
    """
    run = None
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(counting_logs(crawl.target.crawler.stats))
            log_start(crawl, state)
            run = await _build(stack, crawl, state, opened, sinks, channel)
            yield run
    finally:
        if run is not None:
            await run.after_close()


async def _build(
    stack: AsyncExitStack,
    crawl: CrawlSpec,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    channel: ItemChannel | None,
) -> CrawlRun:
    settings, frontier, clock = crawl.settings, opened.frontier, Clock()
    stats = RunStats(clock.now())
    seeds = remember_seeds(state, crawl)

    # The outputs of the run, and its key store.
    storage, feeds, state_saver, pipeline_commits = await _open_outputs(stack, crawl, state, opened, sinks, stats)

    # Shared by all spiders; then the parts of each spider: fetchers, middlewares, callbacks.
    addresses = HostAddresses(frontier, SystemResolver(settings.connect_timeout), clock)
    process_cookies = CookieBroadcast() if settings.processes > 1 else None
    context = CrawlContext(
        known=frontier.known,
        sinks=sinks,
        stats=stats,
        state_saver=state_saver,
        clock=clock,
        block_host=frontier.block_host,
        set_delay=lambda host, delay_s: frontier.set_delay(host, delay_s, clock.now()),
        state=str(state.path.resolve()),
        shared_cookies=process_cookies or opened.cookies,
        leaser=await open_leaser(stack, settings, clock),
        report_starts=opened.report_starts(clock),
        pipeline_commits=pipeline_commits,
    )
    runtimes = [await open_runtime(stack, spec, frontier, addresses, seeds, context) for spec in crawl.spiders]
    gates = connect_gates([runtime.gate for runtime in runtimes])

    # Pages are visited in this process or in worker processes. In either case, code in this process can fetch inline.
    inline_fetchers: list[InlineFetcher] = []
    process_starts: dict[str, Sequence[Method]] = {}
    visitors: dict[str, Visitor] = {}
    for runtime in runtimes:
        downloader, chain = make_downloader(runtime, context), spider_chain_of(runtime)
        inline_fetchers.append(make_inline_fetcher(runtime, frontier, downloader, clock, addresses))
        name = runtime.spec.target.naming.spider
        process_starts[name] = chain.starts
        if settings.processes == 1:
            visitors[name] = await open_visitor(stack, runtime, context, downloader, chain, channel)
    if pipeline_commits is not None:
        await pipeline_commits.resume()
    processes = None
    if process_cookies is not None:
        processes = open_workers(stack, crawl, state, seeds, opened, addresses, context, gates, process_cookies)
    visitor: LeaseVisitor = processes if processes is not None else combine_visitors(visitors)

    # The engine leases URLs, passes the leases to the visitor, and settles the outcomes.
    monitor = _monitor(crawl, stats, processes)
    engine = Engine(storage, visitor, HostLookups(gates[0], addresses), _limits(settings), monitor, clock)
    if processes is not None:
        processes.set_engine(engine)  # set only now, because the engine itself needs the processes as its visitor
    for runtime, inline in zip(runtimes, inline_fetchers, strict=True):
        runtime.crawler.set_stop(engine.close)
        inline.wake = engine.wake
    for each in visitors.values():
        each.on_transfer_end = engine.end_transfer

    # The run: start requests, signals, operations for `lycosa frontier`, the summary.
    operations = opened.operations(
        partial(_commit, storage.committer), engine.wake, lambda: str(storage.space.shortage or "")
    )
    hooks = RunHooks(process_starts, feeds, processes)
    return CrawlRun(crawl, state, opened, storage, engine, monitor, operations, hooks)


def _pipeline_commits(crawl: CrawlSpec) -> PipelineCommits | None:
    """Raises `BadSetting`."""
    if not any(commit_with_crawl(spec) for spec in crawl.spiders):
        return None
    if crawl.settings.processes > 1:
        raise BadSetting(
            "processes: a pipeline with before_commit needs 1 process; for more, start workers with --frontier"
        )
    return PipelineCommits()


async def _open_outputs(
    stack: AsyncExitStack,
    crawl: CrawlSpec,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    stats: RunStats,
) -> tuple[RunStorage, Feeds, StateSaver, PipelineCommits | None]:
    """Open the outputs at the positions of the last commit. The stack closes them."""
    settings, frontier = crawl.settings, opened.frontier
    indexer = _open_indexer(stack, settings, state)
    notify_indexer = index_listener(indexer)
    space = FreeSpace(written_paths(settings, state), settings.free_space, other_shortage=opened.shortage)

    def on_commit(positions: Mapping[str, int]) -> None:
        notify_indexer(positions)
        space.check()

    pipeline_commits = _pipeline_commits(crawl)
    committed = [*sinks, pipeline_commits] if pipeline_commits is not None else sinks
    committer = Committer(frontier, committed, settings.commit_every, settings.commit_acks, on_commit)
    feeds = await stack.enter_async_context(Feeds(sinks, [spec.target.crawler for spec in crawl.spiders]))
    earlier = await frontier.positions()
    positions = await committer.open_sinks(afresh=settings.overwrite)
    stats.notes += _earlier_output_notes(earlier, positions, settings)
    if indexer is not None:
        indexer.start()
        stack.push_async_callback(_close_indexer, indexer)
        notify_indexer(positions)
    state_saver = StateSaver(SqliteKeyStore(state.records, sync=settings.sync))
    stack.push_async_callback(state_saver.close)
    committer.save = state_saver.save
    return RunStorage(frontier, committed, committer, space), feeds, state_saver, pipeline_commits


def _limits(settings: Settings) -> EngineLimits:
    idle, shared = settings.exit_when_idle, bool(settings.frontier)
    return EngineLimits(
        settings.concurrency,
        settings.max_pages,
        settings.max_lease,
        settings.max_callback_bytes,
        exit_when_idle=idle,
        shared=shared,
    )


def _monitor(crawl: CrawlSpec, stats: RunStats, processes: WorkerProcesses | None) -> RunMonitor:
    settings, crawlers = crawl.settings, [spec.target.crawler for spec in crawl.spiders]
    memory = memory_monitor(settings, crawlers, processes.memory_bytes if processes is not None else None)
    listeners = [
        SpiderListener(spec.target.naming.spider, spec.spider, spec.target.crawler.signals) for spec in crawl.spiders
    ]
    close_monitor = CloseMonitor(close_conditions(settings), stats, crawlers[0].stats, memory)
    return RunMonitor(stats, close_monitor, EventDispatcher(listeners))


def _open_indexer(stack: AsyncExitStack, settings: Settings, state: StateDir) -> Indexer | None:
    if not settings.index:
        return None
    from lycosa.app.search import open_index  # slow to import, and seldom needed

    index = open_index(index_place(settings.index), write=True)
    stack.callback(index.close)
    return indexer_of(settings, state.items, index)


async def _close_indexer(indexer: Indexer) -> None:
    """Close the indexer; if cancelled, stop it before its index is closed."""
    try:
        await asyncio.to_thread(indexer.close)
    except asyncio.CancelledError:
        indexer.close(drain=False)
        raise


async def _commit(committer: Committer) -> None:
    """Commit changes made through `FrontierOperations`, together with the items. Raises `StateError`."""
    if not await committer.commit():
        raise StateError("the crawl is failing: this change is not saved")


def _earlier_output_notes(earlier: Mapping[str, int], positions: Mapping[str, int], settings: Settings) -> list[str]:
    """Return notes if outputs of earlier runs are not used by this run, or have items that a new output lacks."""
    parts = {name: name.partition(":") for name, size in earlier.items() if size}
    written = {name: place for name, (kind, _, place) in parts.items() if place and kind != CARRIED}
    added = [name.partition(":")[2] for name in positions if ":" in name and name not in earlier]
    others = [place for name, place in written.items() if added or name not in positions]
    if not others or settings.overwrite:
        return []
    note = f"earlier items of this crawl are in {', '.join(others)}"
    if added:
        note += f", and not in {', '.join(added)}"
    return [note if settings.frontier else f"{note}; -O starts afresh"]
