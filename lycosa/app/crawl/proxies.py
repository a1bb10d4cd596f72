"""Open the proxy pool of a crawl."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from lycosa.app.proxies.checks import keep, project_checks, project_sources
from lycosa.app.proxies.pools import open_for_leasing, open_pool, project_policies
from lycosa.config import Settings
from lycosa.core.errors import BadProxy, BadSetting
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.infra.clock import Clock
from lycosa.proxies.core.checks.checks import Checks
from lycosa.proxies.core.pool_url import MEMORY
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.core.sources.lists import LIST_MAX, Fault, read_list
from lycosa.proxies.core.sources.sources import ProxySource
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)


async def open_pool_leaser(stack: AsyncExitStack, settings: Settings, clock: Clock) -> ProxyLeaser:
    """Open the proxy pool of a crawl. The stack closes it. Raises `BadSetting`, `UsageError` or `StateError`."""
    place = settings.proxy_pool or ""
    if settings.proxy:
        raise BadSetting("proxy and proxy_pool exclude each other: use one proxy for all requests, or a pool")
    is_list = _is_file(place)
    if settings.processes > 1 and (is_list or place == MEMORY):
        advice = "with several processes use a folder, or redis://..."
        raise BadSetting(f"proxy_pool: {place} is held in memory, where only one process can use it: {advice}")
    policies = project_policies(Path.cwd())
    if is_list:
        pool = await _pool_of_list(Path(place), policies)
    else:
        pool = await open_for_leasing(place, policies, Path.cwd())
    if is_list or place == MEMORY:
        _maintain(stack, pool, is_empty=not is_list)
    leaser = ProxyLeaser(pool, policies.rules_of, clock, tries=settings.proxy_tries, wait_max_s=settings.proxy_wait)
    stack.push_async_callback(leaser.close)
    return leaser


def _maintain(stack: AsyncExitStack, pool: ProxyPool, *, is_empty: bool) -> None:
    """Refresh and check a pool in memory, since no other process can. Raises `BadSetting`."""
    sources, checks = project_sources(Path.cwd()), project_checks(Path.cwd())
    if is_empty and not sources:
        raise BadSetting(
            f"proxy_pool: {MEMORY} stays empty: write [[proxies.sources]] into lycosa.toml, or give a list"
        )
    if sources or checks.judges:
        task = asyncio.create_task(_refresh_and_check(pool, sources, checks))
        stack.push_async_callback(_cancel, task)


async def _refresh_and_check(pool: ProxyPool, sources: Sequence[ProxySource], checks: Checks) -> None:
    try:
        await keep(pool, sources, checks, Path.cwd())
    except Exception as error:  # noqa: BLE001  the crawl continues with the proxies that it has
        log.warning("the proxy pool is no longer refreshed and checked: %s", error)


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _is_file(place: str) -> bool:
    try:
        return Path(place).is_file()
    except OSError:  # a URL may be too long for a file name
        return False


async def _pool_of_list(file: Path, policies: Policies) -> ProxyPool:
    """Raises `BadSetting`."""
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            lines = list(read_list(opened.read(LIST_MAX + 1)))
    except OSError as error:
        raise BadSetting(f"proxy_pool: {file} cannot be read: {error.strerror}") from None
    except BadProxy as problem:
        raise BadSetting(f"proxy_pool: {file}: {problem}") from None
    proxies = [line for line in lines if isinstance(line, Proxy)]
    faults = [line for line in lines if isinstance(line, Fault)]
    if not proxies:
        why = f" ({faults[0]})" if faults else ""
        raise BadSetting(
            f"proxy_pool: {file} has no proxies{why}: write one per line, as host:port or socks5h://host:port"
        )
    if faults:
        log.warning("%s: %d lines skipped; the first: %s", file, len(faults), faults[0])
    pool = await open_pool(MEMORY, policies)
    await pool.add(proxies)
    return pool
