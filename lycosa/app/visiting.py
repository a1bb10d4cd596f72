"""From settings and a spider to what visits its pages: middlewares in order, downloader, scraper, visitor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from lycosa.app.parts import Target, fetch_settings_of, retry_policy_of
from lycosa.clock import Clock, chance
from lycosa.config import Settings
from lycosa.engine.download import Downloader, accept_types
from lycosa.engine.hops import HOPS_MAX
from lycosa.engine.middleware import DownloaderChain, Placed, SpiderChain
from lycosa.engine.middlewares.httperror import HttpErrors
from lycosa.engine.middlewares.offsite import Offsite
from lycosa.engine.middlewares.redirect import Redirect
from lycosa.engine.middlewares.retry import Retry
from lycosa.engine.middlewares.robots import ObeyRobots
from lycosa.engine.pipeline import Pipelines
from lycosa.engine.retrying import Retrying
from lycosa.engine.robots import RobotsGate
from lycosa.engine.scrape import Scraper
from lycosa.engine.stats import RunStats
from lycosa.engine.statuses import Statuses
from lycosa.engine.visit import Rules, Visitor
from lycosa.ports import Fetcher


def visitor_of(
    settings: Settings,
    target: Target,
    rules: Rules,
    fetcher: Fetcher,
    gate: RobotsGate,
    pipelines: Pipelines,
    prepare: Callable[[Any], Sequence[Any]],
    known: Callable[[str, Sequence[int]], AbstractSet[int]],
    stats: RunStats,
    clock: Clock,
) -> Visitor:
    """Return what visits the pages of the target."""
    spider = target.spider
    statuses = Statuses(frozenset(getattr(spider, "handle_httpstatus_list", ())))
    retrying = Retrying(retry_policy_of(settings), clock, chance)
    downloader = Downloader(
        fetcher,
        DownloaderChain(downloader_middlewares(settings, rules, gate, retrying, statuses), spider),
        retrying,
        clock,
        accept_types(rules.content_types),
        fetch_settings_of(settings).headers,
    )
    scraper = Scraper(spider, SpiderChain([Placed(50, HttpErrors(statuses))], spider))
    return Visitor(spider, rules, downloader, scraper, retrying, pipelines, prepare, known, stats, target.naming)


def downloader_middlewares(
    settings: Settings, rules: Rules, gate: RobotsGate, retrying: Retrying, statuses: Statuses
) -> list[Placed]:
    """Return the built-in downloader middlewares that the settings ask for."""
    placed = [Placed(50, Offsite(rules.scope))]
    if settings.robots:
        placed.append(Placed(100, ObeyRobots(gate)))
    placed.append(Placed(550, Retry(retrying, statuses)))
    placed.append(Placed(600, Redirect(HOPS_MAX, statuses)))
    return placed
