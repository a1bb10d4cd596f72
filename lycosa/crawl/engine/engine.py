"""The engine: lease -> visit -> settle, as many at a time as asked for, until the frontier has nothing left.

1. The frontier lends records whose hosts may be contacted now.
2. Each is visited in a task of its own: robots.txt, fetch, callback, pipelines (`visit.py`).
3. What became of it is settled: ack with its children, or nack; then its items go to the sinks.
4. The committer makes many settled leases durable in one step, items first (`commit.py`).
5. While a device is nearly full nothing more is lent; what is under way is finished (`disk_guard.py`).
6. When nothing can be lent the engine sleeps until a task ends, the next due time, or somebody calls `wake`; when
   nothing is left, it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from lycosa.crawl.engine.disk_guard import SHORTAGE_CHECK_S
from lycosa.crawl.engine.leases import LeaseRenewer
from lycosa.crawl.engine.quota import PageQuota
from lycosa.crawl.engine.run_parts import HostLookups, RunMonitor, RunStorage
from lycosa.crawl.engine.settle import Settler
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, Failed
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.engine.wakeup import Wakeup
from lycosa.crawl.events.stats import Snapshot
from lycosa.frontier.core.model import Lease, RecordKind, Selection, UrlRecord
from lycosa.frontier.core.states import Event, State, expire
from lycosa.frontier.ports import FrontierOperations
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

STOP_GRACE_S = 5.0
"""After a stop, transfers under way get so long to end; then they are released."""

HURRY_S = 0.7
"""After a second stop a server that is asked something at the end gets so long to answer."""

CLOCK_CHECK_S = 60.0
"""Longest sleep: timers do not see that the clock was set or that the machine slept, so the time is looked at again."""

WAITING_S = 10.0
"""A longer sleep with nothing under way is told to the user; a shorter one is the pace of the crawl."""

LEASE_EXPIRED = "lease expired"
"""The reason of a record that took too long again and again: frontiers say the same."""

CANCELLED_ITSELF = "the callback, or what it called, cancelled its own task"
"""The reason of such a record: were it lent again, it would be asked for again and again."""

IDLE_AFTER_S = 60.0
"""With `exit_when_idle` the crawl still waits for what is due within this time."""

IDLE_AGAIN_S = 5.0
"""A receiver of `spider_idle` that keeps the crawl alive is asked again after so long, or when something was done."""

RETRIES = Selection(states=(State.RETRY,))


class LeaseVisitor(Protocol):
    """See `Visitor`: what visits pages, here or elsewhere."""

    async def visit(self, lease: Lease) -> Outcome:
        """Fetch the record and say what becomes of it. Never raises but for bugs and cancellation."""
        ...


QueueMore = Callable[[float], Awaitable[int]]


class IdleStatus(NamedTuple):
    """Why nothing is under way: nothing is due before `until`, or it is `paused` for this reason."""

    until: float = 0.0
    paused: str = ""


ACTIVE = IdleStatus()


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """`concurrency` leases at a time, none longer than `lease_max_s`; at most `max_pages` pages of the segment.

    `exit_when_idle`: end when all that is left is due later (see `Engine.idle_until`). `shared`: others fetch pages of
    the same crawl.
    """

    concurrency: int = 64
    max_pages: int | None = None
    lease_max_s: float = 3600.0
    exit_when_idle: bool = False
    shared: bool = False


class Engine:
    """Runs one crawl. Raises `StateError` when the frontier or a sink fails; the last commit stands then."""

    def __init__(
        self,
        storage: RunStorage,
        visitor: LeaseVisitor,
        questions: HostLookups,
        limits: EngineLimits,
        monitor: RunMonitor,
        clock: Clock,
    ) -> None:
        self._frontier = storage.frontier
        self._committer = storage.committer
        self._space = storage.space
        self._visitor = visitor
        self._questions = questions
        self._limits = limits
        self._stats = monitor.stats
        self._close_monitor = monitor.close_monitor
        self._dispatcher = monitor.dispatcher
        self._clock = clock
        self._leases = LeaseRenewer(storage.frontier, limits.lease_max_s)
        self._idle_again_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wakeup = Wakeup()
        self.idle_status = ACTIVE
        self._activity = asyncio.Event()
        self._settler = Settler(storage, monitor, clock, self.close)
        self._error: BaseException | None = None
        self._quota = PageQuota(limits.max_pages, monitor.stats)
        self._running: asyncio.Task[Any] | None = None
        self._steps: list[asyncio.Task[None]] = []
        self._gives_up = False
        self.fast_shutdown = False  # stopped twice
        self.stopping = False
        self.close_reason = ""
        """Why a spider or a condition ended the crawl, "" when none did."""
        self.idle_until = 0.0
        """When the crawl ended because it was idle: when it goes on, in unix seconds."""

    async def run(self, operations: FrontierOperations, segment: str = "", more: QueueMore | None = None) -> None:
        """Crawl until nothing is left, `stop` is called, or something fails.

        `segment` is that of the run, whose pages `max_pages` counts. When nothing is left, `more(now)` may queue
        something, and returns how much.
        """
        self._operations = operations
        self._more = more
        self._running = asyncio.current_task()
        self._space.check()
        await self._quota.count(operations, segment)
        beside = [asyncio.create_task(self._until_cancelled(self._committer.run()))]
        if self._limits.shared:
            counting = self._quota.follow(operations, segment, self.wake)
            beside.append(asyncio.create_task(self._until_cancelled(counting)))
        self._steps = [pumping := asyncio.create_task(self._pump())]
        try:
            await _over(pumping)
            await self._wind_down()
        finally:
            self._wakeup.cancel()
            await self._cancel([*beside, pumping, *self._tasks])
        if self._error is not None:
            raise self._error
        self._steps = [ending := asyncio.create_task(self._committer.finish())]
        with suppress(asyncio.CancelledError, TimeoutError):
            async with shutdown_deadline(self):
                await ending

    def stop(self) -> None:
        """Lend no more; let what is under way end, within the grace. Called again: without waiting for anything."""
        if self.stopping:
            self._gives_up = self.fast_shutdown = True
            for task in (*self._tasks, *self._steps):
                task.cancel()
        self.stopping = True
        self.wake()

    def close(self, reason: str) -> None:
        """End the crawl for this reason: lend no more, and let what is under way end."""
        if not self.stopping:
            self.close_reason = reason
            self.stop()

    def fail(self, error: BaseException) -> None:
        """End the crawl: `run` raises this."""
        self._error = self._error or error
        self.wake()

    def wake(self) -> None:
        """Look at the frontier now: something was pushed from outside, or is due earlier than it was."""
        self._wakeup.set()

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue records from outside, and look at the frontier. Return how many were new."""
        pushed = await self._dispatcher.push(self._frontier, records)
        if pushed:
            self._committer.note_change()
            self.wake()
        return pushed

    async def snapshot(self) -> Snapshot:
        """Return the state of the crawl."""
        snapshot = self._stats.snapshot(await self._frontier.stats(), self._clock.now())
        return snapshot._replace(waiting_until=self.idle_status.until, paused=self.idle_status.paused)

    async def wait_for_activity(self, seen: Snapshot) -> None:
        """Return at once, but when the snapshot shows a crawl that waits or is paused: when that is over."""
        while self.idle_status == (seen.waiting_until, seen.paused) != ACTIVE:
            self._activity.clear()
            await self._activity.wait()

    async def wait_for_space(self) -> None:
        """Return at once, but during a shortage in a crawl that runs: when it is over."""
        await self._space.wait_for_space(runs=self._running is not None)

    @property
    def active_count(self) -> int:
        """How many are under way."""
        return len(self._tasks)

    @property
    def quota_reached(self) -> bool:
        """Whether the crawl has its `max_pages`."""
        return self._quota.left(1) <= 0

    async def _pump(self) -> None:
        while not self.stopping and self._error is None:
            self._wakeup.clear()
            self._space.look()
            now = self._clock.now()
            if self._close_monitor is not None and (reason := self._close_monitor.look(now)):
                self.close(reason)
                return
            self._leases.give_up(now)
            await self._leases.renew(now)
            if await self._frontier.expire(now):  # those of other workers: ours were renewed for this very moment
                self._committer.note_change()
            await self._lend(now)
            if not self._tasks and await self._is_over(now):
                return
            await self._sleep()

    async def _lend(self, now: float) -> None:
        free = self._free()
        leases = await self._frontier.lease(free, now)
        for lease in leases:
            self._start(lease, now)
        if free and not leases:
            await self._dispatcher.empty()

    async def _is_over(self, now: float) -> bool:
        due = self._frontier.next_ready(now)
        if self.quota_reached:
            return True
        if due is not None and not (self._limits.exit_when_idle and await self._is_idle(due, now)):
            return False
        if self._more is not None and await self._more(now):
            return False
        if self._dispatcher.has_idle_handlers and await self._is_kept(now):
            return False
        self.idle_until = due or 0.0
        return True

    async def _is_kept(self, now: float) -> bool:
        """Whether a receiver of `spider_idle` has more to come, now or later; it is not asked all the time."""
        if now < self._idle_again_at:
            return True
        due = self._frontier.next_ready(now)
        kept = await self._dispatcher.idle()
        self._idle_again_at = now + IDLE_AGAIN_S if kept else 0.0
        return kept or self._frontier.next_ready(now) != due

    async def _is_idle(self, due: float, now: float) -> bool:
        """Whether nothing is left but what was asked for later: retries and hosts that rest are work."""
        if due - now <= IDLE_AFTER_S or self._settler.retry_until > now:
            return False
        if any(view.queued and view.starts_at <= now for view in await self._operations.segments()):
            return False
        return not (await self._operations.rows(RETRIES, "", 1)).rows  # of earlier runs

    def _free(self) -> int:
        if self._space.shortage:
            return 0
        places = self._limits.concurrency
        return max(0, min(places, self._quota.left(places)) - len(self._tasks))

    async def _sleep(self) -> None:
        now = self._clock.now()
        due = self._frontier.next_ready(now) if self._free() else None
        look_at = now + (SHORTAGE_CHECK_S if self._space.shortage else CLOCK_CHECK_S)
        end_at = self._close_monitor.next_at() if self._close_monitor is not None else None
        again_at = self._idle_again_at or None
        wait_s = min(at for at in (due, self._leases.next_renewal(), look_at, end_at, again_at) if at is not None) - now
        if wait_s <= 0:
            await asyncio.sleep(0)
            return
        if not self._tasks:
            self._stand_still(due, now)
        await self._wakeup.sleep(wait_s)

    def _stand_still(self, due: float | None, now: float) -> None:
        if self._space.shortage:
            self._be(IdleStatus(paused=self.idle_status.paused or str(self._space.shortage)))
        elif due is not None and due - now > WAITING_S:
            self._be(IdleStatus(until=due))
        else:
            self._be(ACTIVE)

    def _be(self, still: IdleStatus) -> None:
        if self.idle_status != still:
            self.idle_status = still
            self._activity.set()

    def _start(self, lease: Lease, now: float) -> None:
        self._be(ACTIVE)
        self._idle_again_at = 0.0
        self._leases.begin(lease, now)
        task = asyncio.create_task(self._work(lease))
        if lease.record.kind == RecordKind.PAGE:
            self._leases.works(lease, task, now)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._error = self._error or task.exception()
        self._wakeup.set()

    async def _work(self, lease: Lease) -> None:
        try:
            if lease.record.kind == RecordKind.PAGE:
                self._stats.leased += 1
                await self._settler.settle(lease, await self._visited(lease))
            else:
                await self._learn(lease)
        finally:
            self._leases.end(lease)

    async def _visited(self, lease: Lease) -> Outcome:
        try:
            return await self._visitor.visit(lease)
        except asyncio.CancelledError:
            if self._gives_up or self._running is None or self._running.cancelling():
                await self._frontier.release(lease, self._clock.now())
                raise
            _go_on()
        if not self._leases.is_overdue(lease):
            log.error("%s failed: %s", lease.record.url, CANCELLED_ITSELF)
            return Failed(CANCELLED_ITSELF)
        log.warning("%s took longer than %g s (max_lease)", lease.record.url, self._limits.lease_max_s)
        _, event = expire(lease.record)
        return Failed(LEASE_EXPIRED, self._clock.now() if event is Event.EXPIRE else None)

    async def _learn(self, lease: Lease) -> None:
        try:
            if lease.record.kind == RecordKind.RESOLVE:
                await self._questions.addresses.learn(lease)
            else:
                await self._learn_robots(lease)
        except asyncio.CancelledError:
            await self._frontier.release(lease, self._clock.now())
            raise
        self._committer.note_change()

    async def _learn_robots(self, lease: Lease) -> None:
        again = await self._questions.robots.asked(lease, now := self._clock.now())
        if again is None:
            await self._frontier.ack(lease, "robots.txt", (), now)
        elif isinstance(again, (Deferred, CloseCrawl)):
            await self._settler.settle(lease, again)
        else:
            await self._frontier.nack(lease, again.reason, again.retry_at, now)

    async def _until_cancelled(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  kept for `run`, which raises it
            self._error = self._error or error
            self._wakeup.set()

    async def _wind_down(self) -> None:
        if self._tasks and self._error is None:
            await asyncio.wait(self._tasks, timeout=STOP_GRACE_S)
        await self._cancel(list(self._tasks))

    async def _cancel(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._gives_up = True
        await _ended(tasks)


def shutdown_deadline(engine: Engine) -> asyncio.Timeout:
    """Bound what is asked of frontier and sinks at the end of a crawl: who stopped it twice waits for no server."""
    return asyncio.timeout(HURRY_S if engine.fast_shutdown else None)


async def _ended(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel these, and wait for their end."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.gather(*tasks, return_exceptions=True)


async def _over(task: asyncio.Task[None]) -> None:
    """Wait for a task that may be cancelled. Raises what it raised."""
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


def _go_on() -> None:
    """Take back all wishes that the running task ends."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
