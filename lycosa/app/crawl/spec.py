"""Who takes part in a crawl: one spider or several, each with its settings, which must agree on what they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from lycosa.app.crawl.parts import Target, policy_of, target_of
from lycosa.app.request_rules import own_fingerprint
from lycosa.config import Settings
from lycosa.core.errors import BadSetting, BadSpider
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.states import Policy

OWN = frozenset(
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
"""Settings in which the spiders of one crawl may differ; in all others they must agree."""

Crawled = Sequence[str] | type[Spider] | Spider | Sequence[type[Spider]]


@dataclass(frozen=True, slots=True)
class Member:
    """A spider of a crawl with its own settings."""

    settings: Settings
    target: Target

    @property
    def spider(self) -> Spider:
        """The spider."""
        return self.target.spider


@dataclass(frozen=True, slots=True)
class Crew:
    """The members of a crawl, at least one. What they share stands in `settings` and `target`, those of the first."""

    members: Sequence[Member]
    target: Target
    crawled: Crawled = ()
    arguments: Mapping[str, str] = field(default_factory=dict)
    """What the crew was made of."""

    @property
    def settings(self) -> Settings:
        """What all of them share."""
        return self.members[0].settings

    @property
    def policy(self) -> Policy:
        """How the frontier treats hosts and leases; it asks for robots.txt when any of the members obeys it."""
        return replace(policy_of(self.settings), robots=any(member.settings.robots for member in self.members))

    @property
    def spiders(self) -> str:
        """The names of the spiders, "" for a crawl without one."""
        names = [member.spider.name for member in self.members if not member.target.generic]
        return "+".join(sorted(names))


def crew_of(
    settings: Settings | Sequence[Settings],
    crawled: Crawled,
    arguments: Mapping[str, str] | None = None,
    stats: StatsCollector | None = None,
) -> Crew:
    """Return who crawls: start URLs, one spider class, or several with the settings of each; all count in `stats`.

    Raises `BadUrl`, `BadSpider` or `BadSetting`.
    """
    arguments = arguments or {}
    several = [each for each in crawled if isinstance(each, type)] if isinstance(crawled, (list, tuple)) else []
    if len(several) < 2:
        first = settings if isinstance(settings, Settings) else settings[0]
        target = target_of(first, several[0] if several else crawled, arguments, stats)  # type: ignore[arg-type]
        return Crew([Member(first, target)], target, crawled, arguments)
    stats = stats or StatsCollector()
    each_settings = [settings] * len(several) if isinstance(settings, Settings) else settings
    targets = [target_of(own, each, arguments, stats) for own, each in zip(each_settings, several, strict=True)]
    _check_names(targets)
    _check_agreement(targets, each_settings)
    members = [Member(own, _tagged(target)) for own, target in zip(each_settings, targets, strict=True)]
    name = "+".join(sorted(target.name for target in targets))
    return Crew(members, replace(members[0].target, name=name), crawled, arguments)


def _tagged(target: Target) -> Target:
    """Return the target with its records marked as those of its spider, so that each spider fetches a URL itself."""
    named = own_fingerprint(target.naming.fingerprint, target.spider.name)
    return replace(target, naming=target.naming._replace(fingerprint=named, spider=target.spider.name))


def _check_names(targets: Sequence[Target]) -> None:
    names = [target.spider.name for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadSpider(f"two spiders of this run are called {twice!r}: give each a name of its own")


def _check_agreement(targets: Sequence[Target], settings: Sequence[Settings]) -> None:
    for name in (each.name for each in fields(Settings) if each.name not in OWN):
        values = [getattr(own, name) for own in settings]
        other = next((number for number, value in enumerate(values) if value != values[0]), 0)
        if other:
            a, b = targets[0].spider.name, targets[other].spider.name
            what = f"the spiders {a} and {b} want different values of {name} ({values[0]!r}, {values[other]!r})"
            raise BadSetting(f"{what}, which they share in one run: decide with -s {name}=..., or run them apart")
