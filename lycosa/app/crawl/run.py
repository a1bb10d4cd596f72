"""Run a crawl."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from lycosa.app import NOTICES
from lycosa.app.crawl.crawl_run import CrawlRun, Observer
from lycosa.app.crawl.frontier import expire_finished, open_frontier
from lycosa.app.crawl.parts import indexer_of, sinks_of, state_of
from lycosa.app.crawl.spec import Crawlable, CrawlSpec, crawl_spec
from lycosa.app.crawl.wiring import open_run
from lycosa.app.crawl.workers import refuse_processes, run_process
from lycosa.app.fast_shutdown import fast_shutdown, lost_by_fast_shutdown
from lycosa.app.imports import import_class
from lycosa.app.index_places import IndexPlace, index_place
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

Result = TypeVar("Result")

REJOINS_MAX = 100
"""Maximum number of times that a worker rejoins a shared crawl after the others have removed it."""


@public
def run_crawl(
    settings: Settings | Sequence[Settings],
    target: Crawlable,
    *,
    spider_args: Mapping[str, str] | None = None,
    observe: Observer | None = None,
) -> Summary:
    """Crawl start URLs, a spider class or several classes. Return when the crawl is finished or interrupted.

    Several classes share one crawl. `settings` applies to all classes, or is a list with the settings of each class;
    settings of the whole crawl must be the same in all. SIGINT and SIGTERM interrupt the crawl. Raises `LycosaError`.
    Committed work is kept, and the same call resumes the crawl."""
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        raise UsageError("run_crawl blocks and cannot be called in a running event loop: await Crawl(...).run()")
    return run_process(run_worker(crawl_spec(settings, target, spider_args), observe))


async def run_worker(spec: CrawlSpec, observe: Observer | None = None) -> Summary:
    """Crawl. Rejoin a shared crawl if the other workers remove this one."""
    summary = await rejoin_when_lost(lambda rejoins: crawl(spec, observe, rejoins=rejoins))
    await expire_finished(spec, finished=summary.finished)
    return summary


async def rejoin_when_lost(work: Callable[[bool], Awaitable[Result]]) -> Result:
    """Call `work(False)`; each time the other workers have removed this one, call `work(True)`."""
    for attempt in range(REJOINS_MAX):
        try:
            return await work(attempt > 0)
        except WorkerLost as lost:
            log.warning("%s; this worker rejoins", lost)
    return await work(True)


async def crawl(spec: CrawlSpec, observe: Observer | None = None, *, rejoins: bool = False) -> Summary:
    """Crawl on the running event loop. `rejoins`: the other workers have removed this one.

    After the second interrupt the crawl no longer waits for servers, and reports what is lost.
    """
    with fast_shutdown(lost_by_fast_shutdown(spec.settings)) as deadline:
        try:
            return await _crawl(spec, observe, deadline, rejoins=rejoins)
        except StateError:
            if not deadline.abandoned:
                raise
            raise KeyboardInterrupt from None


async def _crawl(spec: CrawlSpec, observe: Observer | None, deadline: ShutdownDeadline, *, rejoins: bool) -> Summary:
    settings = spec.settings
    refuse_processes(spec)
    async with AsyncExitStack() as stack:
        state = StateDir(state_of(settings, spec.target))
        stack.callback(state.close)
        if settings.overwrite and settings.frontier:
            raise UsageError("-O cannot start a shared crawl afresh: give another --crawl-name, --state and -o")
        if settings.overwrite:  # check everything that can fail before the state is deleted
            _check_classes(spec)
            await _start_afresh(settings, state)
        if settings.frontier:
            await _check_outputs(settings, state)
        opened = await open_frontier(stack, spec, state, rejoins=rejoins)
        sinks = sinks_of(settings, state.items, spec.target.name)
        run = await stack.enter_async_context(open_run(spec, state, opened, sinks))
        run.on_fast_shutdown = deadline.start
        opened.set_reporter(run.reporter)
        await stack.enter_async_context(serve(state.socket, run.operations))  # for `lycosa frontier` and `top`
        if settings.metrics:
            page = serve_metrics(settings.metrics, partial(_metrics, run), allow_remote=settings.allow_remote)
            metrics_url = await stack.enter_async_context(page)
            logging.getLogger(NOTICES).info("metrics: %s", metrics_url)
        await run.start_seeding()
        with run.no_rejoin_after_interrupt():
            has_run = await run.run(observe)
            try:
                async with run.shutdown_deadline():
                    summary = await run.summary(nothing_to_do=not has_run)
                    return replace(summary, shared=await opened.totals(run.reporter))
            except TimeoutError:  # after the second interrupt: the summary is not available
                raise KeyboardInterrupt from None


async def _check_outputs(settings: Settings, state: StateDir) -> None:
    """Check outputs and index before the worker joins the crawl. Raises `LycosaError`."""
    for sink in sinks_of(settings, state.items, state.description.name):
        await sink.check()
    if settings.index:
        from lycosa.app.search import open_index  # slow to import, and seldom needed

        open_index(index_place(settings.index), write=True).close()


async def _metrics(run: CrawlRun) -> bytes:
    return exposition(metrics_of(await run.view()))


def _check_classes(crawl: CrawlSpec) -> None:
    """Import the classes that the settings name, so that an error is found before the state is deleted.

    Raises `BadSetting`.
    """
    for spec in crawl.spiders:
        for name in ("pipelines", "downloader_middlewares", "spider_middlewares", "extensions"):
            for part, order in getattr(spec.settings, name).items():
                if isinstance(part, str) and ":" in part and order is not None:
                    import_class(name, part)


async def _start_afresh(settings: Settings, state: StateDir) -> None:
    """Delete the state of the crawl, after checking that its output and its index can be written.

    The state is deleted last. If the process is killed after it has truncated the output, the next run refuses the old
    state, because the output is too short for it. So new items are never appended to old ones.
    """
    for sink in sinks_of(settings, state.items, state.description.name):
        await sink.check()
    if settings.index:
        _forget_indexed(settings, state, index_place(settings.index))
    for sink in sinks_of(settings, state.items, state.description.name):
        await sink.open(0)
        await sink.close()
    state.clear()


def _forget_indexed(settings: Settings, state: StateDir, place: IndexPlace) -> None:
    """Have the index read the items file from its start. Empty the index if it has no other source."""
    from lycosa.app.search import erase_index, open_index  # slow to import, and seldom needed

    with closing(open_index(place, write=True)) as index:
        source = indexer_of(settings, state.items, index).source
        is_only_source = set(index.positions()) <= {source}
        index.commit({source: 0})
    if is_only_source:
        erase_index(place)
