"""Views of a crawl that runs on this machine, for `lycosa top`.

The process reports only the counts of its frontier, so the page counts cover all runs of the crawl.
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
from lycosa.app.frontier.operations import OpenState, open_state
from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import CRAWLING, PAUSED, WAITING, CrawlView, WorkerReport, WorkerView, pages_done

HOSTS_SCANNED = 500
"""Maximum number of hosts that are read, in order of name, to find the busiest ones."""

HOSTS_SLICE = 50
HOSTS_SHOWN = 10


class LiveCrawl:
    """A crawl that runs in another process."""

    def __init__(self, state: OpenState) -> None:
        self.name = state.place
        self._state = state

    async def view(self) -> CrawlView:
        stats, now = await self._state.operations.stats(), time.time()
        counts = {**pages_done(stats.reasons), "failures": stats.dead}
        state = PAUSED if stats.paused else CRAWLING if stats.leased or stats.queued else WAITING
        pid = self._state.pid
        report = WorkerReport(
            socket.gethostname(), pid, __version__, now - _started_at(pid), state, stats.paused, stats.leased, 0,
            _memory_bytes(pid), counts,
        )  # fmt: skip
        urls = {name: getattr(stats, name) for name in ("queued", "leased", "delayed", "done", "dead")}
        worker = WorkerView(str(pid), state, 0.0, stats.leased, report)
        return CrawlView(self.name, now, [worker], [], counts, urls, await self._hosts())

    async def _hosts(self) -> list[HostView]:
        found: list[HostView] = []
        while len(found) < HOSTS_SCANNED:
            more = await self._state.operations.hosts(found[-1].host if found else "", HOSTS_SLICE)
            found += more
            if not more:
                break
        busy = [host for host in found if host.queued or host.in_flight]
        return nlargest(HOSTS_SHOWN, busy, key=lambda host: (host.queued, host.in_flight))


@asynccontextmanager
async def open_live(path: Path, report: Callable[[str], None]) -> AsyncIterator[LiveCrawl]:
    """Connect to the process that runs the crawl of this state folder.

    Raises `UsageError` if no process runs the crawl, and the errors of `open_state`.
    """
    async with open_state(path, report=report) as state:
        if not state.pid:
            advice = f"lycosa frontier status --state {path} shows its counts"
            raise UsageError(f"{path}: the crawl is not running: {advice}")
        yield LiveCrawl(state)


def _started_at(pid: int) -> float:
    """Return the approximate start time in unix seconds; without /proc, the current time."""
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_ctime  # noqa: PTH116  not a file, but the process itself
    return time.time()


def _memory_bytes(pid: int) -> int:
    with suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0
