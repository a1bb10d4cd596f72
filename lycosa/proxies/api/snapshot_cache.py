"""Looks at a pool for many who look: one at a time, and not all the time when it takes long.

What was seen of a small pool is never old. A look that took more than QUICK_S is shown for REST times as long again.
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
    """The proxies of a pool."""

    def __init__(self, pool: ProxyPool) -> None:
        self._pool = pool
        self._turn = asyncio.Lock()
        self._seen: list[ProxyView] = []
        self._until = 0.0

    async def proxies(self) -> list[ProxyView]:
        """Return all proxies, the nearest first."""
        async with self._turn:
            began = time.monotonic()
            if began >= self._until:
                self._seen = await self._pool.proxies()
                took_s = time.monotonic() - began
                self._until = began + took_s * (1 + HOLD_FACTOR) if took_s > FAST_S else 0.0
            return self._seen

    async def explain(self, target: str, proxy_request: ProxyRequest) -> list[ProxyExplanation]:
        """Return why proxies would be lent, or not, with the reason of what holds for a proxy everywhere."""
        told = await self._pool.explain(target, proxy_request)
        if not any(lacks_reason(each.verdict) for each in told):
            return told
        reasons = {view.proxy.key: view.reason for view in await self.proxies()}
        return [each._replace(verdict=with_reason(each.verdict, reasons)) for each in told]
