"""Calls `FrontierOperations` in the process that has the state open (its owner), through a socket.

A call raises the owner's own error, or a one-line `StateError` if the owner has ended, hangs, or has another version.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from lycosa.core.errors import LycosaError, StateError
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.ports import FrontierOperations
from lycosa.frontier.server import BLOCKING, LIMITS, METHODS, SLICE_ROWS, VERSION
from lycosa.frontier.state_dir import owner_of
from lycosa.infra.rpc.client import RpcClient
from lycosa.infra.rpc.methods import remote

ANSWER_TIMEOUT_S = 30.0
"""Maximum seconds to wait for an answer. If an owner takes longer, it hangs or was stopped."""

REPORT_AFTER_S = 2.0
"""A wait longer than this is reported to the user."""

BLOCKING_TIMEOUT_S = 3600.0
"""Maximum seconds to wait for calls that read or write the whole state."""


class RemoteOperations(RpcClient):
    """Implements `FrontierOperations`. Create it with `connect`. The owner may return fewer rows than the limit."""

    def __init__(self, path: Path, answer_timeout_s: float, report: Callable[[str], None]) -> None:
        super().__init__(path, VERSION, METHODS, LIMITS, lambda: owner_of(path.parent))
        self._answer_timeout_s = answer_timeout_s
        self._report = report
        self._is_reported = False
        self._lock = asyncio.Lock()

    stats = remote(FrontierOperations.stats)
    next_due = remote(FrontierOperations.next_due)
    commit = remote(FrontierOperations.commit)
    host = remote(FrontierOperations.host)
    host_facts = remote(FrontierOperations.host_facts)
    segments = remote(FrontierOperations.segments)
    hosts = remote(FrontierOperations.hosts)
    rows = remote(FrontierOperations.rows)
    find = remote(FrontierOperations.find)
    requeue = remote(FrontierOperations.requeue)
    expire_robots = remote(FrontierOperations.expire_robots)
    archive = remote(FrontierOperations.archive)
    drop = remote(FrontierOperations.drop)
    compact = remote(FrontierOperations.compact)
    _push = remote(FrontierOperations.push)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        slices = [records[start : start + SLICE_ROWS] for start in range(0, len(records), SLICE_ROWS)]
        return sum([await self._push(part) for part in slices])

    async def verify(self, report: Callable[[str], None]) -> list[str]:
        """Return the errors found. `report` is not called: the owner logs the progress."""
        found: list[str] = await self.call("verify")
        return found

    async def greet(self) -> None:
        with self._reporting(self._answer_timeout_s):
            await self.connect(self._answer_timeout_s)

    async def call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        async with self._lock:  # the owner serves one call at a time, and each call gets its full timeout
            timeout_s = BLOCKING_TIMEOUT_S if name in BLOCKING else self._answer_timeout_s
            with self._reporting(timeout_s, BLOCKING.get(name, "")):
                return await self.call_within(timeout_s, name, args, kwargs)

    def ended_error(self) -> LycosaError:
        return StateError(f"{self.address}: the crawl has just ended; run the command again")

    @contextmanager
    def _reporting(self, timeout_s: float, work: str = "") -> Iterator[None]:
        """If the owner is slow, report what it does (`work`), or how long this process waits."""
        timer = asyncio.get_running_loop().call_later(REPORT_AFTER_S, self._report_wait, timeout_s, work)
        try:
            yield
        finally:
            timer.cancel()

    def _report_wait(self, timeout_s: float, work: str) -> None:
        if work:
            self._report(f"{self.address}: {self.owner} {work} the whole state; the crawl is paused meanwhile")
        elif not self._is_reported:
            self._is_reported = True
            silent = f"{self.address}: {self.owner} has not answered for {REPORT_AFTER_S:g} s"
            self._report(f"{silent}: waiting up to {timeout_s:g} s")


@asynccontextmanager
async def connect(
    path: Path, answer_timeout_s: float = ANSWER_TIMEOUT_S, report: Callable[[str], None] = lambda _: None
) -> AsyncIterator[RemoteOperations]:
    """Connect to the owner behind the socket `path`. Raises `OSError` if nothing listens there, or `StateError`.

    `report` is called when an answer takes long: for each call that reads or writes the whole state, but only once for
    all other calls.
    """
    operations = RemoteOperations(path, answer_timeout_s, report)
    try:
        await operations.greet()
        yield operations
    finally:
        operations.connection.abort()
