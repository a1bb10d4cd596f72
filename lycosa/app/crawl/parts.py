"""From settings to parts: each part gets its own few values."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from lycosa.app.request_rules import keys_of, scope_of, segments_of
from lycosa.config import STANDARD_OUTPUT, Settings
from lycosa.config.view import SettingsView
from lycosa.core.retry import RetryPolicy
from lycosa.core.url import canonicalize, fingerprint
from lycosa.crawl.crawler import Crawler
from lycosa.crawl.engine.records import DEFAULT_NAMING, Naming
from lycosa.crawl.engine.visit import PageRules
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.items.indexer import Indexer, source_name
from lycosa.crawl.spiders.generic import SiteSpider
from lycosa.crawl.spiders.spider import Spider, domains_as_urls, wrap_user_errors
from lycosa.frontier.core.states import Policy
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.private_addresses import AllowedPrivate
from lycosa.http.curl.fetcher import FetchSettings
from lycosa.search.ports import Index
from lycosa.storage.core.stream_url import is_address, read_address
from lycosa.storage.ports import Sink
from lycosa.storage.sinks.jsonl import JsonlSink
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from lycosa.storage.sinks.stdout import StdoutSink

log = logging.getLogger(__name__)

NAME_MAX = 80


@dataclass(frozen=True, slots=True)
class Target:
    """What is crawled: a spider with its crawler, the name of the crawl, and the seeds of one without a user's spider.

    `key` are the words that say what identifies a request, none for the default.
    """

    spider: Spider
    name: str
    seeds: Sequence[str]
    generic: bool
    key: Sequence[str] = ()
    naming: Naming = DEFAULT_NAMING
    crawler: Crawler = field(default_factory=lambda: Crawler({}, StatsCollector()))


def target_of(
    settings: Settings,
    target: Sequence[str] | type[Spider] | Spider,
    arguments: Mapping[str, str],
    stats: StatsCollector | None = None,
) -> Target:
    """Return start URLs or a spider as a target. Raises `BadUrl`, `BadSpider` or `BadSetting`."""
    crawler = Crawler(SettingsView(settings), stats or StatsCollector())
    found = _target_of(settings, target, arguments, crawler)
    crawler.spider = found.spider
    found.spider.set_crawler(crawler)
    return found


def _target_of(
    settings: Settings,
    target: Sequence[str] | type[Spider] | Spider,
    arguments: Mapping[str, str],
    crawler: Crawler,
) -> Target:
    if isinstance(target, Spider):
        return _named(settings, Target(target, _safe(target.name), [], generic=False, crawler=crawler))
    if isinstance(target, type):
        with wrap_user_errors(f"{target.__name__}.__init__"):
            spider = target.from_crawler(crawler, **arguments)
        return _named(settings, Target(spider, _safe(spider.name), [], generic=False, crawler=crawler))
    seeds = [canonicalize(url) for url in target]
    spider = SiteSpider(nofollow=not settings.follow_nofollow)
    spider.start_urls = seeds
    digest = blake2b("\n".join(sorted(seeds)).encode(), digest_size=4).hexdigest()
    return _named(
        settings, Target(spider, f"{_safe(urlsplit(seeds[0]).netloc)}-{digest}", seeds, generic=True, crawler=crawler)
    )


class ShellSpider(Spider):
    """Is at hand in `lycosa shell` where no spider is named."""

    name = "shell"


def spider_at_hand(spider_class: type[Any] | None) -> Any:
    """Return an object of this class of spiders that belongs to no crawl. Raises `BadSpider`."""
    chosen = spider_class or ShellSpider
    with wrap_user_errors(f"{chosen.__name__}.__init__"):
        return chosen()


def _named(settings: Settings, target: Target) -> Target:
    """Return the target with its keys and segments. Raises `BadSetting` or `UsageError`."""
    chosen = keys_of(settings, target.spider)
    naming = Naming(chosen.fingerprint if chosen.words else fingerprint, segments_of(settings, target.spider))
    return replace(target, key=chosen.words, naming=naming)


def state_of(settings: Settings, target: Target) -> Path:
    """Return where the state of the crawl is: what the user says, or a folder by the crawl's name."""
    if settings.state:
        return Path(settings.state)
    called = settings.frontier and settings.crawl_name
    return Path(settings.home) / (_safe(settings.crawl_name) if called else target.name)


def rules_of(settings: Settings, target: Target, seeds: Sequence[str]) -> PageRules:
    """Return what the user decided about the crawl."""
    domains = domains_as_urls(target.spider.allowed_domains)
    scope = scope_of(settings.scope if target.generic else "", seeds, domains, settings)
    return PageRules(scope, frozenset(settings.content_types) if target.generic else frozenset())


def retry_policy_of(settings: Settings) -> RetryPolicy:
    """Return when failed requests are tried again."""
    return RetryPolicy(
        retries_max=settings.retries if settings.retry_enabled else 0,
        base_s=settings.backoff_base,
        cap_s=settings.max_backoff,
        statuses=frozenset(settings.retry_statuses),
    )


def policy_of(settings: Settings) -> Policy:
    """Return how the frontier treats hosts and leases. Through a proxy nobody here knows the addresses of hosts."""
    policy = Policy(settings.delay, settings.concurrency_per_host, settings.lease, settings.robots)
    if settings.auto_throttle:
        policy = replace(policy, start_delay_s=settings.auto_throttle_start)
    by_ip = replace(policy, delay_per_ip_s=settings.delay_per_ip, concurrency_per_ip=settings.concurrency_per_ip or 0)
    if (settings.proxy or settings.proxy_pool) and by_ip.limits_addresses:
        log.warning("--delay-per-ip and --concurrency-per-ip do not hold through a proxy, which finds the hosts itself")
        return policy
    return by_ip


def fetch_settings_of(settings: Settings) -> FetchSettings:
    """Return the fetcher's settings."""
    pairs = (line.partition(":") for line in settings.header)
    return FetchSettings(
        user_agent=settings.user_agent,
        timeout_s=settings.timeout,
        connect_timeout_s=settings.connect_timeout,
        max_body_bytes=settings.max_body,
        headers={name.strip(): value.strip() for name, _, value in pairs},
        proxy=settings.proxy,
        insecure=settings.insecure,
        fail_on_dataloss=settings.fail_on_dataloss,
        may_connect=AllowedPrivate(settings.allow_private).may_connect,
    )


def items_file(settings: Settings) -> str:
    """Return the file the user wants the items in, "" for standard output or a stream."""
    output = settings.output or STANDARD_OUTPUT
    return "" if output == STANDARD_OUTPUT or is_address(output) else output


class HasItems(Protocol):
    """A state folder, as far as sinks are concerned."""

    @property
    def items(self) -> Path:
        """Where items go that an index needs."""
        ...


def items_place(settings: Settings) -> str:
    """Return where the user wants the items, as it is shown; "" for standard output."""
    if is_address(settings.output):
        return read_address(settings.output or "").text
    return items_file(settings)


def sinks_of(settings: Settings, state: HasItems, crawl: str) -> list[Sink]:
    """Return where the items of a crawl of this name go. An index reads them from a file: the user's, or one in the
    state."""
    if file := items_file(settings):
        return [JsonlSink(file, sync=settings.sync)]
    spool: list[Sink] = [JsonlSink(state.items, sync=settings.sync)] if settings.index else []
    if not is_address(settings.output):
        return [StdoutSink(), *spool]
    name = settings.crawl_name or crawl
    return [RedisStreamSink(settings.output or "", name, log.warning, sync=settings.sync), *spool]


def written_to(settings: Settings, state: StateDir) -> list[Path]:
    """Return where on the disk the crawl writes: state, items, index."""
    places = (state.path, items_file(settings), settings.index)
    return [Path(place).absolute() for place in places if place]


def indexer_of(settings: Settings, state: StateDir, index: Index) -> Indexer:
    """Return what follows the items file into the index."""
    file = Path(items_file(settings) or state.items)
    return Indexer(index, file, source_name(file))


def tell(indexer: Indexer | None) -> Callable[[Mapping[str, int]], None]:
    """Return a listener that passes the committed position of the items file on to the indexer."""

    def told(positions: Mapping[str, int]) -> None:
        if indexer is None:
            return
        indexer.advance(positions[indexer.source])
        if indexer.failed is not None and indexer.failed not in reported:
            reported.append(indexer.failed)
            log.error("%s; the crawl goes on without the index", indexer.failed)

    reported: list[Exception] = []
    return told


def _safe(name: str) -> str:
    kept = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    return kept[:NAME_MAX].lstrip(".") or "crawl"
