"""The spiders of one crawl, each with its settings."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lycosa.app.crawl.parts import Target, policy_of, target_of
from lycosa.app.request_rules import spider_fingerprint
from lycosa.config import Settings
from lycosa.core.errors import BadSetting, BadSpider, LycosaError
from lycosa.crawl.events.signals import Signal, spider_closed
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.spider import Spider, wrap_user_errors
from lycosa.frontier.core.states import Policy

SPIDER_SETTINGS = frozenset(
    {
        "allow", "backoff_base", "max_backoff", "connect_timeout", "content_types", "cookies", "cookies_debug", "deny",
        "depth", "depth_priority", "downloader_middlewares", "extensions", "fail_on_dataloss", "files_store",
        "follow_nofollow", "header",
        "http_auth_domain", "http_pass", "http_user", "httperror_allow_all", "httperror_allowed",
        "images_min_height", "images_min_width", "images_store", "images_thumbs", "insecure", "max_body",
        "media_expires", "meta_refresh", "meta_refresh_max_delay", "pipelines", "proxy", "redirect", "max_redirects",
        "referrer_policy", "retries", "retry_enabled", "retry_statuses", "robots", "spider_middlewares", "timeout",
        "max_url_length", "user", "user_agent",
    }
)  # fmt: skip
"""Settings that may differ between the spiders of one crawl; all others must be equal."""

Crawlable = Sequence[str] | type[Spider] | Spider | Sequence[type[Spider]]
"""What can be crawled: start URLs, a spider class, a spider, or several spider classes."""


@dataclass(frozen=True, slots=True)
class SpiderSpec:
    """A spider with its own settings."""

    settings: Settings
    target: Target

    @property
    def spider(self) -> Spider:
        return self.target.spider


@dataclass(frozen=True, slots=True)
class CrawlSpec:
    """The spiders of a crawl, at least one. `target` has the name of the crawl and the crawler of the first spider.

    Worker processes build the same spec from `crawlable` and `arguments`.
    """

    spiders: Sequence[SpiderSpec]
    target: Target
    crawlable: Crawlable = ()
    arguments: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The settings of the first spider. Read only those that all spiders share."""
        return self.spiders[0].settings

    @property
    def policy(self) -> Policy:
        """The frontier's policy. robots.txt is fetched if any spider obeys it."""
        return replace(policy_of(self.settings), robots=any(spec.settings.robots for spec in self.spiders))

    @property
    def spider_names(self) -> str:
        """Names joined with "+"; "" for a crawl without a user's spider."""
        return "+".join(sorted(spec.spider.name for spec in self.spiders if not spec.target.generic))

    async def send(self, signal: Signal, *, of_spider: bool = False, **values: Any) -> None:
        """Send a signal to the receivers of each spider; with `of_spider`, also pass them the `spider`."""
        for spec in self.spiders:
            sender = {"spider": spec.spider} if of_spider else {}
            await spec.target.crawler.signals.send(signal, **sender, **values)

    async def settle_signals(self) -> None:
        for spec in self.spiders:
            await spec.target.crawler.signals.settle()

    async def close_spiders(self, reason: str) -> None:
        """Call `closed` of all spiders, send `spider_closed`, and then raise the first `LycosaError`."""
        errors: list[Exception] = []
        for spec in self.spiders:
            try:
                with wrap_user_errors(f"{type(spec.spider).__name__}.closed"):
                    result = spec.spider.closed(reason)
                    if inspect.isawaitable(result):
                        await result
            except LycosaError as error:
                errors.append(error)
        await self.send(spider_closed, of_spider=True, reason=reason)
        if errors:
            raise errors[0]


def crawl_spec(
    settings: Settings | Sequence[Settings],
    crawlable: Crawlable,
    arguments: Mapping[str, str] | None = None,
    stats: StatsCollector | None = None,
) -> CrawlSpec:
    """Return the spec of a crawl of start URLs, a spider, or several spider classes. All spiders share `stats`.

    `settings` applies to all classes, or is a list with the settings of each class. Raises `BadUrl`, `BadSpider` or
    `BadSetting`.
    """
    arguments = arguments or {}
    classes = [each for each in crawlable if isinstance(each, type)] if isinstance(crawlable, (list, tuple)) else []
    if len(classes) < 2:
        first = settings if isinstance(settings, Settings) else settings[0]
        target = target_of(first, classes[0] if classes else crawlable, arguments, stats)  # type: ignore[arg-type]
        return CrawlSpec([SpiderSpec(first, target)], target, crawlable, arguments)
    stats = stats or StatsCollector()
    each_settings = [settings] * len(classes) if isinstance(settings, Settings) else settings
    targets = [target_of(own, each, arguments, stats) for own, each in zip(each_settings, classes, strict=True)]
    _check_names(targets)
    _check_agreement(targets, each_settings)
    spiders = [SpiderSpec(own, _with_own_records(target)) for own, target in zip(each_settings, targets, strict=True)]
    name = "+".join(sorted(target.name for target in targets))
    return CrawlSpec(spiders, replace(spiders[0].target, name=name), crawlable, arguments)


def _with_own_records(target: Target) -> Target:
    """Make the fingerprints differ between spiders: if two spiders request a URL, both fetch it."""
    fingerprint = spider_fingerprint(target.naming.fingerprint, target.spider.name)
    return replace(target, naming=target.naming._replace(fingerprint=fingerprint, spider=target.spider.name))


def _check_names(targets: Sequence[Target]) -> None:
    names = [target.spider.name for target in targets]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise BadSpider(f"two spiders of this run are called {duplicate!r}: give them different names")


def _check_agreement(targets: Sequence[Target], settings: Sequence[Settings]) -> None:
    for name in (each.name for each in fields(Settings) if each.name not in SPIDER_SETTINGS):
        values = [getattr(own, name) for own in settings]
        other = next((number for number, value in enumerate(values) if value != values[0]), 0)
        if other:
            a, b = targets[0].spider.name, targets[other].spider.name
            raise BadSetting(
                f"the spiders {a} and {b} have different values of {name} ({values[0]!r}, {values[other]!r}), which"
                f" they must share in one run: set it with -s {name}=..., or run them separately"
            )
