"""The engine: lease -> visit -> settle, many records at a time, until the frontier has nothing left.

1. The frontier leases records whose hosts may be contacted now.
2. Each lease is visited in a separate task: robots.txt, fetch, callback, pipelines (`visit.py`).
3. The outcome is settled: ack with children, or nack; then the items go to the sinks (`settle.py`).
4. The committer makes many settled leases durable in one step, items first (`commit.py`).
5. While a device is nearly full, nothing new is leased (`disk_guard.py`).
6. When nothing can be leased, the engine sleeps until a task ends, a record is due, or `wake` is called.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lycosa.crawl.engine.disk_guard import SHORTAGE_CHECK_S
from lycosa.crawl.engine.leases import CallbackPages, LeaseRenewer
from lycosa.crawl.engine.quota import PageQuota
from lycosa.crawl.engine.run_parts import HostLookups, RunMonitor, RunStorage
from lycosa.crawl.engine.settle import Settler
from lycosa.crawl.engine.verdict import Failed
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.engine.wakeup import Wakeup
from lycosa.crawl.events.stats import RunStats, Snapshot
from lycosa.frontier.core.model import Lease, RecordKind, Selection, UrlRecord
from lycosa.frontier.core.segments import CurrentSegments, unnamed
from lycosa.frontier.core.states import Event, State, expire
from lycosa.frontier.ports import FrontierOperations
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

STOP_GRACE_S = 5.0
"""Seconds for running visits to finish after a stop. Then they are cancelled and their leases released."""

FAST_SHUTDOWN_S = 0.7
"""After a second `stop`, servers get this many seconds to answer the final calls."""

CLOCK_CHECK_S = 60.0
"""Maximum seconds of one sleep: a timer does not notice that the clock was set or the machine was suspended."""

IDLE_NOTICE_S = 10.0
"""The progress shows an idle sleep longer than this (seconds). Shorter sleeps are ordinary crawl delays."""

LEASE_EXPIRED = "lease expired"
"""The reason of a record whose visit exceeded `lease_max_s`. Frontiers use the same text for expired leases."""

CANCELLED_ITSELF = "the callback, or code that it called, cancelled its own task"
"""The reason of a record whose visit cancelled its own task. It is not retried: a retry would end the same way."""

IDLE_AFTER_S = 60.0
"""With `exit_when_idle`, the crawl still waits for records that are due within this many seconds."""

IDLE_AGAIN_S = 5.0
"""Seconds until `spider_idle` is sent again if a receiver keeps the crawl alive.

It is sent earlier if a visit has started and the crawl is idle again.
"""

RETRIES = Selection(states=(State.RETRY,))


class LeaseVisitor(Protocol):
    """Visits leased records: a `Visitor` in this process, or the pool of worker processes."""

    async def visit(self, lease: Lease) -> Outcome:
        """Fetch the record and return the outcome. Raises only on a bug or cancellation."""


QueueMore = Callable[[float], Awaitable[int]]
"""Queues more records, given the time (unix seconds). Returns how many."""


class IdleStatus(NamedTuple):
    """Why no visit is running: nothing is due before `until` (unix seconds), or `paused` says why the crawl pauses."""

    until: float = 0.0
    paused: str = ""


ACTIVE = IdleStatus()


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """At most `concurrency` leases at a time, `lease_max_s` seconds per visit, and `max_pages` pages per segment.

    `callback_bytes_max` bounds the total size of the bodies of pages whose callbacks are running. `exit_when_idle` ends
    the run when all remaining records are due later (see `Engine.idle_until`). `shared`: whether other workers fetch
    pages of the same crawl.
    """

    concurrency: int = 64
    max_pages: int | None = None
    lease_max_s: float = 3600.0
    callback_bytes_max: int = 50_000_000
    exit_when_idle: bool = False
    shared: bool = False


class Engine:
    """Runs one crawl. Raises `StateError` if the frontier or a sink fails; the state of the last commit is kept."""

    def __init__(
        self,
        storage: RunStorage,
        visitor: LeaseVisitor,
        lookups: HostLookups,
        limits: EngineLimits,
        monitor: RunMonitor,
        clock: Clock,
    ) -> None:
        self._frontier = storage.frontier
        self._committer = storage.committer
        self._space = storage.space
        self._visitor = visitor
        self._lookups = lookups
        self._limits = limits
        self._stats = monitor.stats
        self._close_monitor = monitor.close_monitor
        self._dispatcher = monitor.dispatcher
        self._clock = clock
        self._leases = LeaseRenewer(storage.frontier, limits.lease_max_s)
        self._idle_again_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._callback_pages = CallbackPages(limits.callback_bytes_max)
        self._wakeup = Wakeup()
        self.idle_status = ACTIVE
        self._activity = asyncio.Event()
        self._settler = Settler(storage, monitor, clock, self.close)
        self._error: BaseException | None = None
        self._quota = PageQuota(limits.max_pages, monitor.stats)
        self._running: asyncio.Task[Any] | None = None
        self._steps: list[asyncio.Task[None]] = []
        self._aborting = False
        self.fast_shutdown = False
        self.stopping = False
        self.close_reason = ""
        """Why a spider or a condition closed the crawl, or ""."""
        self.idle_until = 0.0
        """When the next record is due (unix seconds), if the run ended because it was idle; else 0."""

    async def run(
        self, operations: FrontierOperations, segments: CurrentSegments = unnamed, more: QueueMore | None = None
    ) -> None:
        """Crawl until nothing is left, `stop` is called, or something fails.

        `max_pages` limits the pages of the run's `segments`. When nothing is left, `more` may queue more records.
        """
        self._operations = operations
        self._more = more
        self._running = asyncio.current_task()
        self._space.check()
        await self._quota.refresh(operations, segments)
        works = [self._committer.run()]
        if self._limits.shared:
            works.append(self._quota.poll(operations, segments, self.wake))
        if self._close_monitor is not None:
            works.append(self._close_monitor.poll(self._clock.now, self.wake))
        background = [asyncio.create_task(self._run_background(work)) for work in works]
        self._steps = [pumping := asyncio.create_task(self._pump())]
        try:
            await _wait_for(pumping)
            await self._wind_down()
        finally:
            self._wakeup.cancel()
            await self._cancel([*background, pumping, *self._tasks])
        if self._error is not None:
            raise self._error
        self._steps = [finishing := asyncio.create_task(self._committer.finish())]
        with suppress(asyncio.CancelledError, TimeoutError):
            async with shutdown_deadline(self):
                await finishing

    def stop(self) -> None:
        """Stop leasing, and give running visits STOP_GRACE_S to finish. A second call cancels them."""
        if self.stopping:
            self._aborting = self.fast_shutdown = True
            for task in (*self._tasks, *self._steps):
                task.cancel()
        self.stopping = True
        self.wake()

    def close(self, reason: str) -> None:
        """Stop the crawl for this reason, unless it is stopping already."""
        if not self.stopping:
            self.close_reason = reason
            self.stop()

    def fail(self, error: BaseException) -> None:
        """End the crawl: `run` raises this error."""
        self._error = self._error or error
        self.wake()

    def wake(self) -> None:
        """Ask the frontier for leases now: a record was pushed from outside, or is due earlier than before."""
        self._wakeup.set()

    def end_transfer(self, lease: Lease, contacted: bool, size: int) -> None:
        """Let the next request to the host start: the transfer is over, although its callback still runs.

        Nothing is leased while the bodies of such pages exceed `callback_bytes_max` in total.
        """
        self._frontier.end_transfer(lease, self._clock.now(), contacted=contacted)
        if self._leases.is_held(lease):
            self._callback_pages.add(lease, size)
        self.wake()

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records from outside. Return how many were new."""
        pushed = await self._dispatcher.push(self._frontier, records)
        if pushed:
            self._committer.note_change()  # otherwise the records would be durable only after the next settled lease
            self.wake()
        return pushed

    async def snapshot(self) -> Snapshot:
        snapshot = self._stats.snapshot(await self._frontier.stats(), self._clock.now())
        return snapshot._replace(waiting_until=self.idle_status.until, paused=self.idle_status.paused)

    async def wait_for_activity(self, seen: Snapshot) -> None:
        """Wait until the idle status differs from that in `seen`. Return at once if the crawl was active in `seen`."""
        while self.idle_status == (seen.waiting_until, seen.paused) != ACTIVE:
            self._activity.clear()
            await self._activity.wait()

    async def wait_for_space(self) -> None:
        await self._space.wait_for_space(running=self._running is not None)

    @property
    def active_count(self) -> int:
        return len(self._tasks)

    @property
    def quota_reached(self) -> bool:
        return self._quota.remaining(1) <= 0

    async def _pump(self) -> None:
        while not self.stopping and self._error is None:
            self._wakeup.clear()
            self._space.recheck()
            now = self._clock.now()
            if self._close_monitor is not None and (reason := self._close_monitor.check(now)):
                self.close(reason)
                return
            self._leases.cancel_overdue(now)
            await self._leases.renew(now)
            # Our leases were just renewed for the same `now`, so only leases of other workers can expire here.
            if await self._frontier.expire(now):
                self._committer.note_change()
            await self._lease(now)
            if not self._tasks and await self._is_over(now):
                return
            await self._sleep()

    async def _lease(self, now: float) -> None:
        free = self._free_slots()
        leases = await self._frontier.lease(free, now)
        for lease in leases:
            self._start(lease, now)
        if free and not leases:
            await self._dispatcher.send_empty()

    async def _is_over(self, now: float) -> bool:
        due = self._frontier.next_ready(now)
        if self.quota_reached:
            return True
        if due is not None and not (self._limits.exit_when_idle and await self._is_idle(due, now)):
            return False
        if self._more is not None and await self._more(now):
            return False
        if self._dispatcher.has_idle_handlers and await self._is_kept_alive(now):
            return False
        self.idle_until = due or 0.0
        return True

    async def _is_kept_alive(self, now: float) -> bool:
        if now < self._idle_again_at:
            return True
        due = self._frontier.next_ready(now)
        kept = await self._dispatcher.send_idle()
        self._idle_again_at = now + IDLE_AGAIN_S if kept else 0.0
        return kept or self._frontier.next_ready(now) != due

    async def _is_idle(self, due: float, now: float) -> bool:
        """Whether all records left are scheduled for later. Waiting for a retry or a blocked host does not count."""
        if due - now <= IDLE_AFTER_S or self._settler.retry_until > now:
            return False
        if any(view.queued and view.starts_at <= now for view in await self._operations.segments()):
            return False
        return not (await self._operations.rows(RETRIES, "", 1)).rows  # retries left by earlier runs

    def _free_slots(self) -> int:
        if self._space.shortage or self._callback_pages.is_full:
            return 0
        slots = self._limits.concurrency
        return max(0, min(slots, self._quota.remaining(slots)) - len(self._tasks))

    async def _sleep(self) -> None:
        now = self._clock.now()
        due = self._frontier.next_ready(now) if self._free_slots() else None
        recheck_at = now + (SHORTAGE_CHECK_S if self._space.shortage else CLOCK_CHECK_S)
        close_at = self._close_monitor.next_at() if self._close_monitor is not None else None
        idle_at = self._idle_again_at or None
        times = (due, self._leases.next_renewal(), recheck_at, close_at, idle_at)
        wait_s = min(at for at in times if at is not None) - now
        if wait_s <= 0:
            await asyncio.sleep(0)  # otherwise other tasks would not run while there is always something to lease
            return
        if not self._tasks:
            self._note_idle(due, now)
        await self._wakeup.sleep(wait_s)

    def _note_idle(self, due: float | None, now: float) -> None:
        if self._space.shortage:
            self._set_idle_status(IdleStatus(paused=self.idle_status.paused or str(self._space.shortage)))
        elif due is not None and due - now > IDLE_NOTICE_S:
            self._set_idle_status(IdleStatus(until=due))
        else:
            self._set_idle_status(ACTIVE)

    def _set_idle_status(self, status: IdleStatus) -> None:
        if self.idle_status != status:
            self.idle_status = status
            self._activity.set()

    def _start(self, lease: Lease, now: float) -> None:
        self._set_idle_status(ACTIVE)
        self._idle_again_at = 0.0  # after a lease, `spider_idle` may be sent again at once
        self._leases.add(lease, now)
        task = asyncio.create_task(self._work(lease))
        if lease.record.kind == RecordKind.PAGE:  # the user's code may run forever; look-ups have timeouts
            self._leases.set_task(lease, task, now)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
        self._wakeup.set()

    async def _work(self, lease: Lease) -> None:
        try:
            if lease.record.kind == RecordKind.PAGE:
                self._stats.leased += 1
                await self._settler.settle(lease, await self._visit(lease))
            else:
                await self._settler.look_up(lease, self._lookups)
        finally:
            self._leases.remove(lease)
            self._callback_pages.remove(lease)

    async def _visit(self, lease: Lease) -> Outcome:
        try:
            return await self._visitor.visit(lease)
        except asyncio.CancelledError:
            # The run ends, the lease is overdue (cancelled by LeaseRenewer), or the user's code cancelled its own task.
            # Propagate the cancellation only if the run ends.
            if self._aborting or self._running is None or self._running.cancelling():
                await self._frontier.release(lease, self._clock.now())
                raise
            _uncancel()
        if not self._leases.is_overdue(lease):
            return self_cancelled(self._stats, lease.record.url)
        log.warning("%s took longer than %g s (max_lease)", lease.record.url, self._limits.lease_max_s)
        _, event = expire(lease.record)
        return Failed(LEASE_EXPIRED, self._clock.now() if event is Event.EXPIRE else None)

    async def _run_background(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  raised by `run`
            self._error = self._error or error
            self._wakeup.set()

    async def _wind_down(self) -> None:
        if self._tasks and self._error is None:
            await asyncio.wait(self._tasks, timeout=STOP_GRACE_S)
        await self._cancel(list(self._tasks))

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._aborting = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)


def self_cancelled(stats: RunStats, url: str) -> Failed:
    """Return the outcome of a visit that cancelled its own task, and record the bug."""
    error = asyncio.CancelledError()  # without a traceback: the line that cancelled the task is unknown
    stats.bugs.record(error, "a callback", CANCELLED_ITSELF, url, CANCELLED_ITSELF, with_traceback=False)
    return Failed(CANCELLED_ITSELF)


def shutdown_deadline(engine: Engine) -> asyncio.Timeout:
    """Limit the final calls to the frontier and the sinks to FAST_SHUTDOWN_S after a second stop."""
    return asyncio.timeout(FAST_SHUTDOWN_S if engine.fast_shutdown else None)


async def _wait_for(task: asyncio.Task[None]) -> None:
    """Raise the exception of a task, but not its cancellation."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _uncancel() -> None:
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
