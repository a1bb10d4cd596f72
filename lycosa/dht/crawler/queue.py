"""The queue of infohashes: a frontier, so records survive a crash and have a due time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.crawler.core.hash_records import LEASED_MAX, SAMPLED, fingerprint, to_record
from lycosa.dht.crawler.core.known_hashes import KnownHashes
from lycosa.dht.crawler.core.retries import retry_at
from lycosa.frontier.core.model import FrontierStats, Lease
from lycosa.frontier.ports import FrontierOperations, ReadableFrontier

COMMIT_EVERY_S = 0.5
"""An infohash is durable at most a second after its discovery."""
POLL_S = 1.0
"""Interval of the checks for due retries while no new infohash arrives."""
SWEEP = "sweep"
"""The name under which the frontier stores the position of the sweep."""


class HashQueue:
    """The queue of this process. `now` returns unix seconds, `chance` a number from 0 to 1."""

    def __init__(self, frontier: ReadableFrontier, now: Callable[[], float], chance: Callable[[], float]) -> None:
        self._frontier, self.now, self._chance = frontier, now, chance
        self._known = KnownHashes(partial(frontier.stored, ""))
        self._changed = asyncio.Event()

    async def sweep_position(self) -> int:
        return (await self._frontier.positions()).get(SWEEP, 0)

    def unknown(self, infohashes: Iterable[bytes]) -> list[bytes]:
        """Return the infohashes that seem to be new, each once. `push` drops the few that were queued before."""
        return self._known.unknown(infohashes)

    async def push(self, infohashes: Collection[bytes], priority: int) -> int:
        """Return the number of new infohashes."""
        now = self.now()
        records = [to_record(each, priority, now) for each in infohashes]
        added = await self._frontier.push(records)
        self._known.add([each.fingerprint for each in records])
        if added:
            self._changed.set()
        return added

    async def push_again(self, infohashes: Collection[bytes]) -> None:
        """Queue infohashes that may have been done before. They are durable on return."""
        await self._frontier.requeue([fingerprint(each) for each in infohashes])
        await self.push(infohashes, SAMPLED)  # adds those that were never queued, and drops the others
        await self.save()
        self._changed.set()

    async def lease(self, limit: int) -> list[Lease]:
        return await self._frontier.lease(min(limit, LEASED_MAX), self.now())

    async def done(self, leases: Sequence[Lease], reason: str) -> None:
        """Never try these infohashes again."""
        for lease in leases:
            await self._frontier.ack(lease, reason, (), self.now())
        self._changed.set()

    async def failed(self, lease: Lease, failure: CrawlOutcome) -> None:
        now, record = self.now(), lease.record
        at = retry_at(record.attempts, now, self._chance(), failure, record.not_before)
        await self._frontier.nack(lease, failure.name.lower(), at, now)
        self._changed.set()

    async def wait(self) -> None:
        try:
            async with asyncio.timeout(POLL_S):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    async def commit(self, sweep_position: int) -> None:
        """Commit infohashes and position atomically, so the position never passes infohashes that are not durable."""
        await self._frontier.commit({SWEEP: sweep_position})

    async def save(self) -> None:
        """Make the queued infohashes durable. The stored position of the sweep stays."""
        await self._frontier.commit({})

    async def keep_durable(self, sweep_position: Callable[[], int]) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            await self._frontier.expire(self.now())
            await self.commit(sweep_position())

    async def stats(self) -> FrontierStats:
        return await self._frontier.stats()


class CrawlQueue:
    """The queue of a crawl that runs in another process."""

    def __init__(self, operations: FrontierOperations, now: Callable[[], float]) -> None:
        self._operations, self._now = operations, now

    async def push(self, infohashes: Collection[bytes], priority: int) -> int:
        """Return the number of new infohashes."""
        return await self._operations.push([to_record(each, priority, self._now()) for each in infohashes])

    async def save(self) -> None:
        await self._operations.commit()
