"""A cached list of all proxies, shared by the pages and the API. Only one read of the list runs at a time.

A list that is read within FAST_S seconds is not cached. A slower one is reused for HOLD_FACTOR times as long as the
read took.
"""

from __future__ import annotations

import asyncio
import time

from lycosa.proxies.core.explain import lacks_reason, with_reason
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.ports import ProxyExplanation, ProxyPool, ProxyView

FAST_S = 0.1
HOLD_FACTOR = 10.0


class SnapshotCache:
    """The proxies of a pool, current or slightly out of date."""

    def __init__(self, pool: ProxyPool) -> None:
        self.pool = pool
        self._lock = asyncio.Lock()
        self._proxies: list[ProxyView] = []
        self._valid_until = 0.0

    async def proxies(self) -> list[ProxyView]:
        async with self._lock:  # requests during a slow query wait for its result
            started = time.monotonic()
            if started >= self._valid_until:
                self._proxies = await self.pool.proxies()
                took_s = time.monotonic() - started
                self._valid_until = started + took_s * (1 + HOLD_FACTOR) if took_s > FAST_S else 0.0
            return self._proxies

    async def explain(self, target: str, request: ProxyRequest) -> list[ProxyExplanation]:
        """Like `ProxyPool.explain`, but with the reasons for obstacles that affect all targets."""
        found = await self.pool.explain(target, request)
        if not any(lacks_reason(each.verdict) for each in found):
            return found
        reasons = {view.proxy.key: view.reason for view in await self.proxies()}
        return [each._replace(verdict=with_reason(each.verdict, reasons)) for each in found]
