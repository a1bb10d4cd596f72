"""Our durable frontier, as a crawl has it: exact, polite, crash-safe. It is called through its port only.

The records are made before the clock runs: canonical URL, host key and fingerprint are the engine's work. There is no
robots.txt, no delay and no limit per host, so that nothing waits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from workload import Page

from lycosa.core.url import fingerprint
from lycosa.frontier.core.model import RECORD_VERSION, Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.ports import Frontier

POLICY = Policy(robots=False, concurrency_per_host=1_000_000)


class Peer:
    """See `cycle.Peer`."""

    SAFE = True

    def __init__(self, folder: Path, *, sync: bool) -> None:
        self._folder = folder
        self._sync = sync
        self._frontier: Frontier

    async def open(self) -> None:
        self._frontier = embedded_frontier(self._folder / "frontier", POLICY, sync=self._sync, now=time.time())

    def prepare(self, pages: Sequence[Page]) -> list[UrlRecord]:
        return [UrlRecord(RECORD_VERSION, fingerprint("GET", url), url, host) for url, host in pages]

    async def push(self, batch: list[UrlRecord]) -> int:
        return await self._frontier.push(batch)

    async def lease(self, limit: int, now: float) -> list[Lease]:
        return await self._frontier.lease(limit, now)

    async def ack(self, leases: list[Lease], now: float) -> None:
        ack = self._frontier.ack
        for lease in leases:
            await ack(lease, "200", (), now)

    async def commit(self) -> None:
        await self._frontier.commit({})

    async def close(self) -> None:
        await self._frontier.close()
