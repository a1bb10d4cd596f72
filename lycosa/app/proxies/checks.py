"""Puts together what checks proxies, and what brings them in, with fetchers of their own.

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

from lycosa.config.project import find_project, read_proxies
from lycosa.core.errors import BadSetting, UsageError
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.proxies.checking.checker import Checker, check_pool
from lycosa.proxies.checking.upkeep import Upkeep
from lycosa.proxies.core.checks.checks import LOOKED_AT, Checks, Finding, checks_from
from lycosa.proxies.core.sources.sources import ProxySource, RefreshResult, sources_from
from lycosa.proxies.expiry import ROUND_S, forget_dead
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.sources import FETCH_MAX_S, Refresher

__all__ = ["check_pool", "keep", "open_checker", "open_refresher", "open_upkeep", "project_checks", "project_sources"]

TRANSFERS_OF_A_CHECK = 2
"""At the same time."""


def project_checks(folder: Path) -> Checks:
    """Return what `[proxies.checks]` of the project says that `folder` is in. Raises `BadSetting`."""
    place, table = read_proxies(folder)
    try:
        return checks_from(table.get("checks", {}))
    except BadSetting as wrong:
        raise BadSetting(f"{place}: {wrong}") from None


def project_sources(folder: Path, environ: Mapping[str, str] = os.environ) -> tuple[ProxySource, ...]:
    """Return the `[[proxies.sources]]` of the project that `folder` is in. Raises `BadSetting`."""
    place, table = read_proxies(folder)
    try:
        return sources_from(table.get("sources", []), environ)
    except BadSetting as wrong:
        raise BadSetting(f"{place}: {wrong}") from None


@asynccontextmanager
async def open_checker(checks: Checks) -> AsyncIterator[Checker]:
    """Have a checker while the block runs. Raises `NoJudge` when it is asked to check, and no judge answers."""
    pins = ";".join(dict.fromkeys(each.curl_pin for each in checks.judges if each.curl_pin))
    limits = {"timeout_s": checks.timeout_s, "connect_timeout_s": checks.timeout_s, "max_body_bytes": LOOKED_AT}
    transfers = checks.concurrency * TRANSFERS_OF_A_CHECK
    judges = CurlFetcher(FetchSettings(pins=pins, connections_max=transfers, **limits))  # type: ignore[arg-type]
    sites = CurlFetcher(FetchSettings(connections_max=transfers, **limits))  # type: ignore[arg-type]
    try:
        yield Checker(checks, judges, sites)
    finally:
        await judges.close()
        await sites.close()


@asynccontextmanager
async def open_upkeep(
    pool: ProxyPool, checks: Checks, heard: Callable[[Finding], None] = lambda _: None
) -> AsyncIterator[Upkeep]:
    """Have what keeps a pool checked while the block runs; the caller runs it."""
    async with open_checker(checks) as checker:
        yield Upkeep(pool, checker, heard=heard)


@asynccontextmanager
async def open_refresher(
    pool: ProxyPool,
    sources: Sequence[ProxySource],
    folder: Path,
    heard: Callable[[RefreshResult], None] = lambda _: None,
    *,
    checks_first: bool = False,
) -> AsyncIterator[Refresher]:
    """Have what keeps a pool up to date with its sources while the block runs; paths begin at the project's folder."""
    fetcher = CurlFetcher(FetchSettings(timeout_s=FETCH_MAX_S))
    try:
        place = find_project(folder) or folder
        yield Refresher(pool, sources, fetcher, folder=place, heard=heard, checks_first=checks_first)
    finally:
        await fetcher.close()


def refuse_nothing(sources: Sequence[ProxySource], checks: Checks) -> None:
    """Raise `UsageError` when there is neither a source nor a judge."""
    if not sources and not checks.judges:
        raise UsageError("nothing to keep: write [[proxies.sources]], or judges in [proxies.checks], into lycosa.toml")


async def keep(
    pool: ProxyPool,
    sources: Sequence[ProxySource],
    checks: Checks,
    folder: Path,
    *,
    reported: Callable[[RefreshResult], None] = lambda _: None,
    found: Callable[[Finding], None] = lambda _: None,
    forgotten: Callable[[Sequence[str]], None] = lambda _: None,
    round_s: float = ROUND_S,
) -> None:
    """Keep a pool up to date with its sources, and its proxies checked, until cancelled: whichever of both there is.

    Those that are dead for long (`Checks.dead_kept_s`) are `forgotten`; what a source lists on comes back as new.

    Raises `UsageError` when there is neither a source nor a judge.
    """
    refuse_nothing(sources, checks)
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        upkeep = await stack.enter_async_context(open_upkeep(pool, checks, found))

        def heard(report: RefreshResult) -> None:
            if report.added:
                upkeep.look()
            reported(report)

        told = [forgotten]
        if sources:
            refresher = await stack.enter_async_context(
                open_refresher(pool, sources, folder, heard, checks_first=bool(checks.judges))
            )
            group.create_task(refresher.run())
            told.append(refresher.forgotten)
        if checks.dead_kept_s:
            group.create_task(forget_dead(pool, checks.dead_kept_s, lambda keys: _tell_all(told, keys), round_s))
        if checks.judges:
            group.create_task(upkeep.run())


def _tell_all(told: Sequence[Callable[[Sequence[str]], None]], keys: Sequence[str]) -> None:
    for each in told:
        each(keys)
