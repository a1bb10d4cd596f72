"""A pool of proxies for your own programs: leases the best proxy for a site, to one worker at a time.

from lycosa.pool import open_pool

async with open_pool("proxies") as pool:  # a folder, or redis://HOST:6379/0?pool=NAME
    async with pool.lease("shop.example") as proxy:
        response = await client.get("https://shop.example/", proxy=proxy.url)
        proxy.report(response)

with open_pool("proxies") as pool, pool.lease("shop.example") as proxy:  # without async, in any thread
    proxy.report(requests.get("https://shop.example/", proxies=proxy.proxies))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lycosa.app.proxies import pools
from lycosa.app.proxies.blocking import BlockingPool, PoolOpening
from lycosa.app.proxies.leasing import LeasedProxy, Pool
from lycosa.core.errors import NoProxy
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool

__all__ = ["Blame", "BlockingPool", "LeasedProxy", "NoProxy", "Outcome", "OutcomeRule", "Pool", "Proxy", "open_pool"]


def open_pool(
    address: str | Path, policies: Policies | Mapping[str, Any] | None = None, *, create: bool = False
) -> PoolOpening:
    """Return a context manager that opens a pool.

    `address` is `memory:`, a folder, or `redis://HOST:6379/0?pool=NAME`. `async with` gives a `Pool`, and `with` a
    `BlockingPool`, which threads can share. `policies` has the form of the table `proxies` in a project file:
    {"default": {"lease_s": 30}}. By default that table is read from the project that contains the current folder. With
    `create`, a missing pool is created. Raises `UsageError` for an invalid address or policy, and for a missing pool;
    `StateError` if the pool cannot be opened. See docs/proxies.md.
    """

    async def open_() -> tuple[ProxyPool, Pool]:
        if policies is None:
            parsed = pools.project_policies(Path.cwd())
        else:
            parsed = policies if isinstance(policies, Policies) else pools.read_policies(policies)
        port = await pools.open_pool(address, parsed, create=create)
        return port, Pool(port, parsed)

    return PoolOpening(open_)
