"""What one spider of a crawl has of its own, from its settings: fetchers, middlewares in order, downloader, scraper,
visitor, pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lycosa.app.crawl.extras import extensions_of, pipelines_of
from lycosa.app.crawl.fetchers import fetchers_of
from lycosa.app.crawl.middlewares import DOWNLOADER_ORDER, SPIDER_ORDER, in_order
from lycosa.app.crawl.parts import fetch_settings_of, retry_policy_of, rules_of
from lycosa.app.crawl.spec import Member
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

CACHE_FOLDER = "httpcache"


@dataclass(frozen=True, slots=True)
class Site:
    """What the visitors of a crawl share."""

    known: Callable[[str, Sequence[int]], AbstractSet[int]]
    prepare: Callable[[Any], Sequence[Any]]
    stats: RunStats
    state_saver: StateSaver
    clock: Clock
    rest: BlockHost | None = None
    set_delay: SetDelay | None = None
    state: str = ""
    """The folder of the crawl's state: who logs in there is one user."""
    shared_cookies: SharedCookies | None = None
    leaser: ProxyLeaser | None = None
    """Of the proxies that all of them go through."""
    report_starts: Callable[[Fetcher], Fetcher] = lambda fetcher: fetcher
    """Wrap a fetcher so that it reports when its transfers start, if anyone waits for that."""


async def leaser_for(stack: AsyncExitStack, settings: Settings, clock: Clock) -> ProxyLeaser | None:
    """Open the pool of a crawl, if any, as `app.crawl.proxies.leaser_of` does; without one, import nothing of pools."""
    if not settings.proxy_pool:
        return None
    from lycosa.app.crawl.proxies import leaser_of

    return await leaser_of(stack, settings, clock)


@dataclass(frozen=True, slots=True)
class Cast:
    """What one spider has of its own."""

    member: Member
    crawler: Crawler
    rules: PageRules
    fetcher: Fetcher
    gate: RobotsGate
    statuses: HandledStatuses
    retrying: RetryDecider
    guard: PublicOnlyGuard = NO_GUARD
    in_thread: InThread | None = None
    pooled: PooledFetcher | None = None


async def cast_of(
    stack: AsyncExitStack,
    member: Member,
    frontier: VisitFrontier,
    addresses: HostLookup,
    seeds: Sequence[str],
    site: Site,
) -> Cast:
    """Make what one spider has of its own; the stack closes it."""
    settings, crawler, stats = member.settings, member.target.crawler, member.target.crawler.stats
    crawler.records = site.state_saver.store
    crawler.signals.bugs = site.stats.bugs
    fetchers = fetchers_of(
        stack, member, addresses, site.report_starts, site.leaser, site.state_saver.store, site.clock
    )
    policy, now = retry_policy_of(settings), site.clock.now
    guard = PublicOnlyGuard(AllowedPrivate(settings.allow_private))
    gate = RobotsGate(frontier, fetchers.robots, settings.user_agent, policy, chance, now, stats, guard)
    gate.on_parsed = partial(_robots_parsed, crawler.signals)
    rules = rules_of(settings, member.target, seeds)
    rules = replace(rules, scope=CountingScope(rules.scope, stats))
    if not member.target.generic:
        site.state_saver.save_hooks.append(SpiderState(site.state_saver.store, member.spider).save)
    in_thread = None
    if settings.callback_mode == "thread":
        threads = CallbackThreads(settings.callback_threads)
        stack.push_async_callback(threads.close)
        in_thread = threads.run
    statuses, retrying = statuses_of(member), retrying_of(member, site)
    return Cast(member, crawler, rules, fetchers.pages, gate, statuses, retrying, guard, in_thread, fetchers.pooled)


def _robots_parsed(signals: Signals, robots: Robots, request: Request) -> None:
    if signals.on_robots_parsed:
        signals.post(robots_parsed, robotparser=robots, request=request)


def join_gates(gates: Sequence[RobotsGate]) -> Sequence[RobotsGate]:
    """Let each of the gates know what any of them learns. The first one answers the frontier's questions."""
    for gate in gates:
        gate.peers = [each for each in gates if each is not gate]
    return gates


def downloader_of(cast: Cast, site: Site) -> Downloader:
    """Return what downloads for a spider, with its middlewares."""
    types, headers = cast.rules.content_types, fetch_settings_of(cast.member.settings).headers
    chain = _downloader_chain(cast, site)
    accept = content_type_filter(types)
    return Downloader(
        cast.fetcher, chain, cast.retrying, site.clock, accept, headers, site.rest, cast.guard, site.stats.bugs
    )


def visitor_of(cast: Cast, site: Site, downloader: Downloader, chain: SpiderChain, pipelines: Pipelines) -> Visitor:
    """Return what visits the pages of a spider."""
    scraper = Scraper(cast.member.spider, chain, cast.in_thread)
    return Visitor(
        cast.member.spider,
        cast.rules,
        downloader,
        scraper,
        cast.retrying,
        pipelines,
        site.prepare,
        site.known,
        site.stats,
        cast.crawler,
        cast.member.target.naming,
    )


def visitor_among(visitors: Mapping[str, Visitor]) -> Visitor | Visitors:
    """Return the one visitor, or what lets each of several visit the records of its spider."""
    return visitors[""] if "" in visitors else Visitors(visitors)


def inline_of(
    cast: Cast, frontier: VisitFrontier, downloader: Downloader, clock: Clock, addresses: HostLookup
) -> InlineFetcher:
    """Return what fetches for the callbacks of a spider, and give it to them."""
    gate = cast.gate if cast.member.settings.robots else None
    spider, naming = cast.member.spider, cast.member.target.naming
    inline = InlineFetcher(frontier, downloader, gate, spider, naming, clock, addresses.update)
    cast.crawler.download = partial(_received, cast, inline)
    return inline


async def _received(
    cast: Cast, inline: InlineFetcher, request: Request | str, into: BodyWriter | None = None
) -> Response:
    """Fetch inline, and count the response."""
    response = await inline.fetch(request, into)
    crawler, about = cast.crawler, {"request": response.request, "spider": cast.member.spider}
    crawler.stats.inc_value("response_received_count")
    if crawler.signals.on_response_received:
        await crawler.signals.send(response_received, response=response, **about)
    return response


async def extras_of(stack: AsyncExitStack, cast: Cast, channel: ItemChannel | None) -> Pipelines:
    """Make and open what the settings add to a spider. Return its pipelines; the stack closes them."""
    for extension in extensions_of(cast.member.settings, cast.crawler):
        stack.callback(lambda _kept: None, extension)  # it lives as long as the run
    pipelines = pipelines_of(cast.member, cast.crawler, channel)
    await pipelines.open()
    stack.push_async_callback(pipelines.close)
    return pipelines


def statuses_of(member: Member) -> HandledStatuses:
    """Return which statuses the callbacks of a spider want to see."""
    asked = getattr(member.spider, "handle_httpstatus_list", None)
    return HandledStatuses(asked, member.settings.httperror_allowed, member.settings.httperror_allow_all)


def retrying_of(member: Member, site: Site) -> RetryDecider:
    """Return when the requests of a spider are tried again."""
    return RetryDecider(retry_policy_of(member.settings), site.clock, chance, member.target.crawler.stats)


def _downloader_chain(cast: Cast, site: Site) -> DownloaderChain:
    settings, spider, stats = cast.member.settings, cast.member.spider, cast.crawler.stats
    built_in = {
        "offsite": Offsite(cast.rules.scope),
        "robots": ObeyRobots(cast.gate, stats) if settings.robots else None,
        "httpauth": _auth(cast),
        "retry": Retry(cast.retrying, cast.statuses, site.rest) if settings.retry_enabled else None,
        "metarefresh": _metarefresh(cast),
        "redirect": Redirect(settings.max_redirects, cast.statuses) if settings.redirect else None,
        "cookies": _cookies(cast, site) if settings.cookies else None,
        "proxy": ProxyRefusals(cast.retrying, cast.statuses) if cast.pooled is not None else None,
        "throttle": _throttle(settings, site) if settings.auto_throttle else None,
        "stats": DownloaderStats(stats, cast.crawler.signals, spider),
        "httpcache": _cache(cast, site),
    }
    chosen = settings.downloader_middlewares
    placed = in_order("downloader_middlewares", built_in, DOWNLOADER_ORDER, chosen, cast.crawler)
    return DownloaderChain(placed, spider)


def spider_chain_of(cast: Cast) -> SpiderChain:
    """Return the spider middlewares of a spider."""
    settings, spider, stats = cast.member.settings, cast.member.spider, cast.crawler.stats
    generic = cast.member.target.generic
    length_max = settings.max_url_length
    built_in = {
        "httperror": HttpErrors(cast.statuses, stats),
        "referer": None if generic or settings.referrer_policy == "no-referrer" else Referer(settings.referrer_policy),
        "urllength": None if generic or length_max is None else UrlLength(length_max, stats),
        "depth": None if generic else Depth(settings.depth_priority, stats),
    }
    placed = in_order("spider_middlewares", built_in, SPIDER_ORDER, settings.spider_middlewares, cast.crawler)
    return SpiderChain(placed, spider)


def _auth(cast: Cast) -> HttpAuth | None:
    settings, spider = cast.member.settings, cast.member.spider
    if settings.http_user and not getattr(spider, "http_user", ""):
        domain = None if settings.http_auth_domain == "*" else settings.http_auth_domain
        return HttpAuth(settings.http_user, settings.http_pass, domain)
    return HttpAuth.of(spider)


def _throttle(settings: Settings, site: Site) -> Throttle | None:
    if site.set_delay is None:
        return None
    wanted = ThrottleSettings(
        settings.auto_throttle_start, settings.auto_throttle_max_delay, settings.delay, settings.auto_throttle_target
    )
    return Throttle(AutoThrottle(wanted), site.set_delay, site.clock.now, debug=settings.auto_throttle_debug)


def _metarefresh(cast: Cast) -> MetaRefresh | None:
    """A generic crawl reads every page that there is, those that lead elsewhere too."""
    settings = cast.member.settings
    if cast.member.target.generic or not settings.meta_refresh or not settings.redirect:
        return None
    return MetaRefresh(settings.max_redirects, settings.meta_refresh_max_delay)


def _cookies(cast: Cast, site: Site) -> Cookies:
    owner, debug = cast.member.target.naming.spider, cast.member.settings.cookies_debug
    cookies = Cookies(site.state_saver.store, site.clock, owner=owner, debug=debug, shared=site.shared_cookies)
    site.state_saver.save_hooks.append(cookies.save)
    if cast.pooled is not None:
        cast.pooled.renew_cookies = cookies.reset
    return cookies


def _cache(cast: Cast, site: Site) -> HttpCache | None:
    settings = cast.member.settings
    if settings.http_cache == "off":
        return None
    missing = settings.http_cache_ignore_missing
    rules: ReplayRules | PrivateRules = PrivateRules(ignore_missing=missing)
    if settings.http_cache == "replay":
        rules = ReplayRules(settings.http_cache_expiration or 0.0, ignore_missing=missing)
        if settings.http_cache_ignore_statuses:
            rules = rules._replace(ignore_http_codes=frozenset(settings.http_cache_ignore_statuses))
    folder = Path(settings.http_cache_dir or Path(settings.home) / CACHE_FOLDER)
    store = SqliteCache(folder, settings.http_cache_size)
    site.state_saver.close_hooks.append(store.close)
    usual = {name.lower(): value for name, value in fetch_settings_of(settings).headers.items()}
    usual.setdefault("user-agent", settings.user_agent)
    stats = cast.crawler.stats
    return HttpCache(
        store,
        rules,
        site.clock,
        lambda what: stats.inc_value("httpcache/" + what),
        defaults=usual,
        accept=content_type_filter(cast.rules.content_types),
        owner=f"{cast.member.spider.name} {site.state}",
    )
