"""A worker process of a crawl, which the owner of the crawl starts (`app.crawl.workers`).

The worker reads a `WorkerTask` from its socket, and builds the same parts as a crawl of one process. Parts that only
the owner has, such as the frontier, are replaced by objects that call the owner (`crawl.workers.remote`). The worker
visits pages until the owner closes the crawl, and exits when the owner does.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from lycosa.app import ENABLED
from lycosa.app.crawl.parts import sinks_of
from lycosa.app.crawl.runtime import (
    CrawlContext,
    combine_visitors,
    make_downloader,
    make_inline_fetcher,
    open_leaser,
    open_runtime,
    open_visitor,
    spider_chain_of,
)
from lycosa.app.crawl.spec import CrawlSpec, SpiderSpec, crawl_spec
from lycosa.app.crawl.workers import ModuleFile, WorkerTask, run_process
from lycosa.app.fast_shutdown import fast_shutdown, lost_by_fast_shutdown
from lycosa.core.errors import LycosaError
from lycosa.crawl.diagnostics.bug_log import WorkerBugLog
from lycosa.crawl.diagnostics.watchdog import Watchdog
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.state_saver import StateSaver
from lycosa.crawl.engine.visit import Visitor
from lycosa.crawl.events.signals import engine_started, engine_stopped, spider_opened
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.guard import is_guarded
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher
from lycosa.crawl.workers.counts import WorkerCounts, WorkerStatsCollector
from lycosa.crawl.workers.messages import LIMITS, OWNER_METHODS, CloseCrawlRequest, WorkerFailed, WorkerReady
from lycosa.crawl.workers.remote import (
    CookieBroadcast,
    RemoteAddresses,
    RemoteFrontier,
    RemoteLogHandler,
    RemoteStore,
)
from lycosa.crawl.workers.visits import VisitRunner
from lycosa.frontier.core.recent_fingerprints import RecentFingerprints
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from lycosa.infra.rpc.connection import LENGTH, Connection, encode_frame
from lycosa.storage.keystore.sqlite import SqliteKeyStore

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
"""The option of prctl(2) that sends this process a signal when its parent dies."""


def main(handle: int, owner: int) -> None:
    """Visit pages for the process `owner`. `handle` is the descriptor of the socket to the owner."""
    _die_with_parent(owner)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the owner handles Ctrl-C and ends the workers
    sock = socket.socket(fileno=handle)
    try:
        task = _read_task(sock)
    except Exception as error:  # noqa: BLE001  the owner reports it
        kind = type(error).__name__ if isinstance(error, LycosaError) else "BadSpider"
        text = f"a worker process cannot load the spider: {type(error).__name__}: {error}"
        sock.sendall(encode_frame(WorkerFailed(kind, text)))
        sys.exit(1)
    run_process(_serve(sock, task))


class WorkerProcess:
    """The parts of this process that its spiders share."""

    def __init__(self, task: WorkerTask) -> None:
        self.task = task
        self.clock = Clock()
        self.stats = RunStats(self.clock.now(), bugs=WorkerBugLog())
        self.collector = WorkerStatsCollector()
        self.known = RecentFingerprints()
        self.connection = Connection(LIMITS, OWNER_METHODS, on_disconnect=self._on_disconnect)
        self.addresses = RemoteAddresses()
        self.frontier = RemoteFrontier(self.connection, self.addresses)
        self.cookies = CookieBroadcast(self.connection.send)
        self.visits = VisitRunner(self.connection, self.frontier, self.known, self.stats, self.cookies)
        self.disconnected = asyncio.Event()
        self.is_closing = False

    def _on_disconnect(self, reason: Exception | None) -> None:
        if not self.is_closing:
            os._exit(1)  # the owner died: the next run repeats the visits in progress
        self.disconnected.set()


async def _serve(sock: socket.socket, task: WorkerTask) -> None:
    process = WorkerProcess(task)
    await asyncio.get_running_loop().create_unix_connection(lambda: process.connection, sock=sock)
    logging.basicConfig(level=task.log_level, handlers=[RemoteLogHandler(process.connection.send)], force=True)
    logging.getLogger(ENABLED).setLevel(logging.WARNING)
    try:
        await _visit_pages(process)
    except Exception as error:  # noqa: BLE001  the owner ends the crawl and reports the error
        process.visits.fail(error)
    process.is_closing = True
    await asyncio.sleep(0)  # log handlers send their last lines in this iteration of the event loop
    process.connection.close()
    await process.disconnected.wait()


async def _visit_pages(process: WorkerProcess) -> None:
    crawl = crawl_spec(process.task.settings, process.task.crawlable, process.task.arguments, process.collector)
    counts = WorkerCounts(process.collector, process.stats)
    async with AsyncExitStack() as stack:
        deadline = stack.enter_context(fast_shutdown(lost_by_fast_shutdown(crawl.settings)))
        await stack.enter_async_context(Watchdog(crawl.settings.slow_callback_after))
        begin = await _build(stack, process, crawl, counts)
        await crawl.send(engine_started)
        await crawl.send(spider_opened, of_spider=True)
        begin()
        process.connection.send(WorkerReady())
        states = [_state_of(spec) for spec in crawl.spiders]
        close = await process.visits.closing
        if close.fast:
            deadline.start()
        await process.visits.end()
        await crawl.close_spiders(close.reason)
        for spec, state in zip(crawl.spiders, states, strict=True):
            if _state_of(spec) != state:
                name = spec.spider.name
                log.warning("%s.state was changed by callbacks: with several processes, it is not saved", name)
    await crawl.send(engine_stopped)
    await crawl.settle_signals()
    process.visits.report_counts()


async def _build(
    stack: AsyncExitStack, process: WorkerProcess, crawl: CrawlSpec, counts: WorkerCounts
) -> Callable[[], None]:
    """Return a function that starts the visits."""
    frontier, clock = process.frontier, process.clock
    context = _context(process, crawl, await open_leaser(stack, crawl.settings, clock))
    stack.push_async_callback(context.state_saver.close)
    visitors: dict[str, Visitor] = {}
    gates: list[RobotsGate] = []
    for spec in crawl.spiders:
        spec.target.naming.segments.begin_run(process.task.run_at)
        runtime = await open_runtime(stack, spec, frontier, process.addresses, process.task.seeds, context)
        downloader, chain = make_downloader(runtime, context), spider_chain_of(runtime)
        make_inline_fetcher(runtime, frontier, downloader, clock, process.addresses)
        visitors[spec.target.naming.spider] = await open_visitor(stack, runtime, context, downloader, chain)
        visitors[spec.target.naming.spider].on_transfer_end = frontier.end_transfer
        gates.append(runtime.gate)
        runtime.crawler.set_stop(lambda reason: process.connection.send(CloseCrawlRequest(reason)))
        runtime.crawler.push = partial(_push, process, spec)
    return partial(process.visits.begin, combine_visitors(visitors), gates, counts)


def _context(process: WorkerProcess, crawl: CrawlSpec, leaser: ProxyLeaser | None) -> CrawlContext:
    frontier, clock, state = process.frontier, process.clock, Path(process.task.state)
    records = SqliteKeyStore(state / "records.sqlite", read_only=True)
    return CrawlContext(
        known=process.known.contained,
        sinks=sinks_of(crawl.settings, state / "items.jsonl", crawl.target.name),  # to prepare items; never opened
        stats=process.stats,
        state_saver=StateSaver(RemoteStore(records, process.connection.send)),
        clock=clock,
        block_host=frontier.block_host,
        set_delay=lambda host, delay_s: frontier.set_delay(host, delay_s, clock.now()),
        state=str(state.resolve()),
        shared_cookies=process.cookies,
        leaser=leaser,
        report_starts=lambda fetcher: OwnerReportingFetcher(fetcher, frontier),
    )


async def _push(process: WorkerProcess, spec: SpiderSpec, request: Request) -> bool:
    naming, segment = spec.target.naming, process.task.segment
    record = to_record(request, spec.spider, naming=naming, segment=segment, guarded=is_guarded())
    return await process.frontier.push([record]) > 0


def _state_of(spec: SpiderSpec) -> str:
    return repr(getattr(spec.spider, "state", None))


def _read_task(sock: socket.socket) -> WorkerTask:
    """Raises whatever the user's modules raise."""
    (size,) = LENGTH.unpack(_read_exactly(sock, LENGTH.size))
    modules, pickled = pickle.loads(_read_exactly(sock, size))  # noqa: S301  from the owner
    for module in modules:
        _import_file(module)
    task: WorkerTask = pickle.loads(pickled)  # noqa: S301
    return task


def _read_exactly(sock: socket.socket, size: int) -> bytes:
    data = sock.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        os._exit(1)  # the owner died
    return data


def _import_file(module: ModuleFile) -> None:
    spec = spec_from_file_location(module.name, module.file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module.name] = loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)


def _die_with_parent(owner: int) -> None:
    """End this process when the owner dies, even in the middle of a call that never returns."""
    with suppress(OSError, AttributeError):  # not on Linux: only the closed socket ends the process
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # the owner died before prctl
        os._exit(1)
