"""The parts of one run, wired around a frontier, for every member of the crew."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from lycosa.app.crawl.description import remember_seeds
from lycosa.app.crawl.extras import conditions_of, extensions_of, memory_of, pipelines_of
from lycosa.app.crawl.fetchers import fetchers_of
from lycosa.app.crawl.job import Job, RunHooks
from lycosa.app.crawl.outputs import Feeds
from lycosa.app.crawl.parts import indexer_of, retry_policy_of, rules_of, tell, written_to
from lycosa.app.crawl.runtime import (
    Cast,
    Site,
    downloader_of,
    lender_for,
    retrying_of,
    spider_chain_of,
    statuses_of,
    visitor_of,
)
from lycosa.app.crawl.spec import Crew, Member
from lycosa.app.crawl.workers import processes_of
from lycosa.app.frontier.shared import OpenFrontier
from lycosa.config import Settings
from lycosa.core.errors import StateError
from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.engine.engine import Engine, Limits, Visiting
from lycosa.crawl.engine.run_end import Endings
from lycosa.crawl.engine.run_parts import HostQuestions, RunMonitor, RunStorage
from lycosa.crawl.engine.state_saver import Keeping, SpiderState
from lycosa.crawl.engine.visit import Visitor, Visitors
from lycosa.crawl.events.dispatcher import Audience, Listener
from lycosa.crawl.events.signals import Signals, response_received, robots_parsed
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import counting_logs
from lycosa.crawl.fetching.addresses import Addresses
from lycosa.crawl.fetching.download import Downloader
from lycosa.crawl.fetching.guard import Guard
from lycosa.crawl.fetching.inline import Inline
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.fetching.scope_stats import CountedScope
from lycosa.crawl.items.handover import Handover
from lycosa.crawl.items.indexer import Indexer
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.middlewares.throttle import SetDelay
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.workers.remote import AllCookies
from lycosa.crawl.workers.threads import CallbackThreads
from lycosa.frontier.ports import Frontier, VisitFrontier
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.private_addresses import Allowed
from lycosa.http.core.request import Request
from lycosa.http.core.robots import Robots
from lycosa.http.ports import Into
from lycosa.http.resolver import SystemResolver
from lycosa.infra.clock import Clock, chance
from lycosa.storage.keystore.sqlite import SqliteRecords
from lycosa.storage.ports import Sink


@asynccontextmanager
async def wired(
    crew: Crew,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    handover: Handover | None = None,
) -> AsyncIterator[Job]:
    """Wire the parts of one run around a frontier, and close them afterwards, the last one first.

    With `handover` the items go there, too.
    """
    job = None
    try:
        async with AsyncExitStack() as stack:
            stack.enter_context(counting_logs(crew.target.crawler.stats))
            job = await _job(stack, crew, state, opened, sinks, handover)
            yield job
    finally:
        if job is not None:
            await job.stopped()


async def _job(
    stack: AsyncExitStack,
    crew: Crew,
    state: StateDir,
    opened: OpenFrontier,
    sinks: Sequence[Sink],
    handover: Handover | None,
) -> Job:
    frontier, settings, crawlers = opened.frontier, crew.settings, [member.target.crawler for member in crew.members]
    seeds = remember_seeds(state, crew)
    clock = Clock()
    stats = RunStats(clock.now())
    indexer = _indexer(stack, settings, state)
    listener = tell(indexer)
    space = FreeSpace(written_to(settings, state), settings.free_space, elsewhere=opened.shortage)
    committer = Committer(frontier, sinks, settings.commit_every, settings.commit_acks, _each(listener, space))
    feeds = await stack.enter_async_context(Feeds(sinks, crawlers))
    earlier = await frontier.positions()
    starts = await committer.open_sinks(afresh=settings.overwrite)
    if indexer is not None:
        indexer.start()
        stack.push_async_callback(_ended, indexer)
        listener(starts)
    keeping = Keeping(SqliteRecords(state.records, sync=settings.sync))
    stack.push_async_callback(keeping.close)
    committer.keep = keeping.keep
    addresses = Addresses(frontier, SystemResolver(settings.connect_timeout), clock)
    rest, delay, report_starts = frontier.block_host, _delayer(frontier, clock), opened.report_starts(clock)
    known, prepare, folder = _known(frontier, stats), _preparer(sinks), str(state.path.resolve())
    jars = AllCookies() if settings.processes > 1 else opened.cookies
    lender = await lender_for(stack, settings, clock)
    site = Site(known, prepare, stats, keeping, clock, rest, delay, folder, jars, lender, report_starts)
    troupe = [await cast_of(stack, member, frontier, addresses, seeds, site) for member in crew.members]
    gate = _joined([cast.gate for cast in troupe])
    inlines = []
    visitors: dict[str, Visitor] = {}
    begins: dict[str, Sequence[Method]] = {}
    for cast in troupe:
        downloader = downloader_of(cast, site)
        inlines.append(inline_of(cast, frontier, downloader, clock, addresses))
        name, chain = cast.member.target.naming.spider, spider_chain_of(cast)
        begins[name] = chain.starts
        if settings.processes == 1:
            pipelines = await extras_of(stack, cast, handover)
            visitors[name] = visitor_of(cast, site, downloader, chain, pipelines)
    processes = None
    if settings.processes > 1:
        processes = processes_of(stack, crew, state, seeds, frontier, addresses, site, [cast.gate for cast in troupe])
    visitor: Visiting = processes if processes is not None else visitor_among(visitors)
    held = processes.memory_bytes if processes is not None else None
    endings = Endings(conditions_of(settings), stats, crawlers[0].stats, memory_of(settings, crawlers, held))
    storage = RunStorage(frontier, sinks, committer, space)
    monitor = RunMonitor(stats, endings, Audience([_listener(member) for member in crew.members]))
    engine = Engine(storage, visitor, HostQuestions(gate, addresses), _limits(settings), monitor, clock)
    if processes is not None:
        processes.begin(engine)
    for crawler, inline in zip(crawlers, inlines, strict=True):
        crawler.stops_with(engine.close)
        inline.wake = engine.wake
    operations = opened.operations(partial(_commit, committer), engine.wake, partial(_paused, space))
    stats.notes += _moved(earlier, starts, settings)
    return Job(crew, state, opened, storage, engine, monitor, operations, RunHooks(begins, feeds, processes))


def _limits(settings: Settings) -> Limits:
    return Limits(
        settings.concurrency,
        settings.max_pages,
        settings.lease_max,
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


def visitor_among(visitors: Mapping[str, Visitor]) -> Visitor | Visitors:
    """Return the one visitor, or what lets each of several visit the records of its spider."""
    return visitors[""] if "" in visitors else Visitors(visitors)


def _listener(member: Member) -> Listener:
    return Listener(member.target.naming.spider, member.spider, member.target.crawler.signals)


def _known(frontier: Frontier, stats: RunStats) -> Callable[[str, Sequence[int]], AbstractSet[int]]:
    """Return the question for what is known, which counts the answers."""

    def known(segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        found = frontier.known(segment, fingerprints)
        stats.known += len(found)
        return found

    return known


def _joined(gates: Sequence[RobotsGate]) -> RobotsGate:
    """Let each of the gates know what any of them learns. Return the one that answers the frontier's questions."""
    for gate in gates:
        gate.others = [each for each in gates if each is not gate]
    return gates[0]


async def cast_of(
    stack: AsyncExitStack,
    member: Member,
    frontier: VisitFrontier,
    addresses: Addresses,
    seeds: Sequence[str],
    site: Site,
) -> Cast:
    """Make what one spider has of its own; the stack closes it."""
    settings, crawler, stats = member.settings, member.target.crawler, member.target.crawler.stats
    crawler.records = site.keeping.store
    fetchers = fetchers_of(stack, member, addresses, site)
    policy, now = retry_policy_of(settings), site.clock.now
    guard = Guard(Allowed(settings.allow_private))
    gate = RobotsGate(frontier, fetchers.robots, settings.user_agent, policy, chance, now, stats, guard)
    gate.on_parsed = partial(_robots_parsed, crawler.signals)
    rules = rules_of(settings, member.target, seeds)
    rules = replace(rules, scope=CountedScope(rules.scope, stats))
    if not member.target.generic:
        site.keeping.keepers.append(SpiderState(site.keeping.store, member.spider).keep)
    in_thread = None
    if settings.callback_mode == "thread":
        threads = CallbackThreads(settings.callback_threads)
        stack.push_async_callback(threads.close)
        in_thread = threads.run
    statuses, retrying = statuses_of(member), retrying_of(member, site)
    return Cast(member, crawler, rules, fetchers.pages, gate, statuses, retrying, guard, in_thread, fetchers.pooled)


async def _received(cast: Cast, inline: Inline, request: Request | str, into: Into | None = None) -> Response:
    """Fetch inline, and count the response."""
    response = await inline.fetch(request, into)
    crawler, about = cast.crawler, {"request": response.request, "spider": cast.member.spider}
    crawler.stats.inc_value("response_received_count")
    if crawler.signals.on_response_received:
        await crawler.signals.send(response_received, response=response, **about)
    return response


def _robots_parsed(signals: Signals, robots: Robots, request: Request) -> None:
    if signals.on_robots_parsed:
        signals.post(robots_parsed, robotparser=robots, request=request)


def _delayer(frontier: Frontier, clock: Clock) -> SetDelay:
    def set_delay(host: str, delay_s: float) -> Awaitable[None]:
        return frontier.set_delay(host, delay_s, clock.now())

    return set_delay


def inline_of(
    cast: Cast, frontier: VisitFrontier, downloader: Downloader, clock: Clock, addresses: Addresses
) -> Inline:
    """Return what fetches for the callbacks of a spider, and give it to them."""
    gate = cast.gate if cast.member.settings.robots else None
    spider, naming = cast.member.spider, cast.member.target.naming
    inline = Inline(frontier, downloader, gate, spider, naming, clock, addresses.tell)
    cast.crawler.download = partial(_received, cast, inline)
    return inline


async def extras_of(stack: AsyncExitStack, cast: Cast, handover: Handover | None) -> Pipelines:
    """Make and open what the settings add to a spider. Return its pipelines; the stack closes them."""
    for extension in extensions_of(cast.member.settings, cast.crawler):
        stack.callback(lambda _kept: None, extension)  # it lives as long as the run
    pipelines = pipelines_of(cast.member, cast.crawler, handover)
    await pipelines.open()
    stack.push_async_callback(pipelines.close)
    return pipelines


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
