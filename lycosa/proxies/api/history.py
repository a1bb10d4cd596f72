"""Samples the latencies of a pool for the sparklines, while somebody views its pages.

Sampling stops IDLE_AFTER_S after the last view. It takes at most the share LOAD_MAX of the time, so a slow pool is
sampled less often.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from statistics import median

from lycosa.core.errors import LycosaError
from lycosa.proxies.ports import ProxyPool, ProxyView, TargetView

log = logging.getLogger(__name__)

INTERVAL_S = 5.0
LOAD_MAX = 0.05
IDLE_AFTER_S = 600.0
SAMPLES_MAX = 60
SERIES_MAX = 3_000
"""Beyond this number, the least recently sampled series is forgotten."""

TARGETS_MAX = 50
"""Maximum number of targets that are sampled: those with the most active leases."""

EVERYWHERE = ""


class History:
    """Latencies (seconds) of the pool, of targets, and of proxies on targets, newest last."""

    def __init__(self, pool: ProxyPool, now: Callable[[], float]) -> None:
        self._pool = pool
        self._now = now
        self._series: OrderedDict[tuple[str, str], deque[float | None]] = OrderedDict()
        self._viewed_at = 0.0
        self._viewed = asyncio.Event()

    def note_view(self) -> None:
        """Start or continue the sampling."""
        self._viewed_at = self._now()
        self._viewed.set()

    def series(self, target: str = EVERYWHERE, key: str = "") -> list[float | None]:
        """Return the samples of a proxy, or without `key` the medians of the target. None: latency unknown."""
        return list(self._series.get((target, key), ()))

    async def run(self) -> None:
        while True:
            await self._viewed.wait()
            started = time.monotonic()
            try:
                await self.sample()
            except LycosaError as error:  # the next sample may succeed
                log.warning("the pool's latencies were not sampled: %s", error)
            await asyncio.sleep(max(INTERVAL_S, (time.monotonic() - started) / LOAD_MAX))
            if self._now() - self._viewed_at > IDLE_AFTER_S:
                self._viewed.clear()

    async def sample(self) -> None:
        self._add(EVERYWHERE, await self._pool.proxies())
        for view in busiest(await self._pool.targets())[:TARGETS_MAX]:
            self._add(view.target, await self._pool.proxies(view.target))

    def _add(self, target: str, views: Iterable[ProxyView]) -> None:
        latencies = {view.proxy.key: view.latency_s for view in views}
        known = [each for each in latencies.values() if each is not None]
        for key, latency_s in list(latencies.items())[: SERIES_MAX // 2]:  # leave room for other targets
            self._append((target, key), latency_s)
        self._append((target, ""), median(known) if known else None)

    def _append(self, name: tuple[str, str], value: float | None) -> None:
        self._series.setdefault(name, deque(maxlen=SAMPLES_MAX)).append(value)
        self._series.move_to_end(name)
        while len(self._series) > SERIES_MAX:
            self._series.popitem(last=False)


def busiest(views: Iterable[TargetView]) -> list[TargetView]:
    """Return the targets, most active leases first."""
    return sorted(views, key=lambda view: (-view.leases, -view.granted, view.target))
