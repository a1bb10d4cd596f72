"""An engine of real parts around a frontier in memory, for a spider and the tree of pages it visits."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, NamedTuple

from lycosa.app.members import Member
from lycosa.app.parts import Target
from lycosa.app.visiting import Cast, Site, downloader_of, retrying_of, spider_chain_of, statuses_of, visitor_of
from lycosa.clock import Clock
from lycosa.config import Settings
from lycosa.core.frontier import Policy
from lycosa.core.retry import RetryPolicy
from lycosa.core.scope import Scope
from lycosa.engine.addresses import Addresses
from lycosa.engine.committer import Committer
from lycosa.engine.crawler import Crawler
from lycosa.engine.engine import Engine, Limits
from lycosa.engine.keeping import Keeping
from lycosa.engine.pipeline import Pipelines
from lycosa.engine.records import to_record
from lycosa.engine.robots import RobotsGate
from lycosa.engine.space import FreeSpace
from lycosa.engine.spider import Spider, start_requests
from lycosa.engine.stats import RunStats
from lycosa.engine.statscollector import StatsCollector
from lycosa.engine.visit import Rules
from lycosa.fetchers.curl import CurlFetcher, FetchSettings
from lycosa.fetchers.resolver import SystemResolver
from lycosa.frontiers.memory import memory_frontier
from lycosa.frontiers.operations import LocalOperations
from lycosa.records.memory import MemoryRecords
from lycosa.sinks.memory import MemorySink


class Crawl(NamedTuple):
    """An engine that is ready to run, and what a test looks at."""

    engine: Engine
    frontier: Any
    operations: LocalOperations[Any]
    sink: MemorySink
    stats: RunStats


async def wired(
    stack: AsyncExitStack,
    spider: Spider,
    policy: Policy,
    limits: Limits | None = None,
    space: FreeSpace | None = None,
    clock: Clock | None = None,
) -> Crawl:
    """Wire the parts and push the start requests; the stack closes them."""
    frontier = memory_frontier(policy)
    fetcher = CurlFetcher(FetchSettings())
    stack.push_async_callback(fetcher.close)
    space = space or FreeSpace(())
    clock, sink = clock or Clock(), MemorySink()
    stats = RunStats(clock.now())
    rules = Rules(Scope.of("any", [], depth_max=None))
    committer = Committer(frontier, [sink], 0.05, 100, lambda positions: space.check())
    await committer.open_sinks()
    gate = RobotsGate(frontier, fetcher, "Lycosa", RetryPolicy(), lambda: 0.5, clock.now)
    crawler = Crawler({}, StatsCollector(), spider)
    member = Member(Settings(robots=policy.robots), Target(spider, spider.name, [], generic=False, crawler=crawler))
    site = Site(frontier.known, lambda item: [sink.prepare(item)], stats, Keeping(MemoryRecords()), clock)
    cast = Cast(member, crawler, rules, fetcher, gate, statuses_of(member), retrying_of(member, site))
    visitor = visitor_of(cast, site, downloader_of(cast, site), spider_chain_of(cast), Pipelines((), spider))
    addresses = Addresses(frontier, SystemResolver(5.0), clock)
    engine = Engine(frontier, [sink], visitor, gate, addresses, committer, limits or Limits(), stats, clock, space)
    await frontier.push([to_record(request, spider) async for request in start_requests(spider)])
    return Crawl(engine, frontier, LocalOperations(frontier, changed=engine.wake), sink, stats)
