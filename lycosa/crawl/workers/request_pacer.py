"""When hosts were asked, told by the processes that ask: none hears of a request sooner than its delay allows.

The frontier counts a turn from when it lends; a process that is busy may ask the host later than that, and another one
sooner. So what is lent of a host with a delay waits here until it is known when the one before it started. Keys are
hosts, and addresses where those have a delay too.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple

UNTOLD_MAX_S = 30.0
"""Whoever has not said for so long that his request starts holds the next one up no longer."""

LINES_MAX = 10_000
"""Keys that are remembered; those that nobody waits for and that were used longest ago are forgotten."""


class Pace(NamedTuple):
    """So many seconds lie between two starts."""

    key: str
    delay_s: float


class _Line:
    __slots__ = ("at", "turn")

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.at = 0.0


class Start:
    """The next start: `begun` or `over` lets the one after it come."""

    def __init__(self) -> None:
        self.lines: list[_Line] = []
        self._held = True
        self._timer: asyncio.TimerHandle | None = None

    def due(self, within_s: float) -> None:
        """It is to be within so many seconds."""
        self._timer = asyncio.get_running_loop().call_later(within_s, self.over)

    def begun(self, at: float) -> None:
        """It was then (unix seconds); what is told again is a correction."""
        for line in self.lines:
            line.at = max(line.at, at)
        self.over()

    def over(self) -> None:
        """It was, or there will be none."""
        if self._held:
            self._held = False
            if self._timer is not None:
                self._timer.cancel()
            for line in self.lines:
                line.turn.release()


class Starts:
    """The starts of one crawl; `now` returns unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    async def next(self, paces: Sequence[Pace]) -> Start:
        """Wait until a request that has to keep these paces may start."""
        start = Start()
        try:
            for pace in paces:  # a host first, then its address: nobody waits in a circle
                line = self._line(pace.key)
                await line.turn.acquire()
                start.lines.append(line)
                while (wait_s := line.at + pace.delay_s - self._now()) > 0:  # noqa: ASYNC110  time sends no event
                    await asyncio.sleep(min(wait_s, pace.delay_s))
        except BaseException:
            start.over()
            raise
        start.due(UNTOLD_MAX_S)
        return start

    def correct(self, paces: Sequence[Pace], at: float) -> None:
        """A request that has to keep these paces started then (unix seconds)."""
        for pace in paces:
            line = self._line(pace.key)
            line.at = max(line.at, at)

    def _line(self, key: str) -> _Line:
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
            if len(self._lines) > LINES_MAX:
                self._forget()
        else:
            self._lines.move_to_end(key)
        return line

    def _forget(self) -> None:
        key = next((key for key, line in self._lines.items() if not line.turn.locked()), None)
        if key is not None:
            del self._lines[key]
