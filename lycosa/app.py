"""The composition root: settings in, wired parts out. The only importer of adapters."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from urllib.parse import urlsplit

import uvloop

from lycosa.clock import Clock, chance
from lycosa.config import STANDARD_OUTPUT, Settings
from lycosa.core.frontier import Policy
from lycosa.core.model import FrontierStats, UrlRecord
from lycosa.core.retry import RetryPolicy
from lycosa.core.scope import Scope
from lycosa.core.url import canonicalize
from lycosa.engine.committer import Committer
from lycosa.engine.engine import Engine, Limits
from lycosa.engine.generic import SiteSpider
from lycosa.engine.indexer import Indexer
from lycosa.engine.pipeline import Pipelines
from lycosa.engine.records import to_record
from lycosa.engine.robots import RobotsGate
from lycosa.engine.spider import Spider, domains_as_urls
from lycosa.engine.stats import RunStats, Snapshot, Summary
from lycosa.engine.visit import Rules, Visitor
from lycosa.fetchers.curl import CurlFetcher, FetchSettings
from lycosa.frontiers.embedded import embedded_frontier
from lycosa.frontiers.statedir import Description, StateDir
from lycosa.ports import Frontier, Index, Sink
from lycosa.sinks.jsonl import JsonlSink
from lycosa.sinks.stdout import StdoutSink

STATES = Path(".lycosa")
SEEDS_BATCH = 1000
OBSERVE_EVERY_S = 0.25
DEAD_SHOWN = 10

Observer = Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class Target:
    """What is crawled: a spider, the seeds its scope is made of, and the name of the crawl."""

    spider: Spider
    name: str
    seeds: Sequence[str]
    generic: bool


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
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(crawl(settings, _target(settings, target, spider_args or {}), observe))


async def crawl(settings: Settings, target: Target, observe: Observer | None = None) -> Summary:
    """Crawl on the running loop. See `run_crawl`."""
    async with AsyncExitStack() as stack:
        state = StateDir(Path(settings.state) if settings.state else STATES / target.name)
        stack.callback(state.close)
        job = await stack.enter_async_context(_wired(settings, target, state))
        await job.push_seeds(target)
        before = await job.frontier.stats()
        idle = before.unfinished == 0
        if not idle:
            await job.run(observe)
        return await job.summary(settings, state, nothing_to_do=idle)


class Job:
    """The wired parts of one run."""

    def __init__(self, frontier: Frontier, engine: Engine, committer: Committer, stats: RunStats) -> None:
        self.frontier = frontier
        self._engine = engine
        self._committer = committer
        self._stats = stats
        self._interrupted = False

    async def push_seeds(self, target: Target) -> None:
        """Queue the start requests; those known from an earlier run are dropped by the frontier."""
        batch: list[UrlRecord] = []
        async for request in target.spider.start():
            batch.append(to_record(request, target.spider))
            if len(batch) >= SEEDS_BATCH:
                await self._push(batch)
                batch = []
        await self._push(batch)

    async def run(self, observe: Observer | None) -> None:
        """Crawl until nothing is left or a signal comes."""
        loop = asyncio.get_running_loop()
        for name in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(name, self._interrupt)
        watching = asyncio.create_task(self._observe(observe)) if observe else None
        try:
            await self._engine.run()
        finally:
            if watching:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
            for name in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(name)

    async def summary(self, settings: Settings, state: StateDir, *, nothing_to_do: bool) -> Summary:
        """Tell how it ended."""
        stats = await self.frontier.stats()
        dead = await self.frontier.dead(DEAD_SHOWN)
        enough = self._engine.enough and stats.unfinished > 0
        return Summary(
            finished=stats.unfinished == 0,
            interrupted=self._interrupted and stats.unfinished > 0 and not enough,
            nothing_to_do=nothing_to_do,
            snapshot=await self._engine.snapshot(),
            reasons=stats.reasons,
            dead_reasons=stats.dead_reasons,
            skipped=dict(self._stats.skipped),
            dead=[(record.url, reason) for record, reason in dead],
            notes=_notes(stats, self._stats, settings, enough=enough),
            items_path=settings.output if settings.output and settings.output != STANDARD_OUTPUT else "",
            state_path=str(state.path),
        )

    async def _push(self, batch: list[UrlRecord]) -> None:
        await self.frontier.push(batch)
        await self._committer.commit()

    def _interrupt(self) -> None:
        self._interrupted = True
        self._engine.stop()

    async def _observe(self, observe: Observer) -> None:
        while True:
            await asyncio.sleep(OBSERVE_EVERY_S)
            observe(await self._engine.snapshot())


@asynccontextmanager
async def _wired(settings: Settings, target: Target, state: StateDir) -> AsyncIterator[Job]:
    async with AsyncExitStack() as stack:
        if settings.overwrite:
            _start_afresh(settings, state)
        seeds = _remember_seeds(state, target)
        clock = Clock()
        stats = RunStats(clock.now())
        rules = _rules(settings, target, seeds)
        frontier = embedded_frontier(state.frontier, _policy(settings), sync=settings.sync)
        stack.push_async_callback(frontier.close)
        fetcher = CurlFetcher(_fetch_settings(settings))
        stack.push_async_callback(fetcher.close)
        sinks = _sinks(settings, state)
        indexer = _indexer(settings, state)
        committer = Committer(frontier, sinks, settings.commit_every, settings.commit_acks, _told(indexer))
        for sink in sinks:
            stack.push_async_callback(sink.close)
        await committer.open_sinks()
        if indexer is not None:
            indexer.start()
            stack.push_async_callback(asyncio.to_thread, indexer.close)
        pipelines = Pipelines(target.spider.pipelines, target.spider)
        await pipelines.open()
        stack.push_async_callback(pipelines.close)
        gate = RobotsGate(frontier, fetcher, settings.user_agent, rules.retry, chance)
        visitor = Visitor(target.spider, rules, fetcher, gate, pipelines, frontier.known, stats, clock, chance)
        limits = Limits(settings.concurrency, settings.max_pages)
        engine = Engine(frontier, sinks, visitor, gate, committer, limits, stats, clock)
        yield Job(frontier, engine, committer, stats)


def _target(settings: Settings, target: Sequence[str] | type[Spider], arguments: Mapping[str, str]) -> Target:
    if isinstance(target, type):
        spider = target(**arguments)
        return Target(spider, _safe(spider.name), [], generic=False)
    seeds = [canonicalize(url) for url in target]
    spider = SiteSpider(nofollow=not settings.follow_nofollow)
    spider.start_urls = seeds
    digest = blake2b("\n".join(sorted(seeds)).encode(), digest_size=4).hexdigest()
    return Target(spider, _safe(urlsplit(seeds[0]).netloc) + "-" + digest, seeds, generic=True)


def _safe(name: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in name)[:80].lstrip(".") or "crawl"


def _start_afresh(settings: Settings, state: StateDir) -> None:
    state.clear()
    if settings.output and settings.output != STANDARD_OUTPUT:
        Path(settings.output).unlink(missing_ok=True)


def _remember_seeds(state: StateDir, target: Target) -> list[str]:
    known = state.description.seeds
    seeds = [*known, *(seed for seed in dict.fromkeys(target.seeds) if seed not in set(known))]
    state.describe(Description(name=target.name, seeds=seeds))
    return seeds


def _rules(settings: Settings, target: Target, seeds: Sequence[str]) -> Rules:
    if target.generic:
        kind, roots = settings.scope, seeds
    else:
        roots = domains_as_urls(target.spider.allowed_domains)
        kind = "domain" if roots else "any"
    scope = Scope.of(kind, roots, depth_max=settings.depth, allow=settings.allow, deny=settings.deny)
    types = frozenset(settings.content_types) if target.generic else frozenset()
    return Rules(scope, RetryPolicy(retries_max=settings.retries), types, settings.robots)


def _policy(settings: Settings) -> Policy:
    return Policy(settings.delay, settings.concurrency_per_host, settings.lease, settings.robots)


def _fetch_settings(settings: Settings) -> FetchSettings:
    pairs = (line.partition(":") for line in settings.header)
    return FetchSettings(
        user_agent=settings.user_agent,
        timeout_s=settings.timeout,
        connect_timeout_s=settings.connect_timeout,
        max_body_bytes=settings.max_body,
        headers={name.strip(): value.strip() for name, _, value in pairs},
        proxy=settings.proxy,
        insecure=settings.insecure,
    )


def _sinks(settings: Settings, state: StateDir) -> list[Sink]:
    if settings.output and settings.output != STANDARD_OUTPUT:
        return [JsonlSink(settings.output, sync=settings.sync)]
    spool: list[Sink] = [JsonlSink(state.items, sync=settings.sync)] if settings.index else []
    return [StdoutSink(), *spool]


def _indexer(settings: Settings, state: StateDir) -> Indexer | None:
    if not settings.index:
        return None
    file = settings.output if settings.output and settings.output != STANDARD_OUTPUT else str(state.items)
    sink = JsonlSink(file)
    index = open_index(Path(settings.index), write=True)
    if settings.overwrite:
        index.commit({sink.name: 0})
    return Indexer(index, Path(sink.path), sink.name)


def _told(indexer: Indexer | None) -> Callable[[dict[str, int]], None]:
    def tell(positions: dict[str, int]) -> None:
        if indexer is not None:
            indexer.advance(positions[indexer.source])

    return tell


def open_index(path: Path, *, write: bool = False) -> Index:
    """Open the search index in a folder. Raises `IndexFailure`."""
    from lycosa.indexes.tantivy import TantivyIndex

    return TantivyIndex(path, write=write)


def erase_index(path: Path) -> None:
    """Empty the search index in a folder, so that it can be built anew. Raises `IndexFailure`."""
    from lycosa.indexes.tantivy import erase

    erase(path)


def _notes(stats: FrontierStats, run: RunStats, settings: Settings, *, enough: bool) -> list[str]:
    notes = list(run.notes)
    if enough:
        notes.append(f"stopped at --max-pages {settings.max_pages}; with a larger number the same command goes on")
    return notes
