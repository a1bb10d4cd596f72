"""Limit how long calls to servers may take: no extra limit at first, FAST_TIMEOUT_S once a fast shutdown has started.

    with shutdown_deadline() as deadline:   # for all connections opened in the block
        ...
        deadline.start()                    # running calls end within FAST_TIMEOUT_S

Then a server that does not answer in time is not called again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

FAST_TIMEOUT_S = 0.7
"""Timeout of calls after the second Ctrl-C, in seconds. The program must end before the user presses Ctrl-C again."""


class ShutdownDeadline:
    """The deadline of one run."""

    def __init__(self) -> None:
        self.abandoned: dict[str, str] = {}
        """Servers that did not answer, with the reason for each."""
        self.is_started = False
        self._timeout_s: float | None = None
        self._calls: set[asyncio.Timeout] = set()
        self._started = asyncio.Event()

    def start(self) -> None:
        """Start the fast shutdown. Call it on the event loop."""
        if self.is_started:
            return
        self.is_started, self._timeout_s = True, FAST_TIMEOUT_S
        self._started.set()
        for call in self._calls:
            call.reschedule(asyncio.get_running_loop().time() + FAST_TIMEOUT_S)

    def abandon(self, server: str, why: str) -> None:
        """Only the first reason is kept."""
        self.abandoned.setdefault(server, why)

    def begin_call(self, server: str) -> asyncio.Timeout:
        """Return the timeout of a call. Run the call inside `async with` it, then call `end_call`."""
        call = asyncio.timeout(0.0 if server in self.abandoned else self._timeout_s)
        self._calls.add(call)
        return call

    def end_call(self, call: asyncio.Timeout) -> None:
        self._calls.discard(call)

    async def sleep(self, seconds: float) -> None:
        """Sleep for this long, or until the fast shutdown starts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._started.wait()


_current: ContextVar[ShutdownDeadline] = ContextVar("shutdown_deadline")


@contextmanager
def shutdown_deadline() -> Iterator[ShutdownDeadline]:
    """Set the deadline for all connections opened in the block."""
    deadline = ShutdownDeadline()
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


def current_deadline() -> ShutdownDeadline:
    """Return the deadline of the enclosing `shutdown_deadline` block, or a new one."""
    return _current.get(None) or ShutdownDeadline()
