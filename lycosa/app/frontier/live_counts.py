"""A crawl of this machine as `lycosa top` shows one: through the socket of the process that runs it.

The process tells only what its frontier knows. So pages are those of the whole crawl, of all its runs.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from heapq import nlargest
from pathlib import Path

from lycosa import __version__
from lycosa.app.frontier.operations import OpenState, opened
from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import CRAWLING, PAUSED, WAITING, CrawlView, WorkerReport, WorkerView, pages_done

HOSTS_LOOKED = 500
"""The busiest hosts are looked for among so many, by name."""

HOSTS_SLICE = 50
HOSTS_SHOWN = 10


class Looked:
    """A crawl that runs in another process."""

    def __init__(self, state: OpenState) -> None:
        self.name = state.place
        self._state = state

    async def view(self) -> CrawlView:
        """Return it as it is now."""
        stats, now = await self._state.operations.stats(), time.time()
        counts = {**pages_done(stats.reasons), "failures": stats.dead}
        state = PAUSED if stats.paused else CRAWLING if stats.leased or stats.queued else WAITING
        pid = self._state.pid
        report = WorkerReport(
            socket.gethostname(), pid, __version__, now - _began(pid), state, stats.paused, stats.leased, 0,
            _memory(pid), counts,
        )  # fmt: skip
        urls = {name: getattr(stats, name) for name in ("queued", "leased", "delayed", "done", "dead")}
        worker = WorkerView(str(pid), state, 0.0, stats.leased, report)
        return CrawlView(self.name, now, [worker], [], counts, urls, await self._hosts())

    async def _hosts(self) -> list[HostView]:
        found: list[HostView] = []
        while len(found) < HOSTS_LOOKED:
            more = await self._state.operations.hosts(found[-1].host if found else "", HOSTS_SLICE)
            found += more
            if not more:
                break
        busy = [host for host in found if host.queued or host.in_flight]
        return nlargest(HOSTS_SHOWN, busy, key=lambda host: (host.queued, host.in_flight))


@asynccontextmanager
async def looked_at(path: Path, say: Callable[[str], None]) -> AsyncIterator[Looked]:
    """Find the process that runs on the state in this folder. Raises `UsageError` when none does, `StateError`."""
    async with opened(path, say=say) as state:
        if not state.pid:
            raise UsageError(f"{path}: the crawl does not run: lycosa frontier status --state {path} tells what it did")
        yield Looked(state)


def _began(pid: int) -> float:
    """Return when a process began (unix seconds), about; where there is no /proc, when it is now."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_ctime  # noqa: PTH116  no path, but what is known of a process
    return time.time()


def _memory(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
