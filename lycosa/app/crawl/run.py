"""One crawl, from settings to summary."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import uvloop

from lycosa.app.crawl.frontier import frontier_of
from lycosa.app.crawl.job import Job, Observer
from lycosa.app.crawl.parts import indexer_of, sinks_of, state_of
from lycosa.app.crawl.spec import Crawled, Crew, crew_of
from lycosa.app.crawl.wiring import wired
from lycosa.app.crawl.workers import refuse_processes
from lycosa.app.fast_shutdown import hurrying, lost_of
from lycosa.app.named import class_named
from lycosa.config import Settings
from lycosa.core.errors import StateError, UsageError, WorkerLost
from lycosa.core.metrics import exposition
from lycosa.core.public import public
from lycosa.crawl.events.stats import Summary
from lycosa.frontier.core.crawl_metrics import metrics_of
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import StateDir
from lycosa.infra.shutdown import ShutdownDeadline
from lycosa.infra.web.metrics_page import serve_metrics

log = logging.getLogger(__name__)
METRICS_LOG = "lycosa.metrics"
"""The logger of the address of the metrics. The command shows it whatever the level of the log."""

REJOINS_MAX = 100
"""A worker of a shared crawl that was given up takes part again so often."""

GC_THRESHOLD = 20_000
"""Objects made before the garbage collector looks for cycles."""


@public
def run_crawl(
    settings: Settings | Sequence[Settings],
    target: Crawled,
    *,
    spider_args: Mapping[str, str] | None = None,
    observe: Observer | None = None,
) -> Summary:
    """Crawl start URLs, or what a spider class says, or several at once, until done or interrupted.

    Several classes share one crawl; their settings, one for all or one each, must agree on what they share. SIGINT and
    SIGTERM interrupt. Blocks. Raises `LycosaError`; what was committed before stands, and the same call resumes it.
    """
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("run_crawl blocks, and a loop runs here: await Crawl(...).run()")
    # A crawl makes garbage by the page and hardly any of it in cycles: looking for them less often saves a tenth.
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(taking_part(crew_of(settings, target, spider_args), observe))


async def taking_part(crew: Crew, observe: Observer | None = None) -> Summary:
    """Crawl; a worker that others had to give up, since it was not heard for too long, begins anew."""
    for times in range(REJOINS_MAX):
        try:
            return await crawl(crew, observe, again=times > 0)
        except WorkerLost as lost:
            log.warning("%s; this one takes part again", lost)
    return await crawl(crew, observe, again=True)


async def crawl(crew: Crew, observe: Observer | None = None, *, again: bool = False) -> Summary:
    """Crawl on the running loop, `again` after others gave this worker up. See `run_crawl`.

    Who interrupts it twice waits for no server, and hears what one that is away has not heard.
    """
    with hurrying(lost_of(crew.settings)) as deadline:
        try:
            return await _crawl(crew, observe, deadline, again=again)
        except StateError:
            if not deadline.abandoned:
                raise
            raise KeyboardInterrupt from None


async def _crawl(crew: Crew, observe: Observer | None, deadline: ShutdownDeadline, *, again: bool) -> Summary:
    settings = crew.settings
    refuse_processes(crew)
    async with AsyncExitStack() as stack:
        state = StateDir(state_of(settings, crew.target))
        stack.callback(state.close)
        if settings.overwrite and settings.frontier:
            raise UsageError(
                "-O would start a crawl afresh that others share: give it another --crawl-name, --state and -o"
            )
        if settings.overwrite:
            _check(crew)
            await _start_afresh(settings, state)
        if settings.frontier:
            await _refuse_unusable(settings, state)
        opened = await frontier_of(stack, crew, state, again=again)
        sinks = sinks_of(settings, state, crew.target.name)
        job = await stack.enter_async_context(wired(crew, state, opened, sinks))
        job.hurry = deadline.start
        opened.set_reporter(job.reporter)
        await stack.enter_async_context(serve(state.socket, job.operations))
        if settings.metrics:
            metrics_url = await stack.enter_async_context(serve_metrics(settings.metrics, partial(_metrics, job)))
            logging.getLogger(METRICS_LOG).info("metrics: %s", metrics_url)
        await job.push_seeds()
        idle = await job.nothing_to_do()
        if idle:
            await job.end()
        else:
            await job.run(observe)
        try:
            async with job.shutdown_deadline():
                summary = await job.summary(nothing_to_do=idle)
                return replace(summary, shared=await opened.totals(job.reporter))
        except TimeoutError:  # of who was interrupted twice: how far the crawl is remains unknown
            raise KeyboardInterrupt from None


async def _refuse_unusable(settings: Settings, state: StateDir) -> None:
    """Raise `LycosaError` for an output or index that cannot be written to: whoever has none is not to join a crawl."""
    for sink in sinks_of(settings, state, state.description.name):
        await sink.check()
    if settings.index:
        from lycosa.app.search import open_index  # slow to import, and seldom needed

        open_index(Path(settings.index), write=True).close()


async def _metrics(job: Job) -> bytes:
    return exposition(metrics_of(await job.view()))


def _check(crew: Crew) -> None:
    """Look for mistakes that would be found later, when what the crawl has is gone. Raises `BadSetting`.

    Classes are looked up, not called: what a pipeline or middleware says when it is made comes too late for this.
    """
    for member in crew.members:
        for what in ("pipelines", "downloader_middlewares", "spider_middlewares", "extensions"):
            for part, order in getattr(member.settings, what).items():
                if isinstance(part, str) and ":" in part and order is not None:
                    class_named(what, part)


async def _start_afresh(settings: Settings, state: StateDir) -> None:
    """Forget the crawl, but only once it is certain that its output and its index can be written.

    In this order: killed in between, the next run refuses what it finds, and never puts new items beside old ones.
    """
    await _opened_and_closed(settings, state, None)
    if settings.index:
        _forget_indexed(settings, state, Path(settings.index))
    await _opened_and_closed(settings, state, 0)
    state.clear()


def _forget_indexed(settings: Settings, state: StateDir, folder: Path) -> None:
    """Read the items from their start again. An index of nothing else is emptied too; one of several crawls keeps pages
    that this crawl may not find any more."""
    from lycosa.app.search import erase_index, open_index  # slow to import, and seldom needed

    with closing(open_index(folder, write=True)) as index:
        source = indexer_of(settings, state, index).source
        alone = set(index.positions()) <= {source}
        index.commit({source: 0})
    if alone:
        erase_index(folder)


async def _opened_and_closed(settings: Settings, state: StateDir, position: int | None) -> None:
    for sink in sinks_of(settings, state, state.description.name):
        await sink.open(position)
        await sink.close()
