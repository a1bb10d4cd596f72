"""From the settings to the pool whose proxies a crawl goes through."""

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


async def leaser_of(stack: AsyncExitStack, settings: Settings, clock: Clock) -> ProxyLeaser | None:
    """Open the pool of a crawl, if it has one; the stack closes it. Raises `BadSetting`, `UsageError`, `StateError`."""
    place = settings.proxy_pool
    if not place:
        return None
    if settings.proxy:
        raise BadSetting("proxy and proxy_pool: every request goes through the one, or through some of the other")
    listed = _is_list(place)
    if settings.processes > 1 and (listed or place == MEMORY):
        raise BadSetting(f"proxy_pool: {place} is in the memory of one process: with processes, a folder or redis://…")
    policies = project_policies(Path.cwd())
    if listed:
        pool = await _listed(Path(place), policies)
    else:
        pool = await open_for_leasing(place, policies, Path.cwd())
    if listed or place == MEMORY:
        _keep(stack, pool, is_empty=not listed)
    leaser = ProxyLeaser(
        pool,
        policies.rules_of,
        clock,
        tries=settings.proxy_tries,
        wait_max_s=settings.proxy_wait,
    )
    stack.push_async_callback(leaser.close)
    return leaser


def _keep(stack: AsyncExitStack, pool: ProxyPool, *, is_empty: bool) -> None:
    """Let the sources and checks of the project keep a pool that nobody else can. Raises `BadSetting`."""
    sources, checks = project_sources(Path.cwd()), project_checks(Path.cwd())
    if is_empty and not sources:
        raise BadSetting(
            f"proxy_pool: {MEMORY} stays empty: write [[proxies.sources]] into lycosa.toml, or give a list"
        )
    if sources or checks.judges:
        task = asyncio.create_task(_kept(pool, sources, checks))
        stack.push_async_callback(_end, task)


async def _kept(pool: ProxyPool, sources: Sequence[ProxySource], checks: Checks) -> None:
    try:
        await keep(pool, sources, checks, Path.cwd())
    except Exception as error:  # noqa: BLE001  the crawl goes on with the proxies that there are
        log.warning("the pool is not kept up to date any more: %s", error)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _is_list(place: str) -> bool:
    try:
        return Path(place).is_file()
    except OSError:  # too long for the name of a file, which an address may be
        return False


async def _listed(file: Path, policies: Policies) -> ProxyPool:
    """Return a pool in memory with the proxies of a list."""
    proxies, faults = _read(file)
    if not proxies:
        why = f" ({faults[0]})" if faults else ""
        write = "write one a line, as host:port or socks5h://host:port"
        raise BadSetting(f"proxy_pool: {file} has no proxies{why}: {write}")
    if faults:
        log.warning("%s: %d left out, first %s", file, len(faults), faults[0])
    pool = await open_pool(MEMORY, policies)
    await pool.add(proxies)
    return pool


def _read(file: Path) -> tuple[list[Proxy], list[Fault]]:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            found = list(read_list(opened.read(LIST_MAX + 1)))
    except OSError as error:
        raise BadSetting(f"proxy_pool: {file} cannot be read: {error.strerror}") from None
    except BadProxy as wrong:
        raise BadSetting(f"proxy_pool: {file}: {wrong}") from None
    proxies = [each for each in found if isinstance(each, Proxy)]
    return proxies, [each for each in found if isinstance(each, Fault)]
