"""A crawl over several processes: starts them, starts again those that die, and ends them with the crawl.

This process, their owner, keeps frontier, outputs, index and commit; the others fetch and parse
(`app.crawl.worker_main`), each at the end of a socket that nobody else has. They end when their owner does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.app.crawl.runtime import Site
from lycosa.app.crawl.spec import Crawled, Crew
from lycosa.app.frontier.shared import OpenFrontier
from lycosa.config import Settings
from lycosa.core.errors import BadSetting, StateError
from lycosa.crawl.engine.close_conditions import resident_bytes
from lycosa.crawl.engine.engine import Engine
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.fetching.addresses import Addresses
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.spiders.spider import Spider
from lycosa.crawl.workers.link import Link
from lycosa.crawl.workers.messages import LENGTH, Close, Forget, Message, decode_report
from lycosa.crawl.workers.remote import AllCookies
from lycosa.crawl.workers.request_pacer import Pace
from lycosa.crawl.workers.worker import Hand, Owned
from lycosa.crawl.workers.worker_pool import Hands
from lycosa.frontier.core.model import HostFacts, Lease
from lycosa.frontier.state_dir import StateDir

log = logging.getLogger(__name__)

RESTARTS_MAX = 3
"""A process that dies so often in a row, before it has visited a page, ends the crawl."""

RESTART_AFTER_S = 0.1
"""The wait before the second restart in a row; it doubles with each one."""

END_MAX_S = 5.0
"""A process that has closed its socket is given so long to end, and all of them when the crawl has failed."""

CODE = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from lycosa.app.crawl.worker_main import main; main(*map(int, sys.argv[1:3]))"
)


class Module(NamedTuple):
    """A module that cannot be found by its name alone, and its file."""

    name: str
    file: str


class Task(NamedTuple):
    """What a process is told when it starts: all that makes a crew, and where the crawl is."""

    settings: Sequence[Settings]
    crawled: Crawled
    arguments: dict[str, str]
    seeds: Sequence[str]
    segment: str
    state: str
    log_level: int


class Processes:
    """The processes of one crawl; to its engine they are a visitor."""

    def __init__(self, task: Task, owned: Owned, keep: Callable[[], Awaitable[None]]) -> None:
        self._task = task
        self._count = task.settings[0].processes
        self._keep = keep
        self._hands = Hands(owned, self._broke)
        self._owned = owned
        self._running: set[subprocess.Popen[bytes]] = set()
        self._keepers: list[asyncio.Task[None]] = []
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._engine: Engine | None = None
        self._ending = False

    def begin(self, engine: Engine) -> None:
        """This engine runs the crawl."""
        self._engine = engine
        self._owned.engine = engine

    async def start(self, segment: str) -> None:
        """Start all of them; a run of this segment begins. Raises what one of them cannot start for."""
        self._task = self._task._replace(segment=segment)
        self._keepers = [asyncio.create_task(self._keep_up()) for _ in range(self._count)]
        ready = asyncio.create_task(self._hands.ready(self._count))
        try:
            await asyncio.wait({ready, self._broken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._broken.done():
            self._broken.result()

    def tell(self, message: Message) -> None:
        """Tell all of them something."""
        self._hands.tell(message)

    async def visit(self, lease: Lease) -> Outcome:
        """See `Visitor.visit`."""
        return await self._hands.visit(lease)

    def memory_bytes(self) -> int:
        """Return what all processes of the crawl hold."""
        return resident_bytes() + self._hands.memory_bytes

    async def end(self, reason: str) -> None:
        """The crawl is over: let them close what they opened, and wait for their end."""
        self._ending = True
        self._hands.tell(Close(reason, at_once=self._engine is not None and self._engine.hurries))
        await asyncio.gather(*self._keepers)
        if self._broken.done():
            self._broken.result()

    async def fail(self, reason: str) -> None:
        """The crawl cannot go on: let them close what they opened, for a moment."""
        with suppress(Exception):  # what came first is told
            async with asyncio.timeout(END_MAX_S):
                await self.end(reason)

    async def close(self) -> None:
        """End what is left of them at once."""
        self._ending = True
        for process in self._running:
            process.kill()
        for keeper in self._keepers:
            keeper.cancel()
        await asyncio.gather(*self._keepers, return_exceptions=True)
        if self._broken.done():
            self._broken.exception()  # it was told, or comes too late

    def _broke(self, error: BaseException) -> None:
        if not self._broken.done():
            self._broken.set_exception(error)
        if self._engine is not None:
            self._engine.fail(error)

    async def _keep_up(self) -> None:
        """Keep one process running."""
        useless = 0
        try:
            while useless <= RESTARTS_MAX:
                await self._keep()  # so that it can read what is kept
                if self._is_over():  # one that starts now would never hear of the end
                    return
                hand, code = await self._run()
                if self._is_over():
                    return
                useless = 0 if hand.useful else useless + 1
                how = f"a process of the crawl died ({_why(code)})"
                log.warning("%s: its pages are fetched again, and another one starts", how)
                if useless:
                    await asyncio.sleep(RESTART_AFTER_S * 2**useless)
            self._broke(StateError(f"{how}, {useless} times in a row, before it did anything"))
        except Exception as error:  # noqa: BLE001  it ends the crawl
            self._broke(error)

    def _is_over(self) -> bool:
        return self._ending or self._broken.done()

    async def _run(self) -> tuple[Hand, int]:
        """Start a process, and wait for its end. Return its exit code, too."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = _started(theirs.fileno())
        hand = self._hands.add(process.kill)
        try:
            hand.link = Link(decode_report, hand.hear, lambda: self._hands.went(hand))
            hand.link.send_bytes(_packed(self._task))
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: hand.link, sock=ours)
            self._running.add(process)
            await hand.gone.wait()
            code = await asyncio.to_thread(_end_of, process)
            if self._ending and code:
                log.warning("a process of the crawl died before it had closed all (%s)", _why(code))
            return hand, code
        finally:
            process.kill()
            process.wait()
            self._running.discard(process)


class Herald:
    """Tells all processes that something new is known of a host."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes

    def told(self, host: str, facts: HostFacts) -> float:
        """See `crawl.fetching.robots.Told`."""
        self._processes.tell(Forget(host))
        return 0.0


def processes_of(
    stack: AsyncExitStack,
    crew: Crew,
    state: StateDir,
    seeds: Sequence[str],
    opened: OpenFrontier,
    addresses: Addresses,
    site: Site,
    gates: Sequence[RobotsGate],
    cookies: AllCookies,
) -> Processes:
    """Return the processes of a crawl; `begin` tells them its engine, and the stack ends them.

    `cookies` are those of `site`, which reach all of them.
    """
    clock, store, stats = site.clock, site.keeping.store, crew.target.crawler.stats

    async def learned(host: str, facts: HostFacts) -> None:
        await gates[0].remember(host, facts, clock.now())

    def paces(host: str) -> list[Pace]:
        return [Pace(*each) for each in opened.delays(host)]

    frontier = opened.frontier
    owned = Owned(frontier, addresses, clock, site.stats, stats, store, paces, learned, cookies)
    processes = Processes(task_of(crew, state.path, seeds), owned, site.keeping.keep)
    stack.push_async_callback(processes.close)
    for gate in gates:
        gate.others = [*gate.others, Herald(processes)]
    return processes


def task_of(crew: Crew, state: Path, seeds: Sequence[str] = ()) -> Task:
    """Return what the processes of a crawl are told."""
    settings = [member.settings for member in crew.members]
    crawled: Any = crew.crawled
    crawled = list(crawled) if isinstance(crawled, (list, tuple)) else crawled
    level = logging.getLogger().getEffectiveLevel()
    return Task(settings, crawled, dict(crew.arguments), list(seeds), "", str(state.absolute()), level)


def refuse_processes(crew: Crew) -> None:
    """Raise `BadSetting` for a crawl that cannot have several processes."""
    if crew.settings.processes == 1:
        return
    if crew.settings.frontier:
        raise BadSetting("--processes and --frontier exclude each other: start several workers with that frontier")
    for spider in _classes(crew.crawled):
        if spider.__module__ == "__main__":
            what = f"the spider {spider.__name__} is defined in the program that runs"
            raise BadSetting(f"processes: {what}, and other processes cannot import it: put it into a file of its own")
    if not isinstance(crew.crawled, (type, list, tuple)):
        raise BadSetting("processes: a spider that was made already cannot be handed to other processes")
    try:
        _packed(task_of(crew, Path()))
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise BadSetting(f"processes: these settings cannot be handed to other processes ({what:.200})") from error


def _packed(task: Task) -> bytes:
    body = pickle.dumps((_modules(task.crawled), pickle.dumps(task)))
    return LENGTH.pack(len(body)) + body


def _classes(crawled: Crawled) -> list[type[Spider]]:
    several = crawled if isinstance(crawled, (list, tuple)) else [crawled]
    return [each for each in several if isinstance(each, type)]


def _modules(crawled: Crawled) -> list[Module]:
    """Return the modules of the spiders that cannot be found by name: those of `lycosa runspider`."""
    names = dict.fromkeys(spider.__module__ for spider in _classes(crawled))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return [
        Module(name, file)
        for name, file in files.items()
        if file and PathFinder.find_spec(name.partition(".")[0]) is None
    ]


def _started(handle: int) -> subprocess.Popen[bytes]:
    """Start a process at the other end of a socket. Ctrl-C in the terminal is for its owner alone."""
    command = [sys.executable, "-P", "-c", CODE, str(handle), str(os.getpid()), *sys.path]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[handle], process_group=0)  # noqa: S603  ours


def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process that has closed its socket."""
    try:
        return process.wait(END_MAX_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _why(code: int) -> str:
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"
