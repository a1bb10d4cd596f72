"""Claims a slot of a host for a transfer that has no lease of its own (an inline fetch)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from math import isinf

from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import VisitFrontier
from lycosa.infra.clock import Clock


@asynccontextmanager
async def claim_host(
    host: str,
    frontier: VisitFrontier,
    clock: Clock,
    holder: Lease | None = None,
    resolve: Callable[[str], Awaitable[None]] | None = None,
    changed: Callable[[], None] = lambda: None,
) -> AsyncIterator[str]:
    """Wait for a slot of the host and hold it for one transfer. Yields the address to connect to, "" for any.

    `holder` is the lease of the request that the caller processes. `resolve` is `HostAddresses.update`, for a frontier
    with limits per address. `changed` is called when `frontier.next_ready` may have changed: when the claim begins to
    wait, because the slot of `holder` is free meanwhile; when the claim gets its slot; and when it frees the slot.
    """
    if resolve is not None and frontier.needs_address(host, clock.now()):
        await resolve(host)
    woken = asyncio.Event()
    claim = await frontier.claim(host, woken.set, clock.now(), holder)
    try:
        changed()
        # 0: the claim has its slot. Otherwise the time to try again; infinity means that the frontier sets `woken`.
        while at := await frontier.try_start(claim, now := clock.now()):
            with suppress(TimeoutError):
                async with asyncio.timeout(None if isinf(at) else max(at - now, 0.0)):
                    await woken.wait()
            woken.clear()
        changed()
        yield claim.address
    finally:
        await frontier.release_claim(claim, clock.now())
        changed()
