"""A pool of proxies for your own programs: leases the best proxy for a site, to one worker at a time.

from lycosa.pool import open_pool

async with open_pool("proxies") as pool:  # a folder, or redis://HOST:6379/0?pool=NAME
    async with pool.lease("shop.example") as proxy:
        response = await client.get("https://shop.example/", proxy=proxy.url)
        proxy.report(response)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lycosa.app.proxies import pools
from lycosa.app.proxies.leasing import LeasedProxy, Pool
from lycosa.core.errors import NoProxy
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, OutcomeRule
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.core.proxy import Proxy

__all__ = ["Blame", "LeasedProxy", "NoProxy", "Outcome", "OutcomeRule", "Pool", "Proxy", "open_pool"]


@asynccontextmanager
async def open_pool(
    address: str | Path, policies: Policies | Mapping[str, Any] | None = None, *, create: bool = False
) -> AsyncIterator[Pool]:
    """Open the pool at an address while the block runs: `memory:`, a folder, or `redis://HOST:6379/0?pool=NAME`.

    `policies` has the form of the table `proxies` in a project file: {"default": {"lease_s": 30}}. The default is the
    table of the project that the current folder is in. With `create`, a missing pool is created. Raises `UsageError`
    for an invalid address or policy, and for a missing pool; `StateError` if the pool cannot be opened. See
    docs/proxies.md.
    """
    if policies is None:
        parsed = pools.project_policies(Path.cwd())
    else:
        parsed = policies if isinstance(policies, Policies) else pools.read_policies(policies)
    pool = await pools.open_pool(address, parsed, create=create)
    try:
        yield Pool(pool, parsed)
    finally:
        await pool.close()
