"""One of the processes that visit the pages of a crawl: started by their owner (`app.crawl.workers`), and gone with it.

Reads a `Task` from its socket, wires the same parts as a crawl of one process does, with what its owner has in their
place (`crawl.workers.remote`), and does what it is told until it is told to close.
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
    lender_for,
    spider_chain_of,
    visitor_among,
    visitor_of,
)
from lycosa.app.crawl.spec import Crew, Member, crew_of
from lycosa.app.crawl.workers import Module, Task
from lycosa.app.fast_shutdown import hurrying, lost_of
from lycosa.core.errors import LycosaError
from lycosa.crawl.diagnostics.watchdog import Watchdog
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.engine.state_saver import Keeping
from lycosa.crawl.engine.visit import Visitor
from lycosa.crawl.events.signals import engine_started, engine_stopped, spider_closed, spider_opened
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.fetching.guard import is_guarded
from lycosa.crawl.fetching.proxying.leaser import Lender
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher
from lycosa.crawl.spiders.spider import users_code
from lycosa.crawl.workers.counts import Counts, SharedStats
from lycosa.crawl.workers.link import Link
from lycosa.crawl.workers.messages import LENGTH, Broken, Close, Message, Ready, decode_order, encoded
from lycosa.crawl.workers.remote import AllCookies, FarAddresses, FarFrontier, FarLog, FarStore
from lycosa.crawl.workers.visits import Visits
from lycosa.frontier.core.recent_fingerprints import Known
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from lycosa.storage.keystore.sqlite import SqliteRecords

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
"""prctl(2)."""

GC_THRESHOLD = 20_000


def main(handle: int, owner: int) -> None:
    """Visit pages for the process that started this one, at the other end of the socket `handle`."""
    _die_with(owner)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    plug = socket.socket(fileno=handle)
    try:
        task = _task(plug)
    except Exception as error:  # noqa: BLE001  its owner tells the user
        kind = type(error).__name__ if isinstance(error, LycosaError) else "BadSpider"
        plug.sendall(encoded(Broken(kind, f"another process cannot load the spider: {type(error).__name__}: {error}")))
        sys.exit(1)
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(plug, task))


class Folder(NamedTuple):
    """The part of a state that sinks look at, unlocked."""

    items: Path


class Process:
    """What one process has."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.clock = Clock()
        self.stats = RunStats(self.clock.now())
        self.collector = SharedStats()
        self.known = Known()
        self.frontier = FarFrontier(self.send, self.flush)
        self.cookies = AllCookies(self.send)
        self.addresses = FarAddresses()
        self.visits = Visits(self.frontier, self.addresses, self.known, self.stats)
        self.link = Link(decode_order, self.visits.hear, self._gone)
        self.visits.link = self.link
        self.over = asyncio.Event()
        self.closing = False

    def send(self, message: Message) -> None:
        """Say something to the owner."""
        self.link.send(message)

    def flush(self) -> None:
        """Send what was said, now."""
        self.link.flush()

    def _gone(self) -> None:
        if not self.closing:
            os._exit(1)  # the owner died: what was under way is done again by the next run
        self.over.set()

    def among(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that are known, and count them."""
        found = self.known.among(segment, fingerprints)
        self.stats.known += len(found)
        return found


async def _serve(plug: socket.socket, task: Task) -> None:
    process = Process(task)
    await asyncio.get_running_loop().create_unix_connection(lambda: process.link, sock=plug)
    logging.basicConfig(level=task.log_level, handlers=[FarLog(process.send)], force=True)
    try:
        await _visit(process)
    except Exception as error:  # noqa: BLE001  the owner ends the crawl, and tells why
        process.visits.broke(error)
    process.closing = True
    await asyncio.sleep(0)  # what was logged last
    process.link.finish()
    await process.over.wait()


async def _visit(process: Process) -> None:
    crew = crew_of(process.task.settings, process.task.crawled, process.task.arguments, process.collector)
    counts = Counts(process.collector, process.stats)
    async with AsyncExitStack() as stack:
        patient = stack.enter_context(hurrying(lost_of(crew.settings)))
        await stack.enter_async_context(Watchdog(crew.settings.blocked_after))
        begin = await _wired(stack, process, crew, counts)
        for member in crew.members:
            await member.target.crawler.signals.send(engine_started)
            await member.target.crawler.signals.send(spider_opened, spider=member.spider)
        begin()
        process.send(Ready())
        states = [_packed(member) for member in crew.members]
        close = await process.visits.closing
        if close.at_once:
            patient.hurry()
        await process.visits.end()
        for member, state in zip(crew.members, states, strict=True):
            await _tell(member, close.reason)
            if _packed(member) != state:
                log.warning(
                    "%s.state was changed by callbacks: with several processes it is not kept", member.spider.name
                )
    for member in crew.members:
        await member.target.crawler.signals.send(engine_stopped)
        await member.target.crawler.signals.settle()
    process.visits.count()


async def _wired(stack: AsyncExitStack, process: Process, crew: Crew, counts: Counts) -> Callable[[], None]:
    """Wire what visits pages. Return what lets the visits begin."""
    frontier, clock = process.frontier, process.clock
    site = _site(process, crew, await lender_for(stack, crew.settings, clock))
    stack.push_async_callback(site.keeping.close)
    visitors: dict[str, Visitor] = {}
    gates: list[RobotsGate] = []
    for member in crew.members:
        cast = await cast_of(stack, member, frontier, process.addresses, process.task.seeds, site)
        downloader = downloader_of(cast, site)
        inline_of(cast, frontier, downloader, clock, process.addresses)
        pipelines = await extras_of(stack, cast, None)
        visitors[member.target.naming.spider] = visitor_of(cast, site, downloader, spider_chain_of(cast), pipelines)
        gates.append(cast.gate)
        cast.crawler.stops_with(lambda reason: process.send(Close(reason)))
        cast.crawler.push = partial(_push, process, member)
    return partial(process.visits.begin, visitor_among(visitors), gates, process.cookies, counts)


def _site(process: Process, crew: Crew, lender: Lender | None) -> Site:
    frontier, clock, state = process.frontier, process.clock, Path(process.task.state)
    sinks = sinks_of(crew.settings, Folder(state / "items.jsonl"), crew.target.name)
    records = SqliteRecords(state / "records.sqlite", read_only=True)
    return Site(
        known=process.among,
        prepare=lambda item: [sink.prepare(item) for sink in sinks],
        stats=process.stats,
        keeping=Keeping(FarStore(records, process.send)),
        clock=clock,
        rest=frontier.block_host,
        set_delay=lambda host, delay_s: frontier.set_delay(host, delay_s, clock.now()),
        state=str(state.resolve()),
        shared_cookies=process.cookies,
        lender=lender,
        report_starts=lambda fetcher: OwnerReportingFetcher(fetcher, frontier),
    )


async def _push(process: Process, member: Member, request: Request) -> bool:
    naming, segment = member.target.naming, process.task.segment
    record = to_record(request, member.spider, naming=naming, segment=segment, guarded=is_guarded())
    return await process.frontier.push([record]) > 0


def _packed(member: Member) -> str:
    return repr(getattr(member.spider, "state", None))


async def _tell(member: Member, reason: str) -> None:
    """Tell a spider how it ended."""
    with users_code(f"{type(member.spider).__name__}.closed"):
        told = member.spider.closed(reason)
        if inspect.isawaitable(told):
            await told
    await member.target.crawler.signals.send(spider_closed, spider=member.spider, reason=reason)


def _task(plug: socket.socket) -> Task:
    """Read the task. Raises whatever the user's modules raise."""
    (size,) = LENGTH.unpack(_read(plug, LENGTH.size))
    modules, task = pickle.loads(_read(plug, size))  # noqa: S301  of our owner
    for module in modules:
        _load(module)
    loaded: Task = pickle.loads(task)  # noqa: S301
    return loaded


def _read(plug: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = plug.recv(size - len(data))
        if not part:
            os._exit(1)
        data += part
    return bytes(data)


def _load(module: Module) -> None:
    spec = spec_from_file_location(module.name, module.file)
    assert spec is not None
    assert spec.loader is not None
    sys.modules[module.name] = made = module_from_spec(spec)
    spec.loader.exec_module(made)


def _die_with(owner: int) -> None:
    """Be killed when the owner dies, also within a call that never ends."""
    with suppress(OSError, AttributeError):  # elsewhere the end of the socket must do
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
