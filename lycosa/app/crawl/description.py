"""Describe a crawl, in its state folder and in the log."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lycosa.app import ENABLED
from lycosa.app.crawl.extras import pipeline_names
from lycosa.app.crawl.parts import items_location
from lycosa.app.crawl.spec import CrawlSpec, SpiderSpec
from lycosa.core.errors import ForeignState
from lycosa.crawl.spiders.spider import domains_as_urls
from lycosa.frontier.core.description import Description, SpiderDescription
from lycosa.frontier.state_dir import StateDir

log = logging.getLogger(ENABLED)


def remember_seeds(state: StateDir, crawl: CrawlSpec) -> list[str]:
    """Store the description of this run. Return the seeds of all runs, which define the scope.

    Raises `ForeignState` if the state has other spiders or fingerprint rules.
    """
    refuse_other_crawl(state.description, str(state.path), crawl, "another --state, or -O to start afresh")
    seeds = list(dict.fromkeys([*state.description.seeds, *crawl.target.seeds]))
    state.describe(description_of(crawl, seeds))
    return seeds


def description_of(crawl: CrawlSpec, seeds: list[str]) -> Description:
    """Describe a run with these start URLs."""
    target = crawl.target
    spiders = [_describe_spider(spec) for spec in crawl.spiders]
    first = spiders[0]
    return Description(
        name=target.name,
        seeds=seeds,
        spider=crawl.spider_names,
        key=list(target.key),
        scope=crawl.settings.scope if target.generic else "",
        domains=first.domains,
        depth=first.depth,
        allow=first.allow,
        deny=first.deny,
        robots=first.robots,
        user_agent=first.user_agent,
        members=spiders if len(spiders) > 1 else [],
    )


def log_start(crawl: CrawlSpec, state: StateDir) -> None:
    """Log the main settings of the crawl, and the pipelines of each spider."""
    settings, names = crawl.settings, [spec.spider.name for spec in crawl.spiders if not spec.target.generic]
    parts = [
        "a worker of a shared crawl" if settings.frontier else "a crawl on this machine",
        "1 process" if settings.processes == 1 else f"{settings.processes} processes",
        f"callbacks {'on the event loop' if settings.callback_mode == 'loop' else 'in threads'}",
        f"{settings.concurrency} requests at a time, {settings.concurrency_per_host} for each host",
        f"a delay of {settings.delay:g} s" if settings.delay else "no delay",
        f"state {state.path}",
        f"items to {items_location(settings) or 'standard output'}",
    ]
    fields = {"spiders": names, "concurrency": settings.concurrency, "processes": settings.processes}
    log.info("crawl %s: %s", crawl.target.name, ", ".join(parts), extra=fields)
    for spec in crawl.spiders:
        pipelines = ", ".join(pipeline_names(spec)) or "none"
        of = f" of spider {spec.spider.name}" if names else ""
        log.info("enabled pipelines%s: %s", of, pipelines, extra={"spider": spec.spider.name})


def refuse_other_crawl(known: Description, place: str, crawl: CrawlSpec, instead: str) -> None:
    """Raise `ForeignState` if `known`, the description at `place`, has other spiders or fingerprint rules.

    `instead` is the part of the message that says what to give instead.
    """
    names = sorted(spec.spider.name for spec in crawl.spiders) if len(crawl.spiders) > 1 else []
    if known.name and (known.spider != crawl.spider_names or sorted(each.name for each in known.members) != names):
        raise ForeignState(f"{place} is the state of {_owner(known)}; give {instead}")
    key = list(crawl.target.key)
    if (known.name or known.imported) and known.key != key:
        message = f"{place} identifies requests {_rules(known.key)}, but this run {_rules(key)}"
        raise ForeignState(f"{message}: all URLs would be new; give {instead}")


def _describe_spider(spec: SpiderSpec) -> SpiderDescription:
    settings = spec.settings
    return SpiderDescription(
        spec.spider.name,
        domains_as_urls(spec.spider.allowed_domains),
        settings.depth,
        list(settings.allow),
        list(settings.deny),
        settings.robots,
        settings.user_agent,
    )


def _owner(known: Description) -> str:
    if known.members:
        return f"the spiders {', '.join(repr(each.name) for each in known.members)}"
    return f"the spider {known.spider!r}" if known.spider else "a crawl without a spider"


def _rules(key: Sequence[str]) -> str:
    return f"by {', '.join(key)}" if key else "without --fingerprint-rules"
