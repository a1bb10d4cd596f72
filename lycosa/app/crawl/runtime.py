"""Build the parts of one spider."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lycosa.app.crawl.extras import extensions_of, pipelines_of
from lycosa.app.crawl.fetchers import make_fetchers
from lycosa.app.crawl.middlewares import DOWNLOADER_ORDER, SPIDER_ORDER, place_middlewares
from lycosa.app.crawl.parts import fetch_settings_of, retry_policy_of, rules_of
from lycosa.app.crawl.spec import SpiderSpec
from lycosa.config import Settings
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.engine.state_saver import SpiderState, StateSaver
from lycosa.crawl.engine.visit import PageRules, Visitor, Visitors
from lycosa.crawl.events.signals import Signals, response_received, robots_parsed
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.addresses import HostLookup
from lycosa.crawl.fetching.download import BlockHost, Downloader, content_type_filter
from lycosa.crawl.fetching.guard import NO_GUARD, PublicOnlyGuard
from lycosa.crawl.fetching.inline import BodyWriter, InlineFetcher
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.proxying.pooled_fetcher import PooledFetcher
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.fetching.scope_stats import CountingScope
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.items.pipeline import Pipelines
from lycosa.crawl.items.pipeline_commits import PipelineCommits
from lycosa.crawl.middlewares.auto_throttle import SetDelay, Throttle
from lycosa.crawl.middlewares.chain import DownloaderChain, SpiderChain
from lycosa.crawl.middlewares.cookies import Cookies
from lycosa.crawl.middlewares.counting import DownloaderStats
from lycosa.crawl.middlewares.depth import Depth
from lycosa.crawl.middlewares.httpauth import HttpAuth
from lycosa.crawl.middlewares.httpcache import HttpCache
from lycosa.crawl.middlewares.httperror import HttpErrors
from lycosa.crawl.middlewares.meta_refresh import MetaRefresh
from lycosa.crawl.middlewares.offsite import Offsite
from lycosa.crawl.middlewares.proxy import ProxyRefusals
from lycosa.crawl.middlewares.redirect import Redirect
from lycosa.crawl.middlewares.referer import Referer
from lycosa.crawl.middlewares.retry import Retry
from lycosa.crawl.middlewares.robots import ObeyRobots
from lycosa.crawl.middlewares.urllength import UrlLength
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.scrape import InThread, Scraper
from lycosa.crawl.workers.threads import CallbackThreads
from lycosa.frontier.core.auto_throttle import AutoThrottle, ThrottleSettings
from lycosa.frontier.ports import SharedCookies, VisitFrontier
from lycosa.http.cache.sqlite import SqliteCache
from lycosa.http.core.cache_rules import PrivateRules, ReplayRules
from lycosa.http.core.private_addresses import AllowedPrivate
from lycosa.http.core.request import Request
from lycosa.http.core.robots import Robots
from lycosa.http.ports import Fetcher
from lycosa.infra.clock import Clock, chance
from lycosa.storage.ports import Sink

CACHE_FOLDER = "httpcache"


@dataclass(frozen=True, slots=True)
class CrawlContext:
    """The parts that the spiders of a crawl share.

    `state` is the path of the state folder; it keeps the cached responses of different crawls apart. `report_starts`
    wraps a fetcher to report when its transfers start.
    """

    known: Callable[[str, Sequence[int]], AbstractSet[int]]
    sinks: Sequence[Sink]
    stats: RunStats
    state_saver: StateSaver
    clock: Clock
    block_host: BlockHost | None = None
    set_delay: SetDelay | None = None
    state: str = ""
    shared_cookies: SharedCookies | None = None
    leaser: ProxyLeaser | None = None
    report_starts: Callable[[Fetcher], Fetcher] = lambda fetcher: fetcher
    pipeline_commits: PipelineCommits | None = None

    def prepare(self, spider: str, item: Any) -> Sequence[Any]:
        """Prepare an item for each sink, and last for `pipeline_commits`."""
        prepared = [sink.prepare(item) for sink in self.sinks]
        if self.pipeline_commits is not None:
            prepared.append(self.pipeline_commits.prepare_item(spider, item))
        return prepared


async def open_leaser(stack: AsyncExitStack, settings: Settings, clock: Clock) -> ProxyLeaser | None:
    """Open the proxy pool of a crawl, if any."""
    if not settings.proxy_pool:
        return None
    from lycosa.app.crawl.proxies import open_pool_leaser

    return await open_pool_leaser(stack, settings, clock)


@dataclass(frozen=True, slots=True)
class SpiderRuntime:
    """The parts of one spider."""

    spec: SpiderSpec
    crawler: Crawler
    rules: PageRules
    fetcher: Fetcher
    gate: RobotsGate
    statuses: HandledStatuses
    retrying: RetryDecider
    guard: PublicOnlyGuard = NO_GUARD
    in_thread: InThread | None = None
    pooled: PooledFetcher | None = None


async def open_runtime(
    stack: AsyncExitStack,
    spec: SpiderSpec,
    frontier: VisitFrontier,
    addresses: HostLookup,
    seeds: Sequence[str],
    context: CrawlContext,
) -> SpiderRuntime:
    """Build a spider's parts, which the stack closes."""
    settings, crawler, saver = spec.settings, spec.target.crawler, context.state_saver
    crawler.records = saver.store
    crawler.signals.bugs = context.stats.bugs
    fetchers = make_fetchers(stack, spec, addresses, context.report_starts, context.leaser, saver.store, context.clock)
    policy, now = retry_policy_of(settings), context.clock.now
    guard = PublicOnlyGuard(AllowedPrivate(settings.allow_private))
    gate = RobotsGate(frontier, fetchers.robots, settings.user_agent, policy, chance, now, crawler.stats, guard)
    gate.on_parsed = partial(_send_robots_parsed, crawler.signals)
    rules = rules_of(settings, spec.target, seeds)
    rules = replace(rules, scope=CountingScope(rules.scope, crawler.stats))
    if not spec.target.generic:
        saver.save_hooks.append(SpiderState(saver.store, spec.spider).save)
    in_thread = None
    if settings.callback_mode == "thread":
        threads = CallbackThreads(settings.callback_threads)
        stack.push_async_callback(threads.close)
        in_thread = threads.run
    statuses, retrying = statuses_of(spec), retry_decider_of(spec, context)
    return SpiderRuntime(
        spec, crawler, rules, fetchers.pages, gate, statuses, retrying, guard, in_thread, fetchers.pooled
    )


def _send_robots_parsed(signals: Signals, robots: Robots, request: Request) -> None:
    if signals.on_robots_parsed:
        signals.post(robots_parsed, robotparser=robots, request=request)


def connect_gates(gates: Sequence[RobotsGate]) -> Sequence[RobotsGate]:
    """Pass the facts from each gate's robots.txt to the other gates."""
    for gate in gates:
        gate.peers = [each for each in gates if each is not gate]
    return gates


def make_downloader(runtime: SpiderRuntime, context: CrawlContext) -> Downloader:
    """Return the downloader, with its middlewares."""
    return Downloader(
        runtime.fetcher,
        _downloader_chain(runtime, context),
        runtime.retrying,
        context.clock,
        content_type_filter(runtime.rules.content_types),
        fetch_settings_of(runtime.spec.settings).headers,
        context.block_host,
        runtime.guard,
        context.stats.bugs,
    )


def make_visitor(
    runtime: SpiderRuntime, context: CrawlContext, downloader: Downloader, chain: SpiderChain, pipelines: Pipelines
) -> Visitor:
    """Return the visitor of a spider's pages."""
    return Visitor(
        runtime.spec.spider,
        runtime.rules,
        downloader,
        Scraper(runtime.spec.spider, chain, runtime.in_thread),
        runtime.retrying,
        pipelines,
        partial(context.prepare, runtime.spec.target.naming.spider),
        context.known,
        context.stats,
        runtime.crawler,
        runtime.spec.target.naming,
    )


def combine_visitors(visitors: Mapping[str, Visitor]) -> Visitor | Visitors:
    """Return the only visitor, or one that passes each record to its spider's visitor."""
    return visitors[""] if "" in visitors else Visitors(visitors)


def make_inline_fetcher(
    runtime: SpiderRuntime, frontier: VisitFrontier, downloader: Downloader, clock: Clock, addresses: HostLookup
) -> InlineFetcher:
    """Return the inline fetcher, which `crawler.download` then uses."""
    gate = runtime.gate if runtime.spec.settings.robots else None
    spider, naming = runtime.spec.spider, runtime.spec.target.naming
    inline = InlineFetcher(frontier, downloader, gate, spider, naming, clock, addresses.update)
    runtime.crawler.download = partial(_download, runtime, inline)
    return inline


async def _download(
    runtime: SpiderRuntime, inline: InlineFetcher, request: Request | str, into: BodyWriter | None = None
) -> Response:
    response = await inline.fetch(request, into)
    crawler, spider = runtime.crawler, runtime.spec.spider
    crawler.stats.inc_value("response_received_count")
    if crawler.signals.on_response_received:
        await crawler.signals.send(response_received, response=response, request=response.request, spider=spider)
    return response


async def open_visitor(
    stack: AsyncExitStack,
    runtime: SpiderRuntime,
    context: CrawlContext,
    downloader: Downloader,
    chain: SpiderChain,
    channel: ItemChannel | None = None,
) -> Visitor:
    """Make the extensions, pipelines and visitor of a spider. The stack closes them."""
    for extension in extensions_of(runtime.spec.settings, runtime.crawler):
        stack.callback(lambda _extension: None, extension)  # keep the extension until the run ends
    pipelines = pipelines_of(runtime.spec, runtime.crawler, channel)
    await pipelines.open()
    stack.push_async_callback(pipelines.close)
    if context.pipeline_commits is not None:
        context.pipeline_commits.add(runtime.spec.target.naming.spider, pipelines)
    return make_visitor(runtime, context, downloader, chain, pipelines)


def statuses_of(spec: SpiderSpec) -> HandledStatuses:
    """Return the statuses other than 2xx that the callbacks handle."""
    handled = getattr(spec.spider, "handle_httpstatus_list", None)
    return HandledStatuses(handled, spec.settings.httperror_allowed, spec.settings.httperror_allow_all)


def retry_decider_of(spec: SpiderSpec, context: CrawlContext) -> RetryDecider:
    """Return the retry rules of a spider."""
    return RetryDecider(retry_policy_of(spec.settings), context.clock, chance, spec.target.crawler.stats)


def _downloader_chain(runtime: SpiderRuntime, context: CrawlContext) -> DownloaderChain:
    settings, spider, stats = runtime.spec.settings, runtime.spec.spider, runtime.crawler.stats
    built_in = {
        "offsite": Offsite(runtime.rules.scope),
        "robots": ObeyRobots(runtime.gate, stats) if settings.robots else None,
        "httpauth": _auth(runtime),
        "retry": Retry(runtime.retrying, runtime.statuses, context.block_host) if settings.retry_enabled else None,
        "metarefresh": _metarefresh(runtime),
        "redirect": Redirect(settings.max_redirects, runtime.statuses) if settings.redirect else None,
        "cookies": _cookies(runtime, context) if settings.cookies else None,
        "proxy": ProxyRefusals(runtime.retrying, runtime.statuses) if runtime.pooled is not None else None,
        "throttle": _throttle(settings, context) if settings.auto_throttle else None,
        "stats": DownloaderStats(stats, runtime.crawler.signals, spider),
        "httpcache": _cache(runtime, context),
    }
    chosen = settings.downloader_middlewares
    placed = place_middlewares("downloader_middlewares", built_in, DOWNLOADER_ORDER, chosen, runtime.crawler)
    return DownloaderChain(placed, spider)


def spider_chain_of(runtime: SpiderRuntime) -> SpiderChain:
    """Return the spider middlewares of a spider."""
    settings, spider, stats = runtime.spec.settings, runtime.spec.spider, runtime.crawler.stats
    generic = runtime.spec.target.generic
    length_max = settings.max_url_length
    built_in = {
        "httperror": HttpErrors(runtime.statuses, stats),
        "referer": None if generic or settings.referrer_policy == "no-referrer" else Referer(settings.referrer_policy),
        "urllength": None if generic or length_max is None else UrlLength(length_max, stats),
        "depth": None if generic else Depth(settings.depth_priority, stats),
    }
    chosen = settings.spider_middlewares
    placed = place_middlewares("spider_middlewares", built_in, SPIDER_ORDER, chosen, runtime.crawler)
    return SpiderChain(placed, spider)


def _auth(runtime: SpiderRuntime) -> HttpAuth | None:
    settings, spider = runtime.spec.settings, runtime.spec.spider
    if settings.http_user and not getattr(spider, "http_user", ""):
        domain = None if settings.http_auth_domain == "*" else settings.http_auth_domain
        return HttpAuth(settings.http_user, settings.http_pass, domain)
    return HttpAuth.of(spider)


def _throttle(settings: Settings, context: CrawlContext) -> Throttle | None:
    if context.set_delay is None:
        return None
    throttle = ThrottleSettings(
        settings.auto_throttle_start, settings.auto_throttle_max_delay, settings.delay, settings.auto_throttle_target
    )
    return Throttle(AutoThrottle(throttle), context.set_delay, context.clock.now, debug=settings.auto_throttle_debug)


def _metarefresh(runtime: SpiderRuntime) -> MetaRefresh | None:
    settings = runtime.spec.settings
    # A generic crawl makes an item from every page, even if the page has a meta refresh to another page.
    if runtime.spec.target.generic or not settings.meta_refresh or not settings.redirect:
        return None
    return MetaRefresh(settings.max_redirects, settings.meta_refresh_max_delay)


def _cookies(runtime: SpiderRuntime, context: CrawlContext) -> Cookies:
    owner, debug = runtime.spec.target.naming.spider, runtime.spec.settings.cookies_debug
    cookies = Cookies(context.state_saver.store, context.clock, owner=owner, debug=debug, shared=context.shared_cookies)
    context.state_saver.save_hooks.append(cookies.save)
    if runtime.pooled is not None:
        runtime.pooled.renew_cookies = cookies.reset
    return cookies


def _cache(runtime: SpiderRuntime, context: CrawlContext) -> HttpCache | None:
    settings = runtime.spec.settings
    if settings.http_cache == "off":
        return None
    ignore_missing = settings.http_cache_ignore_missing
    rules: ReplayRules | PrivateRules = PrivateRules(ignore_missing=ignore_missing)
    if settings.http_cache == "replay":
        rules = ReplayRules(settings.http_cache_expiration or 0.0, ignore_missing=ignore_missing)
        if settings.http_cache_ignore_statuses:
            rules = rules._replace(ignore_http_codes=frozenset(settings.http_cache_ignore_statuses))
    folder = Path(settings.http_cache_dir or Path(settings.home) / CACHE_FOLDER)
    store = SqliteCache(folder, settings.http_cache_size)
    context.state_saver.close_hooks.append(store.close)
    defaults = {name.lower(): value for name, value in fetch_settings_of(settings).headers.items()}
    defaults.setdefault("user-agent", settings.user_agent)
    stats = runtime.crawler.stats
    return HttpCache(
        store,
        rules,
        context.clock,
        lambda event: stats.inc_value("httpcache/" + event),
        defaults=defaults,
        accept=content_type_filter(runtime.rules.content_types),
        owner=f"{runtime.spec.spider.name} {context.state}",
    )
