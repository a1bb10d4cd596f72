"""One run of a crawl: queue the start requests, crawl, close the spiders, summarize."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType

from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.outputs import Feeds
from lycosa.app.crawl.parts import items_location
from lycosa.app.crawl.seeding import Seeder
from lycosa.app.crawl.spec import CrawlSpec, SpiderSpec
from lycosa.app.crawl.workers import WorkerProcesses
from lycosa.core.errors import BadSpider, StateError, WorkerLost
from lycosa.core.units import format_count
from lycosa.crawl.diagnostics.watchdog import Watchdog
from lycosa.crawl.engine.engine import STOP_GRACE_S, Engine, shutdown_deadline
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.run_parts import RunMonitor, RunStorage
from lycosa.crawl.engine.run_segments import RunSegments, SegmentOptions
from lycosa.crawl.events.reporting import WorkerReporter
from lycosa.crawl.events.signals import engine_started, engine_stopped, spider_opened
from lycosa.crawl.events.stats import Snapshot, Summary
from lycosa.crawl.fetching.guard import is_guarded
from lycosa.crawl.middlewares.chain import Method
from lycosa.frontier.core.model import SegmentState, UrlRecord
from lycosa.frontier.core.segments import Retention
from lycosa.frontier.core.states import State
from lycosa.frontier.core.telemetry import CrawlView, WorkerView
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.state_dir import StateDir
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

OBSERVE_EVERY_S, OBSERVE_SHARED_S = 0.25, 1.0
"""Seconds between two progress snapshots. A snapshot of a shared frontier takes a round trip to each partition."""

BLOCKED_AFTER_S = 0.5
"""If the event loop has not handled a signal within this many seconds, a callback is blocking it."""

DEAD_SHOWN = 10
CLOSED = (SegmentState.ARCHIVED, SegmentState.DROPPED)
SEEDS_LOOKED_UP = 100
"""Maximum number of start requests that are looked up among the dead URLs of earlier runs, for hints in the summary."""

Observer = Callable[[Snapshot], None]


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Parts that start and end with a run."""

    process_starts: Mapping[str, Sequence[Method]]
    feeds: Feeds
    processes: WorkerProcesses | None = None


class CrawlRun:
    """One run of a crawl, from its start requests to its summary."""

    def __init__(
        self,
        crawl: CrawlSpec,
        state: StateDir,
        opened: OpenFrontier,
        storage: RunStorage,
        engine: Engine,
        monitor: RunMonitor,
        operations: FrontierOperations,
        hooks: RunHooks,
    ) -> None:
        self._crawl = crawl
        self._collector = crawl.target.crawler.stats
        self._clock = Clock()
        self._settings = crawl.settings
        self._state = state
        self._opened = opened
        self._frontier = storage.frontier
        self._committer = storage.committer
        self._engine = engine
        self._stats = monitor.stats
        self._dispatcher = monitor.dispatcher
        self._close_monitor = monitor.close_monitor
        self.operations = operations
        self._hooks = hooks
        self._processes = hooks.processes
        self.reporter = WorkerReporter(engine, monitor.stats, self._collector, crawl.settings.concurrency)
        if monitor.close_monitor is not None:
            monitor.close_monitor.read_progress = opened.progress_reader(self.reporter)
        self.on_fast_shutdown: Callable[[], None] = lambda: None
        """Called on the second stop, after which the run no longer waits for visits and servers."""
        self._interrupted = False
        self._resumed = False
        self._segment_closed = ""
        namings = [spec.target.naming.segments for spec in crawl.spiders]
        options, began_at = self._segment_options(), monitor.stats.started_at
        self._segments = RunSegments(storage, operations, namings, options, began_at)

    async def start_seeding(self) -> None:
        """Start queueing the start requests. The first request determines the segment of the run."""
        before = await self._frontier.stats()
        self._resumed = bool(before.done or before.dead)
        self._lookups_left = SEEDS_LOOKED_UP if before.dead else 0
        required = not (self._resumed or before.unfinished or self._dispatcher.has_idle_handlers)
        self._seeder = Seeder(self._crawl, self._hooks.process_starts, self, required=required)
        await self._seeder.start()
        if not self._segments.has_begun:  # there were no start requests, but stored records may be due again
            await self._segments.begin("")
        for spec in self._crawl.spiders:
            spec.target.crawler.push = partial(self._push, spec)
        await self._note_closed_segment()

    async def segment_for(self, spec: SpiderSpec, first: Request) -> str:
        if not self._segments.has_begun:
            await self._segments.begin(spec.target.naming.segments.of_run(first, self._stats.started_at))
        return self._segments.first

    async def push_seeds(self, seeds: list[UrlRecord]) -> None:
        """Queue start requests. Waits while disk space is short."""
        await self._engine.wait_for_space()
        await self._dispatcher.push(self._frontier, seeds)
        await self._committer.commit()
        self._engine.wake()
        await self._note_dead_seeds(seeds[: self._lookups_left])
        self._lookups_left = max(0, self._lookups_left - len(seeds))
        await asyncio.sleep(0)  # otherwise Ctrl-C would have to wait until millions of seeds are queued

    async def _push(self, spec: SpiderSpec, request: Request) -> bool:
        naming = spec.target.naming
        record = to_record(request, spec.spider, naming=naming, segment=self._segments.first, guarded=is_guarded())
        return await self._engine.push([record]) > 0

    async def _note_dead_seeds(self, seeds: Sequence[UrlRecord]) -> None:
        for seed in seeds:
            for row in await self.operations.find(seed.fingerprint, seed.host, (State.DEAD,)):
                if row.record.segment == seed.segment:
                    self._stats.note(
                        f"the start URL {seed.url} failed in an earlier run ({row.reason}):"
                        " --retry-dead queues failed URLs again"
                    )

    async def _note_closed_segment(self) -> None:
        """Add a hint to the summary, because the frontier drops requests of a closed segment silently."""
        views = {view.name: view for view in await self.operations.segments()}
        if (view := views.get(self._segments.first)) is None or view.state not in CLOSED:
            return
        self._segment_closed = f"segment {view.name} was {view.state}"
        problem = f"segment {view.name}, the segment of this run, was {view.state} and takes no more requests"
        later = "wait until the next segment begins, " if view.starts_at else ""
        self._stats.note(f"{problem}: {later}give another --segment, or start afresh with -O")

    async def run(self, observe: Observer | None = None, *, signals: bool = True) -> bool:
        """Run the crawl. Return False if it was already finished."""
        if await self._is_finished():
            await self._committer.finish()
            return False
        await self._run(observe, signals=signals)
        return True

    async def _is_finished(self) -> bool:
        if self._dispatcher.has_idle_handlers or not self._seeder.is_done:
            return False
        return (await self._frontier.stats()).unfinished == 0 and await self._opened.is_finished()

    async def _run(self, observe: Observer | None, *, signals: bool) -> None:
        self._collector.begin(self._stats.started_at)
        self._hooks.feeds.begun = True
        try:
            async with Watchdog(self._settings.slow_callback_after):
                if self._processes is not None:
                    await self._processes.start(self._segments.first, self._stats.started_at)
                await self._crawl.send(engine_started)
                await self._crawl.send(spider_opened, of_spider=True)
                with _handle_signals(self.interrupt) if signals else nullcontext():
                    await self._run_engine(observe)
                if not self._interrupted:
                    await self._segments.drop_expired(self._clock.now())
                reason = self._engine.close_reason or ("shutdown" if self._interrupted else await self._finish_reason())
                if self._processes is not None:
                    await self._processes.end(reason)
        except BaseException as error:
            reason = "shutdown" if self._interrupted else "failed"
            if self._processes is not None and isinstance(error, Exception):
                await self._processes.fail(reason)
            server_lost = isinstance(error, StateError) and bool(self._settings.frontier)
            with suppress(BadSpider):  # raise the first error
                await self._close_spiders(reason, server_lost=server_lost)
            raise
        await self._close_spiders(reason)

    async def _finish_reason(self) -> str:
        left = self._engine.quota_reached and (await self._frontier.stats()).unfinished
        return "closespider_pagecount" if left else "finished"

    async def _close_spiders(self, reason: str, *, server_lost: bool = False) -> None:
        await self._set_final_stats(server_lost=server_lost)
        self._collector.end(self._clock.now(), reason)
        await self._crawl.close_spiders(reason)

    async def _set_final_stats(self, *, server_lost: bool) -> None:
        """Set the stats that the collector does not count. Skip those of a frontier whose server is lost."""
        if self._close_monitor is not None:
            self._close_monitor.measure_memory()
        if server_lost:
            return
        try:
            async with self.shutdown_deadline():
                frontier = await self._frontier.stats()
        except (StateError, TimeoutError):  # missing stats must not fail the run
            return
        counts = {
            "scheduler/enqueued": frontier.added,
            "scheduler/dequeued": self._stats.leased,
            "dupefilter/filtered": frontier.offered - frontier.added + self._stats.known_links,
        }
        for name, count in counts.items():
            if count:
                self._collector.set_value(name, count)

    async def after_close(self) -> None:
        """Send `engine_stopped`, and log the stats. Call it when all parts of the run are closed."""
        if not self._hooks.feeds.begun:
            return
        await self._crawl.send(engine_stopped)
        await self._crawl.settle_signals()
        if log.isEnabledFor(logging.INFO):
            self._log_end()
        if self._settings.stats_dump:
            log.info("stats of this run:\n%s", self._collector.dump())

    def _log_end(self) -> None:
        found = self._collector.get_stats()
        counts = {
            "requests": found.get("downloader/request_count", 0),
            "duplicates": found.get("dupefilter/filtered", 0),
            "successes": self._stats.pages + self._stats.unchanged,
            "elapsed_s": round(found.get("elapsed_time_seconds", 0.0), 3),
        }
        reason, fields = found.get("finish_reason", ""), {**counts, "reason": found.get("finish_reason", "")}
        nouns = {"requests": "request", "duplicates": "duplicate", "successes": "success"}
        text = ", ".join(format_count(counts[name], noun) for name, noun in nouns.items())
        log.info("closed (%s): %s in %.1f s", reason, text, counts["elapsed_s"], extra=fields)

    async def view(self) -> CrawlView:
        report, stats = self.reporter.report(), await self._frontier.stats()
        urls = {name: getattr(stats, name) for name in ("queued", "leased", "delayed", "done", "dead")}
        totals = {} if self._settings.frontier else report.counts
        worker = WorkerView(f"{report.machine}:{report.pid}", report.state, 0.0, stats.leased, report)
        name = self._settings.crawl_name or self._crawl.target.name
        return CrawlView(name, self._clock.now(), [worker], [], totals, urls)

    async def snapshot(self) -> Snapshot:
        return await self._engine.snapshot()

    @contextmanager
    def no_rejoin_after_interrupt(self) -> Iterator[None]:
        """After an interrupt, raise `WorkerLost` as `StateError`, so that the worker does not rejoin the crawl."""
        try:
            yield
        except WorkerLost as lost:
            if not self._interrupted:
                raise
            raise StateError(str(lost)) from None

    def shutdown_deadline(self) -> asyncio.Timeout:
        return shutdown_deadline(self._engine)

    async def summary(self, *, nothing_to_do: bool) -> Summary:
        stats = await self._frontier.stats()
        dead = await self._frontier.dead(DEAD_SHOWN)
        quota_reached = self._engine.quota_reached and stats.unfinished > 0
        snapshot = await self._engine.snapshot()
        return Summary(
            finished=stats.unfinished == 0,
            interrupted=self._interrupted and stats.unfinished > 0 and not quota_reached,
            nothing_to_do=nothing_to_do,
            resumed=self._resumed,
            snapshot=snapshot,
            reasons=stats.reasons,
            dead_reasons=stats.dead_reasons,
            skipped=dict(self._stats.skipped),
            dead=[(record.url, reason) for record, reason in dead],
            notes=self._notes(quota_reached=quota_reached),
            bugs=self._stats.bugs.most_frequent(),
            idle_until=self._engine.idle_until,
            ended_at=self._stats.started_at + snapshot.elapsed_s,
            items_path=items_location(self._settings),
            overwritten=self._settings.overwrite,
            state_path=str(self._state.path),
            closed=self._segment_closed,
            closing=self._engine.close_reason,
            stats=self._collector.get_stats(),
        )

    def _notes(self, *, quota_reached: bool) -> list[str]:
        if not quota_reached:
            return self._stats.notes
        stopped = f"stopped at --max-pages {self._settings.max_pages}, which counts the pages of all runs"
        change = "-o instead of -O and a larger number" if self._settings.overwrite else "a larger number"
        return [*self._stats.notes, f"{stopped}: to resume, repeat the command with {change}"]

    def _segment_options(self) -> SegmentOptions:
        settings = self._settings
        return SegmentOptions(
            settings.refresh,
            settings.retry_dead and not self._opened.rejoined,  # a worker requeues dead URLs only when it first joins
            # A shared frontier that does not keep done URLs has no validators: its pages are fetched again as new ones.
            not settings.frontier or settings.keep_done,
            Retention(settings.keep_segments, settings.keep_segments_for),
            Path(settings.export_segments) if settings.export_segments is not None else None,
        )

    def interrupt(self) -> None:
        if not self._interrupted and self._engine.active_count:
            log.warning(
                "stopping: requests in progress have %g s to finish; interrupt again to stop at once", STOP_GRACE_S
            )
        self.stop()

    def stop(self, *, at_once: bool = False) -> None:
        """Interrupt the run. `at_once`, or a second call, also abandons visits in progress."""
        self._interrupted = True
        self._engine.stop()
        if at_once:
            self._engine.stop()
        if self._engine.fast_shutdown:
            self.on_fast_shutdown()

    async def _run_engine(self, observe: Observer | None) -> None:
        observing = asyncio.create_task(self._observe(observe)) if observe else None
        dropping = asyncio.create_task(self._segments.drop_regularly(self._clock.now, self._engine.fail))
        self._seeder.on_done(self._engine.wake, self._engine.fail)
        try:
            await self._engine.run(self.operations, self._segments.current, self._queue_more)
        finally:
            await self._seeder.stop()
            for task in filter(None, (dropping, observing)):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _queue_more(self, now: float) -> int:
        """Requeue URLs of earlier segments. Return their number, at least 1 until all seeds are queued."""
        return await self._segments.take_over(now) or int(not self._seeder.is_done)

    async def _observe(self, observe: Observer) -> None:
        every_s = OBSERVE_SHARED_S if self._settings.frontier else OBSERVE_EVERY_S
        while True:
            await asyncio.sleep(every_s)
            snapshot = await self._engine.snapshot()
            observe(snapshot)
            await self._engine.wait_for_activity(snapshot)  # an idle crawl must not use the CPU


@contextmanager
def _handle_signals(handler: Callable[[], None]) -> Iterator[None]:
    """Call `handler` on the event loop for SIGINT and SIGTERM.

    If the loop is blocked, a later signal raises `KeyboardInterrupt` in the code that blocks it.
    """
    loop = asyncio.get_running_loop()
    pending: list[float] = []  # arrival times of the signals that the loop has not handled yet

    def handle() -> None:
        pending.clear()
        handler()

    def receive(_signal: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if pending and now - pending[0] > BLOCKED_AFTER_S:
            raise KeyboardInterrupt
        pending.append(now)
        loop.call_soon_threadsafe(handle)

    previous = {name: signal.signal(name, receive) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handled in previous.items():
            signal.signal(name, handled)
