"""Make the parts of a crawl from the settings."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from lycosa.app.request_rules import fingerprint_rules_of, scope_of, segment_naming_of
from lycosa.config import Settings
from lycosa.config.view import SettingsView
from lycosa.core.errors import UsageError
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
from lycosa.search.ports import DocumentIndex
from lycosa.storage.core.output import OutputTarget, parse_outputs
from lycosa.storage.ports import Sink
from lycosa.storage.sinks.codecs import codec_of
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.formats import Csv, JsonLines
from lycosa.storage.sinks.json_array import JsonArraySink
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from lycosa.storage.sinks.sqlite import SqliteSink
from lycosa.storage.sinks.stdout import StdoutSink

log = logging.getLogger(__name__)

NAME_MAX = 80


@dataclass(frozen=True, slots=True)
class Target:
    """What is crawled. A crawl without a user's spider is `generic`; `seeds` holds its start URLs.

    For other crawls `seeds` is empty. `key` holds the fingerprint rules; it is empty for the default.
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
    """Make the target of start URLs or a spider. Raises `BadUrl`, `BadSpider`, `BadSetting` or `UsageError`."""
    crawler = Crawler(SettingsView(settings), stats or StatsCollector())
    seeds: list[str] = []
    spider: Spider
    if isinstance(target, Spider):
        spider, name = target, _safe_name(target.name)
    elif isinstance(target, type):
        with wrap_user_errors(f"{target.__name__}.__init__"):
            spider = target.from_crawler(crawler, **arguments)
        name = _safe_name(spider.name)
    else:
        seeds = [canonicalize(url) for url in target]
        spider = SiteSpider(nofollow=not settings.follow_nofollow)
        spider.start_urls = seeds
        digest = blake2b("\n".join(sorted(seeds)).encode(), digest_size=4).hexdigest()
        name = f"{_safe_name(urlsplit(seeds[0]).netloc)}-{digest}"
    crawler.spider = spider
    spider.set_crawler(crawler)
    rules = fingerprint_rules_of(settings, spider)
    naming = Naming(rules.fingerprint if rules.words else fingerprint, segment_naming_of(settings, spider))
    return Target(spider, name, seeds, generic=bool(seeds), key=rules.words, naming=naming, crawler=crawler)


class ShellSpider(Spider):
    """The spider of `lycosa shell` without --spider."""

    name = "shell"


def make_shell_spider(spider_class: type[Any] | None) -> Any:
    """Create a spider that belongs to no crawl. Raises `BadSpider`."""
    spider_class = spider_class or ShellSpider
    with wrap_user_errors(f"{spider_class.__name__}.__init__"):
        return spider_class()


def state_of(settings: Settings, target: Target) -> Path:
    """Return the setting `state`, or a folder in `home` with the name of the crawl."""
    if settings.state:
        return Path(settings.state)
    has_own_name = settings.frontier and settings.crawl_name
    return Path(settings.home) / (_safe_name(settings.crawl_name) if has_own_name else target.name)


def rules_of(settings: Settings, target: Target, seeds: Sequence[str]) -> PageRules:
    """Return the rules that decide which pages are fetched."""
    domains = domains_as_urls(target.spider.allowed_domains)
    scope = scope_of(settings.scope if target.generic else "", seeds, domains, settings)
    return PageRules(scope, frozenset(settings.content_types) if target.generic else frozenset())


def retry_policy_of(settings: Settings) -> RetryPolicy:
    """Return the policy for retrying failed requests."""
    return RetryPolicy(
        retries_max=settings.retries if settings.retry_enabled else 0,
        base_s=settings.backoff_base,
        cap_s=settings.max_backoff,
        statuses=frozenset(settings.retry_statuses),
    )


def policy_of(settings: Settings) -> Policy:
    """Return the frontier's policy. With a proxy, limits per IP address are ignored."""
    policy = Policy(settings.delay, settings.concurrency_per_host, settings.lease, settings.robots)
    if settings.auto_throttle:
        policy = replace(policy, start_delay_s=settings.auto_throttle_start)
    by_ip = replace(policy, delay_per_ip_s=settings.delay_per_ip, concurrency_per_ip=settings.concurrency_per_ip or 0)
    if (settings.proxy or settings.proxy_pool) and by_ip.limits_addresses:
        log.warning("--delay-per-ip and --concurrency-per-ip are ignored with a proxy, which looks up the hosts itself")
        return policy
    return by_ip


def fetch_settings_of(settings: Settings) -> FetchSettings:
    """Return the settings of the fetcher."""
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
    """Return the first output that an index can read, an uncompressed file of JSON lines; "" if there is none."""
    files = (
        each.path for each in parse_outputs(settings.output) if each.format == "jsonl" and not each.codec and each.path
    )
    return next(files, "")


def items_location(settings: Settings) -> str:
    """Return where the items go, for messages; "" for standard output."""
    return ", ".join(each.text for each in parse_outputs(settings.output) if each.text)


def sinks_of(settings: Settings, spool_file: Path, crawl: str) -> list[Sink]:
    """Return the sinks of the crawl named `crawl`.

    If no output is a file that an index can read, items for the index are also written to `spool_file`.
    """
    name = settings.crawl_name or crawl
    sinks = [_sink_of(output, settings, spool_file.parent, name) for output in parse_outputs(settings.output)]
    places = [sink.name.partition(":")[2] for sink in sinks]
    if twice := [place for place in places if places.count(place) > 1]:
        raise UsageError(f"-o: {twice[0] or 'standard output'} is named twice")
    if settings.index and not items_file(settings):
        sinks.append(FileSink(spool_file, sync=settings.sync))
    return sinks


def _sink_of(output: OutputTarget, settings: Settings, spool_folder: Path, crawl: str) -> Sink:
    sync = settings.sync
    if output.stream:
        return RedisStreamSink(output.stream, crawl, log.warning, sync=sync)
    layout = Csv(output.text or "standard output", settings.fields) if output.format == "csv" else JsonLines()
    if not output.path:
        return StdoutSink(layout=layout)
    if output.format == "sqlite":
        return SqliteSink(output.path, crawl, sync=sync)
    if output.format == "json":
        number = zlib.crc32(os.path.realpath(output.path).encode())
        return JsonArraySink(output.path, spool_folder / f"json-{number:08x}.jsonl", codec_of(output.codec), sync=sync)
    return FileSink(output.path, layout, codec_of(output.codec), sync=sync)


def written_paths(settings: Settings, state: StateDir) -> list[Path]:
    """Return the paths that the crawl writes to."""
    index = None if "://" in (settings.index or "") else settings.index
    places = (state.path, *(each.path for each in parse_outputs(settings.output)), index)
    return [Path(place).absolute() for place in places if place]


def indexer_of(settings: Settings, spool_file: Path, index: DocumentIndex) -> Indexer:
    """Return the indexer for the items file."""
    file = Path(items_file(settings) or spool_file)
    return Indexer(index, file, source_name(file))


def index_listener(indexer: Indexer | None) -> Callable[[Mapping[str, int]], None]:
    """Return a listener that passes committed positions of the items file to the indexer."""
    reported: list[Exception] = []

    def on_commit(positions: Mapping[str, int]) -> None:
        if indexer is None:
            return
        indexer.advance(positions[indexer.source])
        if indexer.error is not None and indexer.error not in reported:
            reported.append(indexer.error)
            log.error("%s; the crawl continues without the index", indexer.error)

    return on_commit


def _safe_name(name: str) -> str:
    safe = "".join(char if char.isalnum() or char in "._-" else "-" for char in name)
    return safe[:NAME_MAX].lstrip(".") or "crawl"
