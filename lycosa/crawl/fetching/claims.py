"""A turn on a host for a transfer that is no record, waited for without polling: see `VisitFrontier.claim`."""

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
    find: Callable[[str], Awaitable[None]] | None = None,
    changed: Callable[[], None] = lambda: None,
) -> AsyncIterator[str]:
    """Wait for the turn of the host, and hold it for one transfer. Yield the address to connect to, "" for any.

    `holder` is the lease under which the caller works; `find` tells the frontier the address of a host, where that is
    limited (`Addresses.tell`). `changed` is called whenever `frontier.next_ready` may be another: places come free when
    it begins to wait, and when it ends.
    """
    if find is not None and frontier.needs_address(host, clock.now()):
        await find(host)
    woken = asyncio.Event()
    claim = await frontier.claim(host, woken.set, clock.now(), holder)
    try:
        changed()
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
