"""A worker process of a crawl: started by the owner of the crawl (`app.crawl.workers`), and ended with it.

It reads a `WorkerTask` from its socket, builds the parts that visit pages as a crawl of one process does, but remote
ones where the owner has the real ones (`crawl.workers.remote`), and visits pages until the owner closes the crawl.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import inspect
import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import NamedTuple

import uvloop

from lycosa.app.crawl.parts import sinks_of
from lycosa.app.crawl.runtime import (
    Site,
    cast_of,
    downloader_of,
    extras_of,
    inline_of,
    leaser_for,
    spider_chain_of,
    visitor_among,
    visitor_of,
)
from lycosa.app.crawl.spec import Crew, Member, crew_of
from lycosa.app.crawl.workers import ModuleFile, WorkerTask
from lycosa.app.fast_shutdown import hurrying, lost_of
from lycosa.core.errors import LycosaError
from lycosa.crawl.diagnostics.bug_log import WorkerBugLog
from lycosa.crawl.diagnostics.watchdog import Watchdog
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.state_saver import StateSaver
from lycosa.crawl.engine.visit import Visitor
from lycosa.crawl.events.signals import engine_started, engine_stopped, spider_closed, spider_opened
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.guard import is_guarded
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher
from lycosa.crawl.spiders.spider import wrap_user_errors
from lycosa.crawl.workers.counts import SharedStats, WorkerCounts
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
"""prctl(2)."""

GC_THRESHOLD = 20_000


def main(handle: int, owner: int) -> None:
    """Visit pages for the process `owner`, which started this one; `handle` is the socket to it."""
    _die_with(owner)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the owner, who ends the workers
    sock = socket.socket(fileno=handle)
    try:
        task = _read_task(sock)
    except Exception as error:  # noqa: BLE001  the owner reports it
        kind = type(error).__name__ if isinstance(error, LycosaError) else "BadSpider"
        text = f"another process cannot load the spider: {type(error).__name__}: {error}"
        sock.sendall(encode_frame(WorkerFailed(kind, text)))
        sys.exit(1)
    gc.freeze()  # the imported modules need no collection
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(sock, task))


class ItemsFolder(NamedTuple):
    """The part of a state folder that sinks look at. The owner has locked it; this process only reads it."""

    items: Path


class WorkerProcess:
    """What this process has for all of its spiders."""

    def __init__(self, task: WorkerTask) -> None:
        self.task = task
        self.clock = Clock()
        self.stats = RunStats(self.clock.now(), bugs=WorkerBugLog())
        self.collector = SharedStats()
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
            os._exit(1)  # the owner died: the next run repeats what was under way
        self.disconnected.set()

    def contained(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were certainly pushed before, and count them."""
        found = self.known.contained(segment, fingerprints)
        self.stats.known_links += len(found)
        return found


async def _serve(sock: socket.socket, task: WorkerTask) -> None:
    process = WorkerProcess(task)
    await asyncio.get_running_loop().create_unix_connection(lambda: process.connection, sock=sock)
    logging.basicConfig(level=task.log_level, handlers=[RemoteLogHandler(process.connection.send)], force=True)
    try:
        await _visit_pages(process)
    except Exception as error:  # noqa: BLE001  the owner ends the crawl, and reports it
        process.visits.fail(error)
    process.is_closing = True
    await asyncio.sleep(0)  # log handlers pass on their last lines in this iteration
    process.connection.close()
    await process.disconnected.wait()


async def _visit_pages(process: WorkerProcess) -> None:
    crew = crew_of(process.task.settings, process.task.crawled, process.task.arguments, process.collector)
    counts = WorkerCounts(process.collector, process.stats)
    async with AsyncExitStack() as stack:
        deadline = stack.enter_context(hurrying(lost_of(crew.settings)))
        await stack.enter_async_context(Watchdog(crew.settings.slow_callback_after))
        begin = await _build(stack, process, crew, counts)
        for member in crew.members:
            await member.target.crawler.signals.send(engine_started)
            await member.target.crawler.signals.send(spider_opened, spider=member.spider)
        begin()
        process.connection.send(WorkerReady())
        states = [_state_of(member) for member in crew.members]
        close = await process.visits.closing
        if close.fast:
            deadline.start()
        await process.visits.end()
        for member, state in zip(crew.members, states, strict=True):
            await _close_spider(member, close.reason)
            if _state_of(member) != state:
                log.warning(
                    "%s.state was changed by callbacks: with several processes it is not kept", member.spider.name
                )
    for member in crew.members:
        await member.target.crawler.signals.send(engine_stopped)
        await member.target.crawler.signals.settle()
    process.visits.report_counts()


async def _build(stack: AsyncExitStack, process: WorkerProcess, crew: Crew, counts: WorkerCounts) -> Callable[[], None]:
    """Build what visits pages. Return a function that starts the visits."""
    frontier, clock = process.frontier, process.clock
    site = _site(process, crew, await leaser_for(stack, crew.settings, clock))
    stack.push_async_callback(site.state_saver.close)
    visitors: dict[str, Visitor] = {}
    gates: list[RobotsGate] = []
    for member in crew.members:
        cast = await cast_of(stack, member, frontier, process.addresses, process.task.seeds, site)
        downloader = downloader_of(cast, site)
        inline_of(cast, frontier, downloader, clock, process.addresses)
        pipelines = await extras_of(stack, cast, None)
        visitors[member.target.naming.spider] = visitor_of(cast, site, downloader, spider_chain_of(cast), pipelines)
        gates.append(cast.gate)
        cast.crawler.set_stop(lambda reason: process.connection.send(CloseCrawlRequest(reason)))
        cast.crawler.push = partial(_push, process, member)
    return partial(process.visits.begin, visitor_among(visitors), gates, counts)


def _site(process: WorkerProcess, crew: Crew, leaser: ProxyLeaser | None) -> Site:
    frontier, clock, state = process.frontier, process.clock, Path(process.task.state)
    sinks = sinks_of(crew.settings, ItemsFolder(state / "items.jsonl"), crew.target.name)
    records = SqliteKeyStore(state / "records.sqlite", read_only=True)
    return Site(
        known=process.contained,
        prepare=lambda item: [sink.prepare(item) for sink in sinks],
        stats=process.stats,
        state_saver=StateSaver(RemoteStore(records, process.connection.send)),
        clock=clock,
        rest=frontier.block_host,
        set_delay=lambda host, delay_s: frontier.set_delay(host, delay_s, clock.now()),
        state=str(state.resolve()),
        shared_cookies=process.cookies,
        leaser=leaser,
        report_starts=lambda fetcher: OwnerReportingFetcher(fetcher, frontier),
    )


async def _push(process: WorkerProcess, member: Member, request: Request) -> bool:
    naming, segment = member.target.naming, process.task.segment
    record = to_record(request, member.spider, naming=naming, segment=segment, guarded=is_guarded())
    return await process.frontier.push([record]) > 0


def _state_of(member: Member) -> str:
    return repr(getattr(member.spider, "state", None))


async def _close_spider(member: Member, reason: str) -> None:
    """Call `closed` of a spider, and send its signal."""
    with wrap_user_errors(f"{type(member.spider).__name__}.closed"):
        closing = member.spider.closed(reason)
        if inspect.isawaitable(closing):
            await closing
    await member.target.crawler.signals.send(spider_closed, spider=member.spider, reason=reason)


def _read_task(sock: socket.socket) -> WorkerTask:
    """Read the task. Raises whatever the user's modules raise."""
    (size,) = LENGTH.unpack(_read(sock, LENGTH.size))
    modules, pickled = pickle.loads(_read(sock, size))  # noqa: S301  from the owner
    for module in modules:
        _import(module)
    task: WorkerTask = pickle.loads(pickled)  # noqa: S301
    return task


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            os._exit(1)  # the owner died
        data += part
    return bytes(data)


def _import(module: ModuleFile) -> None:
    spec = spec_from_file_location(module.name, module.file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module.name] = made = module_from_spec(spec)
    spec.loader.exec_module(made)


def _die_with(owner: int) -> None:
    """Have this process killed when the owner dies, even in the middle of a call that never ends."""
    with suppress(OSError, AttributeError):  # other systems than Linux: only the closed socket ends the process
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:  # it died before prctl
        os._exit(1)
