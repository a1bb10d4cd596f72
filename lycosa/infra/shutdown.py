"""How long the calls to servers may take: as long as each call wants, and almost no time after a fast shutdown began.

    with shutdown_deadline() as deadline:   # for all servers that are opened in the block
        ...
        deadline.start()                    # calls under way end within FAST_TIMEOUT_S

A server that answers is still called. A server that does not is abandoned: no further call is made to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

FAST_TIMEOUT_S = 0.7
"""The second Ctrl-C has to end a program before the user gives a third."""


class ShutdownDeadline:
    """That of one run."""

    def __init__(self) -> None:
        self.abandoned: dict[str, str] = {}
        """Servers that did not answer, and what was wrong with each."""
        self.is_started = False
        self._timeout_s: float | None = None
        self._calls: set[asyncio.Timeout] = set()
        self._started = asyncio.Event()

    def start(self) -> None:
        """Start the fast shutdown. To be called on the event loop."""
        if self.is_started:
            return
        self.is_started, self._timeout_s = True, FAST_TIMEOUT_S
        self._started.set()
        for call in self._calls:
            call.reschedule(asyncio.get_running_loop().time() + FAST_TIMEOUT_S)

    def abandon(self, server: str, why: str) -> None:
        """Make no further call to a server."""
        self.abandoned.setdefault(server, why)

    def begin_call(self, server: str) -> asyncio.Timeout:
        """Return the timeout of a call, to be entered by the caller, who ends it with `end_call`."""
        call = asyncio.timeout(0.0 if server in self.abandoned else self._timeout_s)
        self._calls.add(call)
        return call

    def end_call(self, call: asyncio.Timeout) -> None:
        """Forget a call."""
        self._calls.discard(call)

    async def sleep(self, seconds: float) -> None:
        """Sleep until the fast shutdown starts, at most for so long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._started.wait()


_current: ContextVar[ShutdownDeadline] = ContextVar("shutdown_deadline")


@contextmanager
def shutdown_deadline() -> Iterator[ShutdownDeadline]:
    """Make the deadline of a run: servers that are opened in the block use it."""
    deadline = ShutdownDeadline()
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


def current_deadline() -> ShutdownDeadline:
    """Return the deadline of the block around the caller, or a new one."""
    return _current.get(None) or ShutdownDeadline()
