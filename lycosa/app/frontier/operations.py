"""Opens the frontier of a state for `lycosa frontier`: by itself, or through the socket of its live owner."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lycosa.app.request_rules import fingerprint_by, own_fingerprint, salt_of, scope_of
from lycosa.core.errors import ForeignState, StateLocked, UsageError
from lycosa.core.url import host_key
from lycosa.frontier.core.description import Described, Description
from lycosa.frontier.core.explain import Bounds, Known
from lycosa.frontier.core.keys import Fingerprint
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.remote import ANSWER_MAX_S, connected
from lycosa.frontier.state_dir import DESCRIPTION, SOCKET, WORKER, StateDir, owner_of, read_description
from lycosa.infra.clock import Clock

START_MAX_S = 3.0
"""An owner that has just started listens after so long, one that has just ended has given the state free."""

TRY_EVERY_S = 0.05
NAMES_SHOWN = 10
STOPPED = "the crawl does not run: the command that started it goes on with it"
NO_CRAWL = "no crawl has begun here: lycosa crawl START-URL {} begins one with what was imported"


@dataclass(frozen=True, slots=True)
class OpenState:
    """A state with its frontier, or a crawl that several workers share.

    `place` is what it is called, `path` its folder if it has one; `runs` says where it runs ("process 12", "3
    workers"), "" when it does not; `going_on` is how it goes on. `pid` is that of the live owner, 0 when there is none.
    """

    place: str
    description: Description
    operations: FrontierOperations
    going_on: str
    runs: str = ""
    pid: int = 0
    path: Path | None = None

    @property
    def key_of(self) -> Fingerprint:
        """How the crawl identifies its requests. Raises `BadSetting` when only its spider can tell."""
        return fingerprint_by(self.description.key)

    async def look_up(self, url: str) -> list[tuple[str, Known]]:
        """Return what is known of a canonical URL: for each spider of several, by name; else once, under "".

        Raises `BadSetting` when only a run of the spider can tell.
        """
        key_of, members = self.key_of, self.description.members
        if not members:
            return [("", await _look_up(self, url, key_of, self.description))]
        own = [(each, own_fingerprint(key_of, each.name)) for each in members]
        return [(each.name, await _look_up(self, url, named, each)) for each, named in own]

    def owned(self, record: UrlRecord) -> UrlRecord:
        """Return a record read elsewhere as that of its spider, where there are several. Raises `UsageError`."""
        names = [each.name for each in self.description.members]
        if not names:
            return record
        spider = record.extras.spider if record.extras is not None else ""
        if spider not in names:
            message = f"this crawl has several spiders: say whose it is, with spider: {' or '.join(names)}"
            raise UsageError(message)
        return replace(record, fingerprint=record.fingerprint ^ salt_of(spider))


def find_state(given: str | None, home: Path) -> Path:
    """Return the folder of the state that is meant: the one given, else the only one in `home`. Raises `UsageError`."""
    if given:
        if not (Path(given) / DESCRIPTION).is_file():
            raise UsageError(f"{given} is not the state of a crawl: give the folder that its summary names")
        return Path(given)
    found = sorted(file.parent for file in home.glob(f"*/{DESCRIPTION}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"which crawl? There is no state in {home}/: give --state DIR")
    names = ", ".join(map(str, found[:NAMES_SHOWN])) + (", ..." if len(found) > NAMES_SHOWN else "")
    raise UsageError(f"which crawl? Give --state with one of {names}")


@asynccontextmanager
async def opened(
    path: Path,
    *,
    answer_max_s: float = ANSWER_MAX_S,
    start_max_s: float = START_MAX_S,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[OpenState]:
    """Open the state in this folder. Raises `StateError`: it cannot be read, or its owner does not answer.

    `say` hears that the owner takes long to answer.
    """
    async with AsyncExitStack() as stack:
        yield await _open(stack, path, answer_max_s, start_max_s, say)


def make_state(path: Path) -> bool:
    """Make a state in which there is nothing, and which is no crawl's yet; False when there is one already.

    One that was begun, and not finished, is. Waits while another process does it. Raises `UsageError` for a place where
    none should be, and `StateError`.
    """
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}, so no state is made there")
    deadline = time.monotonic() + START_MAX_S
    while not (path / DESCRIPTION).exists():
        try:
            return _make(path)
        except ForeignState:
            raise UsageError(f"{path} is not the state of a crawl, and not empty: give another --state") from None
        except StateLocked:
            if time.monotonic() > deadline:
                raise
        time.sleep(TRY_EVERY_S)
    return False


def bounds_of(description: Description, told: Description | Described) -> Bounds:
    """Return what bounds the crawl that a state describes, or one of its spiders, as far as it does."""
    known = description.spider or description.scope
    scope = scope_of(description.scope, description.seeds, told.domains, told) if known else None
    return Bounds(scope, description.scope, told.depth, told.allow, told.deny, told.robots, told.user_agent)


async def _look_up(state: OpenState, url: str, key_of: Fingerprint, told: Description | Described) -> Known:
    operations, description = state.operations, state.description
    host = host_key(url)
    paused = (await operations.stats()).paused
    stopped = NO_CRAWL.format(state.going_on) if description.imported else STOPPED
    rows = await operations.find(key_of("GET", url, b""), host)
    return Known(
        url,
        [row if row.record.url else replace(row, record=replace(row.record, url=url)) for row in rows],
        await operations.host(host),
        await operations.host_facts(host),
        {view.name: view for view in await operations.segments()},
        bounds_of(description, told),
        f"the crawl is paused: {paused}" if paused else "" if state.runs else stopped,
        stopped=not state.runs,
    )


def _make(path: Path) -> bool:
    with closing(StateDir(path)) as state:
        if (path / DESCRIPTION).exists():  # another process was quicker
            return False
        embedded_frontier(state.frontier, Policy()).shelf.close()
        state.describe(Description(imported=True))  # last: a state that is described has a database
    return True


async def _open(
    stack: AsyncExitStack, path: Path, answer_max_s: float, start_max_s: float, say: Callable[[str], None]
) -> OpenState:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + start_max_s
    while True:
        try:
            return _own(stack, path)
        except StateLocked:
            pass
        try:
            remote = await stack.enter_async_context(connected(path / SOCKET, answer_max_s, say))
            runs = f"process {remote.pid}"
            return OpenState(str(path), read_description(path), remote, _by_folder(path), runs, remote.pid, path)
        except PermissionError:
            raise StateLocked(
                f"{path / SOCKET}: no permission to ask process {owner_of(path)}, which owns it"
            ) from None
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
        if loop.time() > deadline:
            owner = owner_of(path)
            raise StateLocked(
                f"{path}: the state is open in process {owner}, which answers no questions ({problem}): stop it first"
            )
        await asyncio.sleep(TRY_EVERY_S)


def _own(stack: AsyncExitStack, path: Path) -> OpenState:
    state = StateDir(path)
    stack.callback(state.close)
    if (path / WORKER).exists():
        raise UsageError(f"{path} is that of a worker, which does not run: give --frontier and --crawl-name, as to it")
    state.refuse_half()
    frontier = embedded_frontier(state.frontier, Policy(), now=Clock().now())
    stack.push_async_callback(frontier.close)
    operations = LocalOperations(frontier, runs=False)
    return OpenState(str(path), state.description, operations, _by_folder(path), path=path)


def _by_folder(path: Path) -> str:
    return f"--state {shlex.quote(str(path))}"


@asynccontextmanager
async def opened_shared(
    url: str, name: str, say: Callable[[str], None], *, beginning: tuple[int, bool] | None = None
) -> AsyncIterator[OpenState]:
    """Open a crawl that several workers share, "" for the only one in this Redis, and take no part in it.

    `beginning` (its partitions, whether it keeps what is done) begins one if it is not there. Raises `LycosaError`.
    """
    from lycosa.frontier.redis.admin.visit import Beginning, visiting  # an extra

    async with visiting(url, name, say, Beginning(*beginning) if beginning else None) as visit:
        if visit.begun:
            await visit.crawl.describe(Description(imported=True), begins=True)
            say(visit.begun)
        workers = await visit.crawl.workers()
        yield OpenState(
            f"{visit.name} in {visit.where}",
            await visit.crawl.description(),
            visit.operations(runs=workers > 0),
            f"--frontier {shlex.quote(visit.where)} --crawl-name {shlex.quote(visit.name)}",
            "" if not workers else "1 worker" if workers == 1 else f"{workers:,} workers",
        )
