"""What a pool was like in the last minutes, for the pages: samples, taken while somebody looks.

Nobody looks for WATCHED_S: no samples. A pool that takes long to tell what it knows is asked less often, so that no
more than SHARE of its time goes into this.
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
"""Proxies and targets that are remembered; the one that was sampled longest ago is forgotten."""

TARGETS_MAX = 50
"""Targets that are sampled, those that lend most."""

EVERYWHERE = ""

Line = deque[float | None]


class History:
    """Latencies (seconds) of the pool, of targets, and of proxies on targets, the newest last."""

    def __init__(self, pool: ProxyPool, now: Callable[[], float]) -> None:
        self._pool = pool
        self._now = now
        self._lines: OrderedDict[tuple[str, str], Line] = OrderedDict()
        self._watched_at = 0.0
        self._watched = asyncio.Event()

    def watch(self) -> None:
        """Somebody looks."""
        self._watched_at = self._now()
        self._watched.set()

    def line(self, target: str = EVERYWHERE, key: str = "") -> list[float | None]:
        """Return the samples of a proxy on a target, or the medians of all of them. None: nothing was known."""
        return list(self._lines.get((target, key), ()))

    async def follow(self) -> None:
        """Take samples until cancelled."""
        while True:
            await self._watched.wait()
            began = time.monotonic()
            try:
                await self.sample()
            except LycosaError as error:
                log.warning("the pool was not sampled: %s", error)
            await asyncio.sleep(max(INTERVAL_S, (time.monotonic() - began) / LOAD_MAX))
            if self._now() - self._watched_at > IDLE_AFTER_S:
                self._watched.clear()

    async def sample(self) -> None:
        """Take one sample of each line."""
        self._take(EVERYWHERE, await self._pool.proxies())
        for view in busiest(await self._pool.targets())[:TARGETS_MAX]:
            self._take(view.target, await self._pool.proxies(view.target))

    def _take(self, target: str, views: Iterable[ProxyView]) -> None:
        known = {view.proxy.key: view.latency_s for view in views}
        latencies = [each for each in known.values() if each is not None]
        room = SERIES_MAX // 2
        for key, latency_s in list(known.items())[:room]:
            self._append((target, key), latency_s)
        self._append((target, ""), median(latencies) if latencies else None)

    def _append(self, name: tuple[str, str], value: float | None) -> None:
        line = self._lines.setdefault(name, deque(maxlen=SAMPLES_MAX))
        line.append(value)
        self._lines.move_to_end(name)
        while len(self._lines) > SERIES_MAX:
            self._lines.popitem(last=False)


def busiest(views: Iterable[TargetView]) -> list[TargetView]:
    """Return targets, those that lend most first."""
    return sorted(views, key=lambda view: (-view.leases, -view.granted, view.target))
