"""Open a pool of proxies by its address, and read the proxy settings of the project."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from lycosa.config.project import read_proxies
from lycosa.config.renamed import renamed_policy
from lycosa.config.suggestions import looks_like_a_list_file, suggest_file
from lycosa.core.errors import BadSetting, UsageError
from lycosa.proxies.core.pool_url import MEMORY, PoolAddress, parse_pool_address
from lycosa.proxies.core.project_policies import Policies, policies_from
from lycosa.proxies.folder.folder import pool_exists
from lycosa.proxies.folder.pool import embedded_pool
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

T = TypeVar("T")
AnyPool = TypeVar("AnyPool", bound=ProxyPool)

LOGIN = re.compile(r"^[^/@:]+:[^@]*@")
"""A login at the start of a pool's address: the user has given the address of a proxy instead of a pool."""

ADD_COMMAND = "lycosa proxies add FILE --pool"


async def open_pool(
    address: str | Path,
    policies: Policies | None = None,
    report: Callable[[str], None] = log.warning,
    *,
    create: bool = False,
) -> ProxyPool:
    """Open the pool at an address (see `proxies.core.pool_url`). The caller closes it.

    `report` is called while waiting for a server or another process. Raises `UsageError` for a missing pool (unless
    `create`), an invalid address or a refused login; `StateError` for a folder or server that cannot be used.
    """
    place = parse_pool_address(str(address))
    policy_of = (policies or Policies()).policy_of
    if place.url:
        from lycosa.proxies.redis.pool import redis_pool  # optional dependency

        async with _closed_on_error(await redis_pool(place.url, place.name, report, policy_of)) as pool:
            if create:
                await pool.create()
            elif not await pool.exists():
                raise _missing(place)
            return pool
    if place.folder:
        if not create and not pool_exists(Path(place.folder)):
            raise _missing(place)
        return await embedded_pool(Path(place.folder), report, policy_of)
    return LocalPool(policy_of)


async def open_for_leasing(
    address: str | Path, policies: Policies | None, folder: Path, report: Callable[[str], None] = log.warning
) -> ProxyPool:
    """Open a pool to lease from, for `folder`'s project. Raises what `open_pool` raises.

    Also raises `UsageError` for an empty pool, unless it is in memory, or the project has sources to fill it.
    """
    place = parse_pool_address(str(address))
    async with _closed_on_error(await open_pool(address, policies, report)) as pool:
        if place.text != MEMORY and not has_sources(folder) and not await pool.count():
            wrong = f"the pool {place.text} has no proxies, and the project has no [[proxies.sources]]"
            raise UsageError(f"{wrong}: {ADD_COMMAND} {place.text} fills it")
        return pool


def read_project(folder: Path, read: Callable[[Mapping[str, object]], T]) -> T:
    """Read the table `proxies` of `folder`'s project. Raises `BadSetting`, which names the file."""
    place, table = read_proxies(folder)
    try:
        return read(table)
    except BadSetting as error:
        raise BadSetting(f"{place}: {error}") from None


def has_sources(folder: Path) -> bool:
    """Return whether `folder`'s project has sources of proxies. Raises `BadSetting`."""
    return bool(read_proxies(folder)[1].get("sources"))


def project_policies(folder: Path) -> Policies:
    """Return the policies of `folder`'s project. Raises `BadSetting`."""
    return read_project(folder, read_policies)


def read_policies(table: Mapping[str, object]) -> Policies:
    """Parse the table `proxies`. Raises `BadSetting`; for a renamed key it gives the new name."""
    try:
        return policies_from(table)
    except BadSetting:
        if renamed := renamed_policy(table):
            raise BadSetting(renamed) from None
        raise


@asynccontextmanager
async def _closed_on_error(pool: AnyPool) -> AsyncIterator[AnyPool]:
    try:
        yield pool
    except BaseException:
        await pool.close()
        raise


def _missing(place: PoolAddress) -> UsageError:
    shown = LOGIN.sub("...@", place.text)
    makes = f"{ADD_COMMAND} {shown} creates one"
    if not place.folder:
        return UsageError(f"there is no pool at {shown}: {makes}")
    if Path(place.folder).exists():
        return UsageError(f"there is no pool in {shown}: {makes}")
    near = suggest_file(place.folder, lambda path: path.is_file() or pool_exists(path))
    if looks_like_a_list_file(place.folder):
        return UsageError(f"there is no file {shown}{near or ', and no pool of this name'}")
    wrong = f"there is no pool in {shown}{', nor a file of this name' if '/' in place.folder else ''}"
    return UsageError(f"{wrong}{near or ':'} {makes}")
