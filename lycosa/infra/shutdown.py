"""How long a run waits for servers that are away: as long as each call wants to, until the run is told to hurry.

    with patience() as patient:      # for all servers that are opened in the block
        ...
        patient.hurry()              # what is under way has HURRY_S; after the first that fails nothing is waited for

A server that answers is asked all that is left to be asked; one that does not is left, and `left` says why.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

HURRY_S = 0.7
"""An answer that is under way gets so long: a second time Ctrl-C has to end a program before it is given a third."""


class Patience:
    """That of one run."""

    def __init__(self) -> None:
        self.left: dict[str, str] = {}
        """Servers that were not waited for in the end, and what was wrong with each."""
        self.hurries = False
        self._most_s: float | None = None
        self._calls: set[asyncio.Timeout] = set()
        self._hurry = asyncio.Event()

    def hurry(self) -> None:
        """Wait for nothing that does not come at once, from now on; call it on the loop."""
        if self.hurries:
            return
        self.hurries, self._most_s = True, HURRY_S
        self._hurry.set()
        for call in self._calls:
            call.reschedule(asyncio.get_running_loop().time() + HURRY_S)

    def leave(self, server: str, why: str) -> None:
        """Ask a server nothing any more; `why` is told."""
        self.left.setdefault(server, why)

    def begun(self, server: str) -> asyncio.Timeout:
        """Return how long a call may last, to be entered; `over` is told of its end."""
        call = asyncio.timeout(0.0 if server in self.left else self._most_s)
        self._calls.add(call)
        return call

    def over(self, call: asyncio.Timeout) -> None:
        """Forget a call."""
        self._calls.discard(call)

    async def pause(self, seconds: float) -> None:
        """Sleep, unless it is to hurry."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hurry.wait()


_of_this_run: ContextVar[Patience] = ContextVar("patience")


@contextmanager
def patience() -> Iterator[Patience]:
    """Have a patience for the servers that are opened in the block."""
    made = Patience()
    token = _of_this_run.set(made)
    try:
        yield made
    finally:
        _of_this_run.reset(token)


def patience_of_this_run() -> Patience:
    """Return the one that was made around us, a new one if there is none."""
    return _of_this_run.get(None) or Patience()
