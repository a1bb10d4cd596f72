"""What becomes of a visit: the lease is given back, with its children, and its items go to the sinks, in one commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from lycosa.clock import Clock
from lycosa.core.model import Lease
from lycosa.engine.audience import Audience
from lycosa.engine.committer import Committer
from lycosa.engine.stats import RunStats
from lycosa.engine.verdict import Failed
from lycosa.engine.visit import UNCHANGED, Done
from lycosa.ports import Frontier, Sink

log = logging.getLogger(__name__)


class Settling:
    """Settles leases. `retry_until` (unix seconds) is when the last retry of this run is due."""

    def __init__(
        self,
        frontier: Frontier,
        sinks: Sequence[Sink],
        committer: Committer,
        stats: RunStats,
        clock: Clock,
        audience: Audience,
    ) -> None:
        self._frontier = frontier
        self._sinks = sinks
        self._committer = committer
        self._stats = stats
        self._clock = clock
        self._audience = audience
        self.retry_until = 0.0

    async def settle(self, lease: Lease, outcome: Done | Failed) -> str:
        """Give the lease back. Return why the crawl is to end, "" when it is not."""
        async with self._committer.settling:
            try:
                if isinstance(outcome, Done):
                    closing = await self._done(lease, outcome)
                else:
                    closing = await self._failed(lease, outcome)
            except BaseException:
                self._committer.give_up()
                raise
        self._committer.settled()
        return closing

    async def _done(self, lease: Lease, done: Done) -> str:
        children = done.children
        if children and self._audience.hears_requests:
            await self._audience.push(self._frontier, children)  # of the same commit: nobody commits meanwhile
            children = ()
        now = self._clock.now()
        if not await self._frontier.ack(
            lease, done.reason, children, now, contacted=done.contacted, validators=done.validators
        ):
            log.warning("a late result was refused: %s", lease.record.url)
            return ""
        for item in done.items:
            for sink, prepared in zip(self._sinks, item, strict=True):
                sink.write(prepared)
        self._stats.pages += done.page
        self._stats.unchanged += done.reason == UNCHANGED
        self._stats.items += len(done.items)
        self._stats.bytes += done.bytes
        return done.closing

    async def _failed(self, lease: Lease, failed: Failed) -> str:
        now = self._clock.now()
        if failed.block_until > now:
            await self._frontier.block_host(lease.record.host, failed.block_until)
        if await self._frontier.nack(lease, failed.reason, failed.retry_at, now, contacted=failed.contacted):
            self._stats.retries += failed.retry_at is not None
            self.retry_until = max(self.retry_until, failed.retry_at or 0.0, failed.block_until)
        return ""
