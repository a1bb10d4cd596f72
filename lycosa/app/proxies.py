"""Opens a pool of proxies by its address, with the policies of the project."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from lycosa.config.project import read_proxies
from lycosa.core.errors import BadSetting
from lycosa.core.proxies.address import read_address
from lycosa.core.proxies.policies import Policies, policies_from
from lycosa.ports import ProxyPool
from lycosa.proxies.embedded import embedded_pool
from lycosa.proxies.local import LocalPool

log = logging.getLogger(__name__)


async def open_pool(
    address: str | Path, policies: Policies | None = None, say: Callable[[str], None] = log.warning
) -> ProxyPool:
    """Return the pool at an address (`core.proxies.address`), to be closed by the caller.

    `say` hears that a server or another process is waited for. Raises `UsageError` for what is no address, or is not
    let in; `StateError` for a folder or server that cannot be used.
    """
    place = read_address(str(address))
    policy_of = (policies or Policies()).policy_of
    if place.url:
        from lycosa.proxies.redis import redis_pool  # an extra

        return await redis_pool(place.url, place.name, say, policy_of)
    if place.folder:
        return await embedded_pool(Path(place.folder), say, policy_of)
    return LocalPool(policy_of)


def project_policies(folder: Path) -> Policies:
    """Return the policies of the project that `folder` is in. Raises `BadSetting`."""
    place, table = read_proxies(folder)
    try:
        return policies_from(table)
    except BadSetting as wrong:
        raise BadSetting(f"{place}: {wrong}") from None
