"""The owner's handle for a worker process: sends visits to it, and applies the changes that it reports.

A visit is settled as if the owner had visited the page itself: one commit holds the ack, the links and the items. When
a worker dies, its visits end at once, and their records stay queued (exception: see `worker_pool.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from lycosa.core.errors import LycosaError
from lycosa.crawl.engine.engine import Engine, self_cancelled
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.claims import claim_host
from lycosa.crawl.middlewares.cookies import TABLE as COOKIES
from lycosa.crawl.workers import messages
from lycosa.crawl.workers.counts import add_stats
from lycosa.crawl.workers.messages import LIMITS, OWNER_METHODS, HostAccess, VisitEnded
from lycosa.crawl.workers.remote import CookieBroadcast
from lycosa.crawl.workers.request_pacer import PendingStart, RequestPacer, StartInterval
from lycosa.frontier.core.model import HostFacts, Lease, UrlRecord
from lycosa.frontier.ports import Frontier
from lycosa.infra.clock import Clock
from lycosa.infra.json_log import STANDARD
from lycosa.infra.rpc.connection import Connection, Message, error_of
from lycosa.infra.rpc.methods import Service
from lycosa.storage.ports import KeyStore

log = logging.getLogger(__name__)

CANCEL_TIMEOUT_S = 10.0
"""Maximum seconds until a worker confirms the cancellation of a visit. A slower worker is killed."""


@dataclass(slots=True)
class CrawlParts:
    """The parts of the crawl that workers use and change. `engine` is set later."""

    frontier: Frontier
    addresses: HostAddresses
    clock: Clock
    stats: RunStats
    collector: StatsCollector
    store: KeyStore
    intervals: Callable[[str], Sequence[StartInterval]]
    """Returns the minimum intervals between requests to a host, given by its host key."""
    remember_facts: Callable[[str, HostFacts], Awaitable[None]]
    cookies: CookieBroadcast
    engine: Engine = field(init=False)


class WorkerEvents(Protocol):
    """The events that a worker reports to the worker pool."""

    def on_ready(self, worker: WorkerHandle) -> None:
        """Called when the worker accepts visits."""

    def on_lost(self, worker: WorkerHandle) -> None:
        """Called when the worker and all its visits have ended."""

    def on_change(self) -> None:
        """Called when a worker may have become free."""

    def broadcast(self, message: Message, source: WorkerHandle | None = None) -> None: ...

    def outcome_of_death(self, lease: Lease, *, alone: bool) -> Outcome:
        """Return the outcome of a visit whose worker died. `alone`: whether the worker visited only this page."""

    def fail(self, error: BaseException) -> None:
        """End the crawl with this error."""


class _RunningVisit(NamedTuple):
    lease: Lease
    outcome: asyncio.Future[Outcome | None]
    """None if the owner cancelled the visit."""
    start: PendingStart | None


class WorkerHandle:
    """One worker process at the other end of `connection`. `kill` ends the process."""

    def __init__(self, crawl: CrawlParts, pacer: RequestPacer, events: WorkerEvents, kill: Callable[[], None]) -> None:
        self._crawl = crawl
        self._pacer = pacer
        self._events = events
        self._kill = kill
        self._visits: dict[int, _RunningVisit] = {}
        self._starting: dict[str, PendingStart] = {}
        self._claims: dict[int, asyncio.Task[None]] = {}
        self._cancelled: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.disconnected = asyncio.Event()
        self.has_finished_visit = False
        self.alone = False
        self.memory_bytes = 0
        self.connection = Connection(
            limits=LIMITS, service=Service(OWNER_METHODS, self), on_disconnect=self._on_disconnect
        )
        self.connection.handle(
            {
                messages.VisitCompleted: self._on_visit_ended,
                messages.VisitFailed: self._on_visit_ended,
                messages.VisitDeferred: self._on_visit_ended,
                messages.VisitClosedCrawl: self._on_visit_ended,
                messages.VisitCancelled: self._on_visit_cancelled,
                messages.RequestStarted: self._on_request_started,
                messages.TransferEnded: self._on_transfer_ended,
                messages.ClaimReleased: self._on_claim_released,
                messages.HostFactsUpdate: self._on_host_facts,
                messages.HostBlocked: self._on_host_blocked,
                messages.HostDelay: self._on_host_delay,
                messages.KeyStored: self._on_key_stored,
                messages.CookieUpdate: self._on_cookie,
                messages.CloseCrawlRequest: lambda request: crawl.engine.close(request.reason),
                messages.WorkerStats: self._on_stats,
                messages.LogLine: _log_line,
                messages.WorkerReady: lambda _: events.on_ready(self),
                messages.WorkerFailed: self._on_failed,
            }
        )

    def __len__(self) -> int:
        return len(self._visits)

    @property
    def is_free(self) -> bool:
        """Whether the worker is not reserved for a page, and has confirmed all cancellations."""
        return not self.alone and not self._cancelled

    async def visit(self, lease: Lease, start: PendingStart | None) -> Outcome:
        crawl, token, record = self._crawl, lease.token, lease.record
        visit = self._visits[token] = _RunningVisit(lease, asyncio.get_running_loop().create_future(), start)
        if start is not None:
            self._starting[record.host] = start
        error = "" if lease.address else crawl.addresses.lookup_error(record.url)
        access = HostAccess(lease.address, start is not None, error)
        self.connection.send(messages.VisitRequest(token, record, access))
        try:
            outcome = await visit.outcome
            assert outcome is not None
            return outcome
        except asyncio.CancelledError:
            if self.disconnected.is_set():  # the worker has just died, so it cannot confirm the cancellation
                raise
            self.connection.send(messages.CancelVisit(token))
            self._cancelled[token] = asyncio.get_running_loop().call_later(CANCEL_TIMEOUT_S, self._on_hang)
            if crawl.engine.stopping or (outcome := await self._await_cancellation(lease)) is None:
                raise
            return outcome
        finally:
            self._visits.pop(token, None)
            if start is not None:
                self._release_start(record.host, start)

    async def _await_cancellation(self, lease: Lease) -> Outcome | None:
        """Return the outcome if the visit ended before the worker could cancel it, else None."""
        visit = self._visits[lease.token] = _RunningVisit(lease, asyncio.get_running_loop().create_future(), None)
        outcome = await visit.outcome
        task = asyncio.current_task()
        while task is not None and outcome is not None and task.cancelling():
            task.uncancel()  # the outcome came first, so the cancellation has no effect
        return outcome

    def settle(self, token: int) -> None:
        self.connection.send(messages.VisitSettled(token))

    def lose(self) -> None:
        """End all visits, claims and tasks of a worker whose process has ended."""
        self.disconnected.set()
        for timer in self._cancelled.values():
            timer.cancel()
        for task in (*self._claims.values(), *self._tasks):
            task.cancel()
        for visit in list(self._visits.values()):
            if not visit.outcome.done():
                visit.outcome.set_result(self._events.outcome_of_death(visit.lease, alone=self.alone))

    def _on_disconnect(self, reason: Exception | None) -> None:
        if reason is not None:
            log.error("the connection to a worker process was closed: %s", reason)
        self.lose()
        self._events.on_lost(self)

    def _on_hang(self) -> None:
        log.error("killing a hung worker process: it did not cancel a page within %g s", CANCEL_TIMEOUT_S)
        self._kill()

    # ----------------------------------------------------------------------------------------------------------- visits

    def _on_visit_ended(self, ended: VisitEnded) -> None:
        self.has_finished_visit = True
        visit = self._visits.get(ended.token)
        if visit is not None and not visit.outcome.done():
            visit.outcome.set_result(ended.outcome)
        self._forget_cancelled(ended.token)

    def _on_visit_cancelled(self, cancelled: messages.VisitCancelled) -> None:
        visit = self._visits.get(cancelled.token)
        if visit is not None and not visit.outcome.done():
            by_owner = cancelled.token in self._cancelled
            url = visit.lease.record.url
            visit.outcome.set_result(None if by_owner else self_cancelled(self._crawl.stats, url))
        self._forget_cancelled(cancelled.token)

    def _forget_cancelled(self, token: int) -> None:
        timer = self._cancelled.pop(token, None)
        if timer is not None:
            timer.cancel()
            self._events.on_change()

    def _on_request_started(self, started: messages.RequestStarted) -> None:
        at = self._crawl.clock.now() - max(started.ago_s, 0.0)
        start = None if started.is_correction else self._starting.pop(started.host, None)
        if start is not None:
            start.report(at)
        else:
            self._pacer.correct(self._crawl.intervals(started.host), at)

    def _on_transfer_ended(self, ended: messages.TransferEnded) -> None:
        visit = self._visits.get(ended.token)
        if visit is not None:
            self._crawl.engine.end_transfer(visit.lease, ended.contacted, ended.size)

    def _release_start(self, host: str, start: PendingStart) -> None:
        start.release()
        if self._starting.get(host) is start:
            del self._starting[host]

    # --------------------------------------------------------------------------------------- calls; see `OwnerCalls`

    async def host_facts(self, host: str) -> HostFacts | None:
        return await self._crawl.frontier.host_facts(host)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        new = await self._crawl.engine.push(records)
        self._crawl.engine.wake()
        return new

    async def claim(self, claim: int, host: str, token: int) -> HostAccess:
        granted: asyncio.Future[HostAccess] = asyncio.get_running_loop().create_future()
        task = self._claims[claim] = asyncio.create_task(self._hold_claim(host, token, granted))
        task.add_done_callback(lambda _: self._claims.pop(claim))
        return await granted

    async def _hold_claim(self, host: str, token: int, granted: asyncio.Future[HostAccess]) -> None:
        """Wait for a slot of a host, then hold it until this task is cancelled."""
        crawl, holder = self._crawl, self._visits.get(token)
        lease = holder.lease if holder is not None else None
        if holder is not None and holder.start is not None:
            # The page that makes the claim may have been read from the HTTP cache, so its start may never be reported.
            self._release_start(holder.lease.record.host, holder.start)
        try:
            claim = claim_host(host, crawl.frontier, crawl.clock, lease, crawl.addresses.update, crawl.engine.wake)
            async with claim as address:
                await self._grant(host, address, granted)
        except LycosaError as error:
            if not granted.done():
                granted.set_exception(error)
        finally:
            granted.cancel()  # does nothing if the claim was granted

    async def _grant(self, host: str, address: str, granted: asyncio.Future[HostAccess]) -> None:
        intervals = self._crawl.intervals(host)
        start = await self._pacer.acquire(intervals) if intervals else None
        if start is not None:
            self._starting[host] = start
        try:
            error = "" if address else self._crawl.addresses.lookup_error(host + "/")
            granted.set_result(HostAccess(address, start is not None, error))
            await asyncio.Event().wait()
        finally:
            if start is not None:
                self._release_start(host, start)

    def _on_claim_released(self, released: messages.ClaimReleased) -> None:
        if released.claim in self._claims:
            self._claims[released.claim].cancel()

    # ---------------------------------------------------------------------------------------------------------- reports

    def _on_host_facts(self, update: messages.HostFactsUpdate) -> None:
        self._apply(self._crawl.remember_facts(update.host, update.facts))

    def _on_host_blocked(self, blocked: messages.HostBlocked) -> None:
        self._apply(self._crawl.frontier.block_host(blocked.host, blocked.until))

    def _on_host_delay(self, delay: messages.HostDelay) -> None:
        self._apply(self._crawl.frontier.set_delay(delay.host, delay.delay_s, self._crawl.clock.now()))

    def _apply(self, change: Awaitable[None]) -> None:
        """Apply a change in a task. An error ends the crawl."""

        async def apply() -> None:
            try:
                await change
                self._crawl.engine.wake()
            except LycosaError as error:
                self._events.fail(error)

        task = asyncio.create_task(apply())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _on_key_stored(self, stored: messages.KeyStored) -> None:
        if stored.table != COOKIES:  # all workers share the owner's jars, and the owner stores them
            self._crawl.store.put(stored.table, stored.key, stored.value)

    def _on_cookie(self, update: messages.CookieUpdate) -> None:
        self._crawl.cookies.receive(update)
        self._events.broadcast(update, self)

    def _on_stats(self, stats: messages.WorkerStats) -> None:
        self.memory_bytes = stats.memory_bytes
        add_stats(stats, self._crawl.collector, self._crawl.stats)

    def _on_failed(self, failed: messages.WorkerFailed) -> None:
        self._events.fail(error_of(failed.kind, failed.text) if failed.kind else RuntimeError(failed.text))


def _log_line(line: messages.LogLine) -> None:
    logger = logging.getLogger(line.logger)
    if logger.isEnabledFor(line.level):
        extra = {name: value for name, value in line.fields.items() if name not in STANDARD}
        record = logger.makeRecord(line.logger, line.level, "", 0, line.text, (), None, extra=extra)
        record.created = line.at or record.created
        record.msecs = record.created % 1 * 1000
        record.exc_text = line.traceback or None
        logger.handle(record)
