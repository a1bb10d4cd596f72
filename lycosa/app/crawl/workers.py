"""The worker processes of a crawl (`--processes N`).

This process is the owner: it has the frontier, the outputs and the index, and it commits. The workers fetch and parse
pages (`app.crawl.worker_main`). A socket pair connects each worker to the owner; a worker exits when the owner does.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import uvloop

from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.runtime import CrawlContext
from lycosa.app.crawl.spec import Crawlable, CrawlSpec
from lycosa.config import Settings
from lycosa.core.errors import BadSetting, StateError
from lycosa.crawl.engine.close_conditions import resident_bytes
from lycosa.crawl.engine.engine import Engine
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.fetching.addresses import HostAddresses
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.spiders.spider import Spider
from lycosa.crawl.workers.messages import CloseCrawlRequest, HostFactsInvalidated
from lycosa.crawl.workers.remote import CookieBroadcast
from lycosa.crawl.workers.request_pacer import StartInterval
from lycosa.crawl.workers.worker import CrawlParts, WorkerHandle
from lycosa.crawl.workers.worker_pool import WorkerPool
from lycosa.frontier.core.model import HostFacts, Lease
from lycosa.frontier.state_dir import StateDir

log = logging.getLogger(__name__)

RESTARTS_MAX = 3
"""Maximum restarts in a row of a worker that dies before it has visited a page. Then the crawl fails."""

RESTART_DELAY_S = 0.1
"""The n-th restart in a row waits this many seconds times 2**n."""

END_TIMEOUT_S = 5.0
"""Maximum seconds for a worker to exit after it has closed its socket, and for all workers to exit after a failed
crawl."""

GC_THRESHOLD = 20_000
"""Number of newly allocated objects after which the garbage collector looks for cycles."""

Result = TypeVar("Result")

CODE = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from lycosa.app.crawl.worker_main import main; main(*map(int, sys.argv[1:3]))"
)


def run_process(main: Coroutine[Any, Any, Result]) -> Result:
    """Run the main coroutine of a crawl's process on uvloop, with fewer garbage collections."""
    gc.freeze()  # the imported modules need no collection
    # Pages leave hardly any cyclic garbage: collecting less often saves a tenth of the time.
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


class ModuleFile(NamedTuple):
    """A module that cannot be imported by name, and its file."""

    name: str
    file: str


class WorkerTask(NamedTuple):
    """What a new worker needs to build the crawl. `run_at` is the start time of the run (unix seconds)."""

    settings: Sequence[Settings]
    crawlable: Crawlable
    arguments: dict[str, str]
    seeds: Sequence[str]
    segment: str
    state: str
    log_level: int
    run_at: float = 0.0


class WorkerProcesses:
    """The worker processes of one crawl. The engine calls `visit` of this object. `save` flushes the key store."""

    def __init__(self, task: WorkerTask, crawl: CrawlParts, save: Callable[[], Awaitable[None]]) -> None:
        self._task = task
        self._count = task.settings[0].processes
        self._save = save
        self._crawl = crawl
        self._running: set[subprocess.Popen[bytes]] = set()
        self._supervisors: list[asyncio.Task[None]] = []
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine: Engine | None = None
        self._is_ending = False
        self.pool = WorkerPool(crawl, self._fail)

    def set_engine(self, engine: Engine) -> None:
        self._engine = engine
        self._crawl.engine = engine

    async def start(self, segment: str, run_at: float) -> None:
        """Start the workers, and wait until all are ready. Raises the error of a worker."""
        self._task = self._task._replace(segment=segment, run_at=run_at)
        self._supervisors = [asyncio.create_task(self._supervise()) for _ in range(self._count)]
        ready = asyncio.create_task(self.pool.wait_ready(self._count))
        try:
            await asyncio.wait({ready, self._failure}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._failure.done():
            self._failure.result()

    async def visit(self, lease: Lease) -> Outcome:
        return await self.pool.visit(lease)

    def memory_bytes(self) -> int:
        return resident_bytes() + self.pool.memory_bytes

    async def end(self, reason: str) -> None:
        """End the workers after the crawl has ended, and wait until they have closed what they opened."""
        self._is_ending = True
        self.pool.broadcast(CloseCrawlRequest(reason, self._engine is not None and self._engine.fast_shutdown))
        await asyncio.gather(*self._supervisors)
        if self._failure.done():
            self._failure.result()

    async def fail(self, reason: str) -> None:
        """End the workers of a failed crawl. They have END_TIMEOUT_S to close what they opened."""
        with suppress(Exception):  # the caller raises the error that made the crawl fail
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.end(reason)

    async def close(self) -> None:
        """Kill the workers that are still running."""
        self._is_ending = True
        for process in self._running:
            process.kill()
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)
        if self._failure.done():
            self._failure.exception()  # marks the exception as retrieved: it was raised before, or it came too late

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)
        if self._engine is not None:
            self._engine.fail(error)

    async def _supervise(self) -> None:
        """Run one worker, and restart it when it dies, until the crawl ends."""
        failed_starts = 0
        try:
            while True:
                await self._save()  # the new worker reads the key store from the disk
                if self._is_over():  # a worker started now would never receive the message that closes the crawl
                    return
                worker, code = await self._run_worker()
                if self._is_over():
                    return
                failed_starts = 0 if worker.has_finished_visit else failed_starts + 1
                death = f"a process of the crawl died ({_describe_exit(code)})"
                if failed_starts > RESTARTS_MAX:
                    break
                log.warning("%s: its pages are fetched again, and another process starts", death)
                if failed_starts:  # a worker that visited pages is replaced at once
                    await asyncio.sleep(RESTART_DELAY_S * 2**failed_starts)
            self._fail(StateError(f"{death}, {failed_starts} times in a row, before it visited a page"))
        except Exception as error:  # noqa: BLE001  it ends the crawl
            self._fail(error)

    def _is_over(self) -> bool:
        return self._is_ending or self._failure.done()

    async def _run_worker(self) -> tuple[WorkerHandle, int]:
        """Run a worker until it exits. Return the worker and its exit code."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = _start_process(theirs.fileno())
        worker = self.pool.add(process.kill)
        try:
            worker.connection.send_frame(_pickle_task(self._task))
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: worker.connection, sock=ours)
            self._running.add(process)
            await worker.disconnected.wait()
            code = await asyncio.to_thread(_wait_for_exit, process)
            if self._is_ending and code:
                log.warning("a process of the crawl died before it had closed everything (%s)", _describe_exit(code))
            return worker, code
        finally:
            process.kill()  # if this task was cancelled; does nothing to a process that has exited
            process.wait()
            self._running.discard(process)


class HostFactsBroadcast:
    """Notifies all workers of new facts about a host."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def apply(self, host: str, facts: HostFacts) -> float:
        self._pool.broadcast(HostFactsInvalidated(host))
        return 0.0


def open_workers(
    stack: AsyncExitStack,
    crawl: CrawlSpec,
    state: StateDir,
    seeds: Sequence[str],
    opened: OpenFrontier,
    addresses: HostAddresses,
    context: CrawlContext,
    gates: Sequence[RobotsGate],
    cookies: CookieBroadcast,
) -> WorkerProcesses:
    """Return the worker processes of a crawl. The stack ends them. Call `set_engine` before they start.

    `cookies` must be `context.shared_cookies`.
    """
    clock, store, stats = context.clock, context.state_saver.store, crawl.target.crawler.stats

    async def remember_facts(host: str, facts: HostFacts) -> None:
        await gates[0].store(host, facts, clock.now())

    def intervals(host: str) -> list[StartInterval]:
        return [StartInterval(*each) for each in opened.delays(host)]

    parts = CrawlParts(
        opened.frontier, addresses, clock, context.stats, stats, store, intervals, remember_facts, cookies
    )
    workers = WorkerProcesses(make_task(crawl, state.path, seeds), parts, context.state_saver.save)
    stack.push_async_callback(workers.close)
    for gate in gates:
        gate.peers = [*gate.peers, HostFactsBroadcast(workers.pool)]
    return workers


def make_task(crawl: CrawlSpec, state: Path, seeds: Sequence[str] = ()) -> WorkerTask:
    """Return the task for the workers; `WorkerProcesses.start` sets its segment."""
    settings = [each.settings for each in crawl.spiders]
    crawlable: Any = crawl.crawlable
    crawlable = list(crawlable) if isinstance(crawlable, (list, tuple)) else crawlable
    level = logging.getLogger().getEffectiveLevel()
    return WorkerTask(settings, crawlable, dict(crawl.arguments), list(seeds), "", str(state.absolute()), level)


def refuse_processes(crawl: CrawlSpec) -> None:
    """Raise `BadSetting` if several processes are set and the crawl cannot use them."""
    if crawl.settings.processes == 1:
        return
    if crawl.settings.frontier:
        raise BadSetting("--processes and --frontier exclude each other: start several workers with that frontier")
    for spider in _classes(crawl.crawlable):
        if spider.__module__ == "__main__":
            raise BadSetting(
                f"processes: the spider {spider.__name__} is defined in the main program, so other processes"
                " cannot import it: put it into a separate file"
            )
    if not isinstance(crawl.crawlable, (type, list, tuple)):
        raise BadSetting("processes: a spider object cannot be passed to other processes: give its class")
    try:
        _pickle_task(make_task(crawl, Path()))
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
        raise BadSetting(f"processes: these settings cannot be passed to other processes ({problem:.200})") from error


def _pickle_task(task: WorkerTask) -> bytes:
    # Pickled twice: the worker has to import the modules before it can load the task.
    return pickle.dumps((_module_files(task.crawlable), pickle.dumps(task)))


def _classes(crawlable: Crawlable) -> list[type[Spider]]:
    candidates = crawlable if isinstance(crawlable, (list, tuple)) else [crawlable]
    return [each for each in candidates if isinstance(each, type)]


def _module_files(crawlable: Crawlable) -> list[ModuleFile]:
    """Return the spider modules that cannot be imported by name, such as the file of `lycosa runspider`."""
    names = dict.fromkeys(spider.__module__ for spider in _classes(crawlable))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return [
        ModuleFile(name, file)
        for name, file in files.items()
        if file and PathFinder.find_spec(name.partition(".")[0]) is None
    ]


def _start_process(handle: int) -> subprocess.Popen[bytes]:
    """Start a worker with its end of the socket pair. Its own process group keeps Ctrl-C away from it."""
    command = [sys.executable, "-P", "-c", CODE, str(handle), str(os.getpid()), *sys.path]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[handle], process_group=0)  # noqa: S603  ours


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _describe_exit(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
