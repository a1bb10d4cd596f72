"""Open a crawl for `lycosa frontier`: its state, its running process, or a shared crawl in Redis."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from lycosa.app.request_rules import scope_of, spider_fingerprint, spider_salt, stored_fingerprint
from lycosa.core.errors import ForeignState, StateLocked, UsageError
from lycosa.core.units import format_count
from lycosa.core.url import host_key
from lycosa.crawl.engine.refresh import expire_unreachable_robots
from lycosa.frontier.core.description import Description, SpiderDescription
from lycosa.frontier.core.explain import CrawlBounds, UrlFacts
from lycosa.frontier.core.keys import Fingerprint
from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.remote import ANSWER_TIMEOUT_S, connect
from lycosa.frontier.state_dir import DESCRIPTION, SOCKET, WORKER, StateDir, owner_of, read_description
from lycosa.infra.clock import Clock

START_MAX_S = 3.0
"""Maximum seconds until a starting owner listens on its socket, or an exiting owner releases the state."""

RETRY_EVERY_S = 0.05
NAMES_SHOWN = 10
STOPPED = "the crawl is not running: the command that started it resumes it"
NO_CRAWL = "no crawl has been started here: lycosa crawl START-URL {} starts one with the imported URLs"


@dataclass(frozen=True, slots=True)
class OpenState:
    """An open state with its frontier, or an open shared crawl.

    `place` is its name for messages; `path` its folder, None for a shared crawl. `runs` says where the crawl runs
    ("process 12", "3 workers"), "" if nowhere. `resume_options` are the options of `lycosa crawl` that resume it. `pid`
    is the process id of the running owner, or 0. `expires_at` is when a finished shared crawl will be removed, None for
    never.
    """

    place: str
    description: Description
    operations: FrontierOperations
    resume_options: str
    runs: str = ""
    pid: int = 0
    path: Path | None = None
    expires_at: float | None = None

    @property
    def fingerprint_of(self) -> Fingerprint:
        """The fingerprint function of the crawl. Raises `BadSetting` if it needs the spider's code."""
        return stored_fingerprint(self.description.key)

    async def look_up(self, url: str) -> list[tuple[str, UrlFacts]]:
        """Return (spider, facts about a canonical URL) for each spider. The spider is "" if there is only one.

        Raises `BadSetting` if only a run of the spider can compute fingerprints.
        """
        fingerprint_of, members = self.fingerprint_of, self.description.members
        if not members:
            return [("", await _look_up(self, url, fingerprint_of, self.description))]
        own = [(each, spider_fingerprint(fingerprint_of, each.name)) for each in members]
        return [(each.name, await _look_up(self, url, own_fingerprint, each)) for each, own_fingerprint in own]

    async def expire_unreachable_robots(self, requeued: Selection, now: float) -> None:
        """Expire each unreachable robots.txt of a host with dead URLs in the selection."""
        await expire_unreachable_robots(self.operations, requeued, now)

    def with_spider(self, record: UrlRecord) -> UrlRecord:
        """Return the record. If the crawl has several spiders, give it the fingerprint of its spider.

        Raises `UsageError`.
        """
        names = [each.name for each in self.description.members]
        if not names:
            return record
        spider = record.extras.spider if record.extras is not None else ""
        if spider not in names:
            raise UsageError(f"this crawl has several spiders: name one in the field spider: {' or '.join(names)}")
        return replace(record, fingerprint=record.fingerprint ^ spider_salt(spider))


def find_state(folder: str | None, home: Path) -> Path:
    """Return `folder` if given, else the only state folder in `home`. Raises `UsageError`."""
    if folder:
        if not (Path(folder) / DESCRIPTION).is_file():
            raise UsageError(f"{folder} is not the state of a crawl: give the folder named in its summary")
        return Path(folder)
    found = sorted(file.parent for file in home.glob(f"*/{DESCRIPTION}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(f"which crawl? There is no state in {home}/: give --state DIR")
    names = ", ".join(map(str, found[:NAMES_SHOWN])) + (", ..." if len(found) > NAMES_SHOWN else "")
    raise UsageError(f"which crawl? Give --state with one of {names}")


@asynccontextmanager
async def open_state(
    path: Path,
    *,
    answer_max_s: float = ANSWER_TIMEOUT_S,
    start_max_s: float = START_MAX_S,
    report: Callable[[str], None] = lambda _: None,
) -> AsyncIterator[OpenState]:
    """Open the state in this folder. Raises `StateError` if it cannot be read or its owner does not answer.

    Raises `UsageError` for the state of a stopped worker. `report` is called if the owner is slow to answer.
    """
    async with AsyncExitStack() as stack:
        yield await _open(stack, path, answer_max_s, start_max_s, report)


def create_state(path: Path) -> bool:
    """Create an empty state that belongs to no crawl yet. Return False if there is a state already.

    Completes an interrupted creation, and waits for another process that is creating the state. Raises `StateError`, or
    `UsageError` if no state may be created there.
    """
    if not path.absolute().parent.is_dir():
        raise UsageError(f"{path}: cannot create a state there: the folder {path.parent} does not exist")
    deadline = time.monotonic() + START_MAX_S
    while not (path / DESCRIPTION).exists():
        try:
            return _create(path)
        except ForeignState:
            raise UsageError(f"{path} is not the state of a crawl, and not empty: give another --state") from None
        except StateLocked:
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_EVERY_S)
    return False


def bounds_of(description: Description, options: Description | SpiderDescription) -> CrawlBounds:
    """Return the limits of the described crawl. `options` is the same description, or that of one of its spiders."""
    known = description.spider or description.scope
    scope = scope_of(description.scope, description.seeds, options.domains, options) if known else None
    return CrawlBounds(
        scope, description.scope, options.depth, options.allow, options.deny, options.robots, options.user_agent
    )


async def _look_up(
    state: OpenState, url: str, fingerprint_of: Fingerprint, options: Description | SpiderDescription
) -> UrlFacts:
    operations, description = state.operations, state.description
    host = host_key(url)
    paused = (await operations.stats()).paused
    stopped = NO_CRAWL.format(state.resume_options) if description.imported else STOPPED
    rows = await operations.find(fingerprint_of("GET", url, b""), host)
    return UrlFacts(
        url,
        [row if row.record.url else replace(row, record=replace(row.record, url=url)) for row in rows],
        await operations.host(host),
        await operations.host_facts(host),
        {view.name: view for view in await operations.segments()},
        bounds_of(description, options),
        f"the crawl is paused: {paused}" if paused else "" if state.runs else stopped,
        stopped=not state.runs,
    )


def _create(path: Path) -> bool:
    with closing(StateDir(path)) as state:
        if (path / DESCRIPTION).exists():  # another process created the state in the meantime
            return False
        embedded_frontier(state.frontier, Policy()).store.close()
        state.describe(Description(imported=True))  # last: a described state must have a database
    return True


async def _open(
    stack: AsyncExitStack, path: Path, answer_max_s: float, start_max_s: float, report: Callable[[str], None]
) -> OpenState:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + start_max_s
    while True:
        try:
            return _open_own(stack, path)
        except StateLocked:
            pass
        try:
            remote = await stack.enter_async_context(connect(path / SOCKET, answer_max_s, report))
            runs = f"process {remote.pid}"
            return OpenState(str(path), read_description(path), remote, _state_option(path), runs, remote.pid, path)
        except PermissionError:
            raise StateLocked(
                f"{path / SOCKET}: no permission to connect to process {owner_of(path)}, which owns the state"
            ) from None
        except OSError as error:
            problem = (error.strerror or str(error)).lower()
        if loop.time() > deadline:
            owner = owner_of(path)
            raise StateLocked(
                f"{path}: the state is open in process {owner}, which does not answer ({problem}): stop it first"
            )
        await asyncio.sleep(RETRY_EVERY_S)


def _open_own(stack: AsyncExitStack, path: Path) -> OpenState:
    state = StateDir(path)
    stack.callback(state.close)
    if (path / WORKER).exists():
        raise UsageError(f"{path} is the state of a stopped worker: give its --frontier and --crawl-name")
    state.check_complete()
    frontier = embedded_frontier(state.frontier, Policy(), now=Clock().now())
    stack.push_async_callback(frontier.close)
    operations = LocalOperations(frontier, runs=False)
    return OpenState(str(path), state.description, operations, _state_option(path), path=path)


def _state_option(path: Path) -> str:
    return f"--state {shlex.quote(str(path))}"


async def delete_shared(url: str, name: str, report: Callable[[str], None], *, force: bool = False) -> int:
    """Delete a shared crawl; with `force`, even if it has workers or unfetched URLs. Return the number of its URLs.

    Raises `LycosaError`.
    """
    from lycosa.frontier.redis.admin.deletion import delete_crawl  # optional dependency

    return await delete_crawl(url, name, report, force=force)


@asynccontextmanager
async def open_shared(
    url: str, name: str, report: Callable[[str], None], *, create: tuple[int, bool] | None = None
) -> AsyncIterator[OpenState]:
    """Open a shared crawl without joining it as a worker. The name "" means the only crawl in this Redis.

    With `create` (number of partitions, `keep_done`) a missing crawl is created. Raises `LycosaError`.
    """
    from lycosa.frontier.redis.admin.open_crawl import CrawlForm, open_crawl  # optional dependency

    async with open_crawl(url, name, report, CrawlForm(*create) if create else None) as opened:
        if opened.created:
            await opened.crawl.describe(Description(imported=True), keep_existing=True)
            report(opened.created)
        workers = await opened.crawl.workers()
        yield OpenState(
            f"{opened.name} in {opened.server_url}",
            await opened.crawl.description(),
            opened.operations(runs=workers > 0),
            f"--frontier {shlex.quote(opened.server_url)} --crawl-name {shlex.quote(opened.name)}",
            "" if not workers else format_count(workers, "worker"),
            expires_at=await opened.crawl.expires_at(),
        )
