"""Builds the parts that check proxies and load them from sources, each with its own fetchers.

checks, sources = project_checks(folder), project_sources(folder)
async with open_checker(checks) as checker:
    async for finding in check_pool(pool, checker, now): ...
async with open_refresher(pool, sources, folder) as refresher:
    await refresher.refresh()
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from lycosa.app.proxies.pools import read_project
from lycosa.config.project import find_project
from lycosa.core.errors import UsageError
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.proxies.checking.checker import Checker, check_pool
from lycosa.proxies.checking.upkeep import Upkeep
from lycosa.proxies.core.checks.checks import SEARCHED_MAX, Checks, Finding, checks_from
from lycosa.proxies.core.sources.sources import ProxySource, RefreshResult, sources_from
from lycosa.proxies.expiry import ROUND_S, forget_dead
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.sources import FETCH_MAX_S, Refresher

__all__ = ["check_pool", "keep", "open_checker", "open_refresher", "open_upkeep", "project_checks", "project_sources"]

TRANSFERS_PER_CHECK = 2
"""Maximum number of concurrent transfers of one check."""


def project_checks(folder: Path) -> Checks:
    """Return `[proxies.checks]` of `folder`'s project. Raises `BadSetting`."""
    return read_project(folder, lambda table: checks_from(table.get("checks", {})))


def project_sources(folder: Path, environ: Mapping[str, str] = os.environ) -> tuple[ProxySource, ...]:
    """Return the `[[proxies.sources]]` of `folder`'s project. Raises `BadSetting`."""
    return read_project(folder, lambda table: sources_from(table.get("sources", []), environ))


@asynccontextmanager
async def open_checker(checks: Checks) -> AsyncIterator[Checker]:
    """Open a checker, and close it after the block. Its checks raise `NoJudge` if no judge responds."""
    pins = ";".join(dict.fromkeys(each.curl_pin for each in checks.judges if each.curl_pin))
    limits = {"timeout_s": checks.timeout_s, "connect_timeout_s": checks.timeout_s, "max_body_bytes": SEARCHED_MAX}
    transfers = checks.concurrency * TRANSFERS_PER_CHECK
    judges = CurlFetcher(FetchSettings(pins=pins, connections_max=transfers, **limits))  # type: ignore[arg-type]
    sites = CurlFetcher(FetchSettings(connections_max=transfers, **limits))  # type: ignore[arg-type]
    try:
        yield Checker(checks, judges, sites)
    finally:
        await judges.close()
        await sites.close()


@asynccontextmanager
async def open_upkeep(
    pool: ProxyPool, checks: Checks, on_finding: Callable[[Finding], None] = lambda _: None
) -> AsyncIterator[Upkeep]:
    """Open the `Upkeep` of a pool, and close it after the block. The caller runs it."""
    async with open_checker(checks) as checker:
        yield Upkeep(pool, checker, on_finding=on_finding)


@asynccontextmanager
async def open_refresher(
    pool: ProxyPool,
    sources: Sequence[ProxySource],
    folder: Path,
    on_refresh: Callable[[RefreshResult], None] = lambda _: None,
    *,
    checks_first: bool = False,
) -> AsyncIterator[Refresher]:
    """Open the `Refresher` of a pool, and close it after the block.

    Paths of sources are relative to the project's folder.
    """
    fetcher = CurlFetcher(FetchSettings(timeout_s=FETCH_MAX_S))
    base = find_project(folder) or folder
    try:
        yield Refresher(pool, sources, fetcher, folder=base, on_refresh=on_refresh, checks_first=checks_first)
    finally:
        await fetcher.close()


def require_sources_or_judges(sources: Sequence[ProxySource], checks: Checks) -> None:
    """Raise `UsageError` if there is neither a source nor a judge."""
    if not sources and not checks.judges:
        raise UsageError("nothing to keep: write [[proxies.sources]], or judges in [proxies.checks], into lycosa.toml")


async def keep(
    pool: ProxyPool,
    sources: Sequence[ProxySource],
    checks: Checks,
    folder: Path,
    *,
    on_refresh: Callable[[RefreshResult], None] = lambda _: None,
    on_finding: Callable[[Finding], None] = lambda _: None,
    on_forgotten: Callable[[Sequence[str]], None] = lambda _: None,
    round_s: float = ROUND_S,
) -> None:
    """Refresh a pool from its sources, if any, and check its proxies with judges, if any, until cancelled.

    Proxies that have been dead for `Checks.dead_kept_s` are removed. If a source still lists them, they are added again
    as new. Raises `UsageError` if there is neither a source nor a judge.
    """
    require_sources_or_judges(sources, checks)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        upkeep = await stack.enter_async_context(open_upkeep(pool, checks, on_finding))

        def refreshed(result: RefreshResult) -> None:
            if result.added:
                upkeep.refresh_soon()
            on_refresh(result)

        listeners = [on_forgotten]
        if sources:
            refresher = await stack.enter_async_context(
                open_refresher(pool, sources, folder, refreshed, checks_first=bool(checks.judges))
            )
            group.create_task(refresher.run())
            listeners.append(refresher.forgotten)
        if checks.dead_kept_s:

            def forgotten(keys: Sequence[str]) -> None:
                for each in listeners:
                    each(keys)

            group.create_task(forget_dead(pool, checks.dead_kept_s, forgotten, round_s))
        if checks.judges:
            group.create_task(upkeep.run())
