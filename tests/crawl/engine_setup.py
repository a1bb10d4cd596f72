"""Builds an engine of real parts with a frontier in memory, for tests with a spider and a tree of pages."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from lycosa.app.crawl.parts import Target
from lycosa.app.crawl.runtime import (
    CrawlContext,
    SpiderRuntime,
    make_downloader,
    make_visitor,
    retry_decider_of,
    spider_chain_of,
    statuses_of,
)
from lycosa.app.crawl.spec import SpiderSpec
from lycosa.config import Settings
from lycosa.core.retry import RetryPolicy
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.disk_guard import FreeSpace
from lycosa.crawl.engine.engine import Engine, EngineLimits
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.run_parts import HostLookups, RunMonitor, RunStorage
from lycosa.crawl.engine.state_saver import StateSaver
from lycosa.crawl.engine.visit import PageRules
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.spiders.spider import Spider, start_requests
from lycosa.frontier.core.scope import Scope
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.http.resolver import SystemResolver
from lycosa.infra.clock import Clock
from lycosa.storage.sinks.memory import MemorySink
from tests.storage.memory_keystore import MemoryKeyStore


class EngineSetup(NamedTuple):
    """An engine that is ready to run, and the parts that tests examine."""

    engine: Engine
    frontier: Any
    operations: LocalOperations[Any]
    sink: MemorySink
    stats: RunStats


async def build_engine(
    stack: AsyncExitStack,
    spider: Spider,
    policy: Policy,
    limits: EngineLimits | None = None,
    space: FreeSpace | None = None,
    clock: Clock | None = None,
) -> EngineSetup:
    """Build the parts and push the start requests; the stack closes them."""
    frontier = memory_frontier(policy)
    fetcher = CurlFetcher(FetchSettings())
    stack.push_async_callback(fetcher.close)
    space = space or FreeSpace(())
    clock, sink = clock or Clock(), MemorySink()
    stats = RunStats(clock.now())
    rules = PageRules(Scope.of("any", [], depth_max=None))
    committer = Committer(frontier, [sink], 0.05, 100, lambda positions: space.check())
    await committer.open_sinks()
    gate = RobotsGate(frontier, fetcher, "Lycosa", RetryPolicy(), lambda: 0.5, clock.now)
    crawler = Crawler({}, StatsCollector(), spider)
    spec = SpiderSpec(Settings(robots=policy.robots), Target(spider, spider.name, [], generic=False, crawler=crawler))
    context = CrawlContext(frontier.known, [sink], stats, StateSaver(MemoryKeyStore()), clock)
    statuses, retrying = statuses_of(spec), retry_decider_of(spec, context)
    runtime = SpiderRuntime(spec, crawler, rules, fetcher, gate, statuses, retrying)
    downloader, chain = make_downloader(runtime, context), spider_chain_of(runtime)
    visitor = make_visitor(runtime, context, downloader, chain, Pipelines((), spider))
    addresses = HostAddresses(frontier, SystemResolver(5.0), clock)
    storage = RunStorage(frontier, [sink], committer, space)
    lookups = HostLookups(gate, addresses)
    engine = Engine(storage, visitor, lookups, limits or EngineLimits(), RunMonitor(stats), clock)
    await frontier.push([to_record(request, spider) async for request in start_requests(spider)])
    return EngineSetup(engine, frontier, LocalOperations(frontier, on_change=engine.wake), sink, stats)
