"""One run of a crawl: queue the start requests, crawl, tell the spiders, sum up."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.outputs import Feeds
from lycosa.app.crawl.parts import items_place
from lycosa.app.crawl.seeding import Seeding
from lycosa.app.crawl.spec import Crew, Member
from lycosa.app.crawl.workers import WorkerProcesses
from lycosa.core.errors import BadSpider, LycosaError, StateError, WorkerLost
from lycosa.crawl.diagnostics.watchdog import Watchdog
from lycosa.crawl.engine.engine import STOP_GRACE_S, Engine, shutdown_deadline
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.refresh import CarryOver, refresh, retry_dead
from lycosa.crawl.engine.run_parts import RunMonitor, RunStorage
from lycosa.crawl.events.reporting import WorkerReporter
from lycosa.crawl.events.signals import Signal, engine_started, engine_stopped, spider_closed, spider_opened
from lycosa.crawl.events.stats import Snapshot, Summary
from lycosa.crawl.fetching.guard import is_guarded
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.spiders.spider import wrap_user_errors
from lycosa.frontier.core.model import SegmentState, UrlRecord
from lycosa.frontier.core.states import State
from lycosa.frontier.core.telemetry import CrawlView, WorkerView
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

OBSERVE_EVERY_S, OBSERVE_SHARED_S = 0.25, 1.0
"""How often is looked how far the crawl is. To ask a shared frontier takes round trips to all its partitions."""

DEAF_S = 0.5
"""A loop that has not heard of a signal for so long is blocked, by a callback that does not await."""

DEAD_SHOWN = 10
CLOSED = (SegmentState.ARCHIVED, SegmentState.DROPPED)
SEEDS_LOOKED_UP = 100
"""Of so many start requests is looked up whether they are dead from an earlier run."""

Observer = Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class RunHooks:
    """What begins and ends with a run: `begins` are the `process_start` of the middlewares of each spider, `feeds` the
    outputs, `processes` the other processes that visit pages (None: pages are visited in this one)."""

    begins: Mapping[str, Sequence[Method]]
    feeds: Feeds
    processes: WorkerProcesses | None = None


class Job:
    """One run of a crawl, from its start requests to its summary."""

    def __init__(
        self,
        crew: Crew,
        state: StateDir,
        opened: OpenFrontier,
        storage: RunStorage,
        engine: Engine,
        monitor: RunMonitor,
        operations: FrontierOperations,
        hooks: RunHooks,
    ) -> None:
        self._crew = crew
        self._counted = crew.target.crawler.stats
        self._clock = Clock()
        self._settings = crew.settings
        self._state = state
        self._opened = opened
        self._frontier = storage.frontier
        self._committer = storage.committer
        self._engine = engine
        self._stats = monitor.stats
        self._dispatcher = monitor.dispatcher
        self._close_monitor = monitor.close_monitor
        self.operations = operations
        self._begins = hooks.begins
        self._feeds = hooks.feeds
        self._processes = hooks.processes
        self.reporter = WorkerReporter(engine, monitor.stats, self._counted, crew.settings.concurrency)
        self.hurry: Callable[[], None] = lambda: None
        """Called when nothing is to be waited for any more: it was stopped twice."""
        self._interrupted = False
        self._resumed = False
        self._segment = self._closed = ""
        self._begun: str | None = None
        self._carry = CarryOver(storage.frontier, operations, storage.committer, "")

    async def push_seeds(self) -> None:
        """Begin to queue the start requests; those known from an earlier run are dropped by the frontier.

        The first one decides which segment the run belongs to.
        """
        before = await self._frontier.stats()
        self._resumed = bool(before.done or before.dead)
        self._to_look_up = SEEDS_LOOKED_UP if before.dead else 0
        needed = not (self._resumed or before.unfinished or self._dispatcher.has_idle_handlers)
        self._seeding = Seeding(self._crew, self._begins, self, needed=needed)
        await self._seeding.begin()
        if self._begun is None:
            await self._fetch_again("")
        for member in self._crew.members:
            member.target.crawler.push = partial(self._push_one, member)
        await self._note_a_closed_segment()

    async def begin(self, member: Member, first: Request) -> str:
        """Return the segment of the run: that of the first request of all."""
        if self._begun is None:
            self._begun = member.target.naming.segments.of_run(first, self._stats.started_at)
            await self._fetch_again(self._begun)
        return self._begun

    async def take(self, seeds: list[UrlRecord]) -> None:
        """Queue start requests, durably; slowly where there is no room."""
        await self._engine.wait_for_space()
        await self._dispatcher.push(self._frontier, seeds)
        await self._committer.commit()
        self._engine.wake()
        looked_up, self._to_look_up = seeds[: self._to_look_up], max(0, self._to_look_up - len(seeds))
        await self._note_the_dead(looked_up)
        await asyncio.sleep(0)  # or Ctrl-C would have to wait for the last of millions

    async def _push_one(self, member: Member, request: Request) -> bool:
        naming = member.target.naming
        record = to_record(request, member.spider, naming=naming, segment=self._segment, guarded=is_guarded())
        return await self._engine.push([record]) > 0

    async def nothing_to_do(self) -> bool:
        """Whether the crawl is finished already, and nobody wants to be asked for more."""
        if self._dispatcher.has_idle_handlers or not self._seeding.is_over:
            return False
        return (await self._frontier.stats()).unfinished == 0 and await self._opened.is_finished()

    async def _note_the_dead(self, seeds: Sequence[UrlRecord]) -> None:
        for seed in seeds:
            for row in await self.operations.find(seed.fingerprint, seed.host, (State.DEAD,)):
                if row.record.segment == seed.segment:
                    self._stats.note(
                        f"the start URL {seed.url} failed in an earlier run ({row.reason}):"
                        " --retry-dead queues failed URLs again"
                    )

    async def _note_a_closed_segment(self) -> None:
        """Say so when the segment of this run takes no more, for its seeds were refused without a word."""
        views = {view.name: view for view in await self.operations.segments()}
        if (view := views.get(self._segment)) is None or view.state not in CLOSED:
            return
        self._closed = f"segment {view.name} was {view.state}"
        what = f"segment {view.name}, which this run would fill, was {view.state} and takes no more"
        later = "wait until the next one begins, " if view.starts_at else ""
        self._stats.note(f"{what}: {later}give another --segment, or start afresh with -O")

    async def run(self, observe: Observer | None = None, *, signals: bool = True) -> None:
        """Crawl until nothing is left or a signal comes; then tell the spiders."""
        self._counted.begin(self._stats.started_at)
        self._feeds.began = True
        try:
            async with Watchdog(self._settings.slow_callback_after):
                if self._processes is not None:
                    await self._processes.start(self._segment)
                await self._send(engine_started)
                await self._send(spider_opened, of_spider=True)
                with _signals(self.interrupt) if signals else nullcontext():
                    await self._watched(observe)
                reason = self._engine.close_reason or ("shutdown" if self._interrupted else await self._finished())
                if self._processes is not None:
                    await self._processes.end(reason)
        except BaseException as error:
            reason = "shutdown" if self._interrupted else "failed"
            if self._processes is not None and isinstance(error, Exception):
                await self._processes.fail(reason)
            away = isinstance(error, StateError) and bool(self._settings.frontier)
            with suppress(BadSpider):  # what came first is told
                await self._tell_the_spiders(reason, away=away)
            if self._interrupted and isinstance(error, WorkerLost):  # it is not to take part again
                raise StateError(str(error)) from None
            raise
        await self._tell_the_spiders(reason)

    async def _finished(self) -> str:
        left = self._engine.quota_reached and (await self._frontier.stats()).unfinished
        return "closespider_pagecount" if left else "finished"

    async def _tell_the_spiders(self, reason: str, *, away: bool = False) -> None:
        await self._count_up(away=away)
        self._counted.end(self._clock.now(), reason)
        failed: list[Exception] = []
        for member in self._crew.members:
            try:
                with wrap_user_errors(f"{type(member.spider).__name__}.closed"):
                    told = member.spider.closed(reason)
                    if inspect.isawaitable(told):
                        await told
            except LycosaError as error:
                failed.append(error)
        await self._send(spider_closed, of_spider=True, reason=reason)
        if failed:
            raise failed[0]

    async def _count_up(self, *, away: bool) -> None:
        """Set the stats that are counted elsewhere, unless the server that counts them is away, and was waited for."""
        if self._close_monitor is not None:
            self._close_monitor.measure_memory()
        if away:
            return
        try:
            async with self.shutdown_deadline():
                frontier = await self._frontier.stats()
        except (StateError, TimeoutError):  # it is why the crawl ends
            return
        filtered = frontier.offered - frontier.added + self._stats.known_links
        counts = {"scheduler/enqueued": frontier.added, "scheduler/dequeued": self._stats.leased}
        for name, count in {**counts, "dupefilter/filtered": filtered}.items():
            if count:
                self._counted.set_value(name, count)

    async def stopped(self) -> None:
        """All is closed: tell those who want to know that, and show the stats."""
        if not self._feeds.began:
            return
        await self._send(engine_stopped)
        for member in self._crew.members:
            await member.target.crawler.signals.settle()
        if self._settings.stats_dump:
            log.info("stats of this run:\n%s", self._counted.dump())

    async def _send(self, signal: Signal, *, of_spider: bool = False, **values: Any) -> None:
        for member in self._crew.members:
            about = {"spider": member.spider} if of_spider else {}
            await member.target.crawler.signals.send(signal, **about, **values)

    async def view(self) -> CrawlView:
        """Return what is to be seen of the crawl from this worker: itself, and its frontier.

        What a shared crawl has done in all is known elsewhere.
        """
        report, stats = self.reporter.report(), await self._frontier.stats()
        urls = {name: getattr(stats, name) for name in ("queued", "leased", "delayed", "done", "dead")}
        totals = {} if self._settings.frontier else report.counts
        worker = WorkerView(f"{report.machine}:{report.pid}", report.state, 0.0, stats.leased, report)
        name = self._settings.crawl_name or self._crew.target.name
        return CrawlView(name, self._clock.now(), [worker], [], totals, urls)

    async def snapshot(self) -> Snapshot:
        """Return the state of the crawl."""
        return await self._engine.snapshot()

    async def end(self) -> None:
        """There was nothing to do."""
        await self._committer.finish()

    def shutdown_deadline(self) -> asyncio.Timeout:
        """Bound what is asked at the end of a run. See `engine.shutdown_deadline`."""
        return shutdown_deadline(self._engine)

    async def summary(self, *, nothing_to_do: bool) -> Summary:
        """Tell how it ended."""
        stats = await self._frontier.stats()
        dead = await self._frontier.dead(DEAD_SHOWN)
        enough = self._engine.quota_reached and stats.unfinished > 0
        snapshot = await self._engine.snapshot()
        return Summary(
            finished=stats.unfinished == 0,
            interrupted=self._interrupted and stats.unfinished > 0 and not enough,
            nothing_to_do=nothing_to_do,
            resumed=self._resumed,
            snapshot=snapshot,
            reasons=stats.reasons,
            dead_reasons=stats.dead_reasons,
            skipped=dict(self._stats.skipped),
            dead=[(record.url, reason) for record, reason in dead],
            notes=self._notes(enough=enough),
            bugs=self._stats.bugs.most_frequent(),
            idle_until=self._engine.idle_until,
            ended_at=self._stats.started_at + snapshot.elapsed_s,
            items_path=items_place(self._settings),
            overwritten=self._settings.overwrite,
            state_path=str(self._state.path),
            closed=self._closed,
            closing=self._engine.close_reason,
            stats=self._counted.get_stats(),
        )

    def _notes(self, *, enough: bool) -> list[str]:
        if not enough:
            return self._stats.notes
        what = f"stopped at --max-pages {self._settings.max_pages}, which counts the pages of all runs"
        how = "-o instead of -O and a larger number" if self._settings.overwrite else "a larger number"
        return [*self._stats.notes, f"{what}: to resume, repeat the command with {how}"]

    async def _fetch_again(self, segment: str) -> None:
        """Queue what of the kept state is to be fetched again; before the seeds, for it has validators."""
        self._segment = segment
        kept = not self._settings.frontier or self._settings.keep_done  # or all is fetched whole, with its links
        self._carry = CarryOver(self._frontier, self.operations, self._committer, segment if kept else "")
        now, age_s = self._stats.started_at, self._settings.refresh
        old = 0 if age_s is None else await refresh(self.operations, segment, now - age_s, now)
        carried = await self._carry.more(now)
        dead = await retry_dead(self.operations, segment, now) if self._settings.retry_dead else 0
        if old or carried or dead:
            log.info("queued again: %d URLs by age, %d of the previous segment, %d dead", old, carried, dead)

    def interrupt(self) -> None:
        """Stop; called again, at once."""
        if not self._interrupted and self._engine.active_count:
            log.warning("stopping: what is under way gets %g s to end; once more ends it at once", STOP_GRACE_S)
        self.stop()

    def stop(self, *, at_once: bool = False) -> None:
        """Lend no more; `at_once` gives up what is under way, too."""
        self._interrupted = True
        self._engine.stop()
        if at_once:
            self._engine.stop()
        if self._engine.fast_shutdown:
            self.hurry()

    async def _watched(self, observe: Observer | None) -> None:
        watching = asyncio.create_task(self._observe(observe)) if observe else None
        self._seeding.then(self._engine.wake, self._engine.fail)
        try:
            await self._engine.run(self.operations, self._segment, self._more)
        finally:
            await self._seeding.stop()
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching

    async def _more(self, now: float) -> int:
        """Queue more, or say that there will be more."""
        return await self._carry.more(now) or int(not self._seeding.is_over)

    async def _observe(self, observe: Observer) -> None:
        every_s = OBSERVE_SHARED_S if self._settings.frontier else OBSERVE_EVERY_S
        while True:
            await asyncio.sleep(every_s)
            seen = await self._engine.snapshot()
            observe(seen)
            await self._engine.wait_for_activity(seen)


@contextmanager
def _signals(handler: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call `handler`, on the loop, while this is open; on a loop that is blocked the second raises
    `KeyboardInterrupt` where it is blocked."""
    loop = asyncio.get_running_loop()
    unheard: list[float] = []

    def heard() -> None:
        unheard.clear()
        handler()

    def came(_signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if unheard and now - unheard[0] > DEAF_S:
            raise KeyboardInterrupt
        unheard.append(now)
        loop.call_soon_threadsafe(heard)

    before = {name: signal.signal(name, came) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handled in before.items():
            signal.signal(name, handled)
