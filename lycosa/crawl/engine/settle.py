"""Settles a lease by its outcome, in one commit: ack with children and items, nack, or release."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from lycosa.crawl.engine.run_parts import HostLookups, RunMonitor, RunStorage
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, Failed
from lycosa.crawl.engine.visit import UNCHANGED, Completed, Outcome
from lycosa.frontier.core.model import Lease, RecordKind
from lycosa.infra.clock import Clock
from lycosa.storage.core.item_key import ItemKey

log = logging.getLogger(__name__)


class Settler:
    """Settles the leases of one crawl. `close(reason)` ends the crawl.

    By `retry_until` (unix seconds), all retries of pages are due and the hosts of failed pages are unblocked.
    """

    def __init__(self, storage: RunStorage, monitor: RunMonitor, clock: Clock, close: Callable[[str], None]) -> None:
        self._frontier = storage.frontier
        self._sinks = storage.sinks
        self._committer = storage.committer
        self._stats = monitor.stats
        self._dispatcher = monitor.dispatcher
        self._clock = clock
        self._close = close
        self.retry_until = 0.0

    async def settle(self, lease: Lease, outcome: Outcome) -> None:
        """Apply the outcome. If this fails, the committer refuses all further commits, and the exception is raised."""
        if self._committer.settle_lock.is_exclusive and isinstance(outcome, Completed):
            # The next request to the host need not wait for a commit in progress.
            self._frontier.end_transfer(lease, self._clock.now(), contacted=outcome.contacted)
        async with self._committer.settle_lock:
            try:
                if isinstance(outcome, Completed):
                    await self._complete(lease, outcome)
                elif isinstance(outcome, Failed):
                    await self._fail(lease, outcome)
                else:
                    await self._frontier.release(lease, self._clock.now())
                    if isinstance(outcome, CloseCrawl):
                        self._close(outcome.reason)
                    else:
                        await self._frontier.block_host(lease.record.host, outcome.until)
            except BaseException:
                # The frontier may have the ack without all items, or the sinks items without the ack.
                self._committer.abandon()
                raise
        self._committer.note_change()

    async def look_up(self, lease: Lease, lookups: HostLookups) -> None:
        try:
            if lease.record.kind == RecordKind.RESOLVE:
                await lookups.addresses.resolve(lease)
            else:
                await self._fetch_robots(lease, lookups)
        except asyncio.CancelledError:
            await self._frontier.release(lease, self._clock.now())
            raise
        self._committer.note_change()

    async def _fetch_robots(self, lease: Lease, lookups: HostLookups) -> None:
        failure = await lookups.robots.resolve(lease, now := self._clock.now())
        if failure is None:
            await self._frontier.ack(lease, "robots.txt", (), now)
        elif isinstance(failure, (Deferred, CloseCrawl)):
            await self.settle(lease, failure)
        else:
            await self._frontier.nack(lease, failure.reason, failure.retry_at, now)

    async def _complete(self, lease: Lease, completed: Completed) -> None:
        children = completed.children
        if children and self._dispatcher.has_request_handlers:
            # Receivers are called for each child, so children are pushed one by one. The settle lock keeps them in the
            # commit of the ack.
            await self._dispatcher.push(self._frontier, children)
            children = ()
        now = self._clock.now()
        if not await self._frontier.ack(
            lease, completed.reason, children, now, contacted=completed.contacted, validators=completed.validators
        ):
            log.warning("late result of %s refused: its lease is no longer held", lease.record.url)
            return
        record = lease.record
        for number, item in enumerate(completed.items):
            key = ItemKey(record.url, record.fingerprint, number, record.segment, record.dont_filter)
            for sink, prepared in zip(self._sinks, item, strict=True):
                sink.write(prepared, key)
        self._stats.pages += completed.page
        self._stats.unchanged += completed.reason == UNCHANGED
        self._stats.items += len(completed.items)
        self._stats.bytes += completed.bytes
        if completed.closing:
            self._close(completed.closing)

    async def _fail(self, lease: Lease, failed: Failed) -> None:
        now = self._clock.now()
        if failed.block_until > now:
            await self._frontier.block_host(lease.record.host, failed.block_until)
        if await self._frontier.nack(lease, failed.reason, failed.retry_at, now, contacted=failed.contacted):
            self._stats.failures += 1
            self._stats.retries += failed.retry_at is not None
            self.retry_until = max(self.retry_until, failed.retry_at or 0.0, failed.block_until)
