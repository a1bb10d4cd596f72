"""Finds what blocks the event loop: a call in a callback, middleware or pipeline that waits without `await`.

The loop notes the time five times a second; a thread of its own looks whether it does. When it has not for
`blocked_after_s`, the thread takes the stack of the loop's thread and names the innermost line of the user's own code:

    Quotes.parse has blocked the crawl for 1.1 s at quotes.py:12 (time.sleep): use await asyncio.sleep(...)

One warning for each place; when it is over, one line says how long it took. A call that holds the interpreter (a
regular expression that backtracks, say) is seen when it ends, at its line or just behind. Works with any event loop.
"""

from __future__ import annotations

import ast
import asyncio
import linecache
import logging
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NamedTuple, Self

from lycosa.crawl.diagnostics.tracebacks import is_user_file

log = logging.getLogger(__name__)

BLOCKED_AFTER_S = 1.0
BEAT_S = 0.2
"""How often the loop notes the time."""

WARNINGS_MAX = 20
"""Places that are warned of."""

CALL_MAX = 60
"""Characters of the name of a blocking call."""

NETWORK = frozenset({"socket", "ssl", "http", "urllib", "urllib3", "requests", "httpx", "httpcore", "aiohttp"})
DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "debugpy", "pydevd"})

ELSEWHERE = "run it elsewhere, with callback_mode = 'thread'"


class CodeLocation(NamedTuple):
    """Where a thread is: the function, its file and line, the call it waits for ("" when none), and what would help."""

    function: str
    file: str
    line: int
    call: str = ""
    advice: str = ELSEWHERE

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}{self.call and f' ({self.call})'}"


class Watchdog:
    """Watches the running loop between `async with` and its end. `blocked_after_s` 0: does nothing.

    `blocked_s` is the longest time that the loop stood still, of those that were long enough to be noticed.
    """

    def __init__(self, blocked_after_s: float = BLOCKED_AFTER_S) -> None:
        self._blocked_after_s = blocked_after_s
        self._beat = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._below: set[FrameType] = set()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._warned: set[tuple[str, int]] = set()
        self.blocked_s = 0.0

    async def __aenter__(self) -> Self:
        if self._blocked_after_s > 0:
            loop = asyncio.get_running_loop()
            beat_s = min(BEAT_S, self._blocked_after_s / 4)
            ready: asyncio.Future[None] = loop.create_future()
            loop.call_soon(self._begin, loop, beat_s, ready)
            await ready
            self._thread = threading.Thread(
                target=self._watch, args=(threading.get_ident(), beat_s), name="lycosa-watchdog", daemon=True
            )
            self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._beat = time.monotonic()
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._below.clear()

    def _begin(self, loop: asyncio.AbstractEventLoop, beat_s: float, ready: asyncio.Future[None]) -> None:
        # What is on the stack of a callback of the loop runs the loop; it is no callback of the crawl.
        self._below = set(_outwards(sys._getframe(1)))  # noqa: SLF001
        self._note(loop, beat_s)
        ready.set_result(None)

    def _note(self, loop: asyncio.AbstractEventLoop, beat_s: float) -> None:
        self._beat = time.monotonic()
        self._timer = loop.call_later(beat_s, self._note, loop, beat_s)

    def _watch(self, thread_id: int, beat_s: float) -> None:
        while not self._stopping.wait(beat_s):
            beat = self._beat
            still_s = time.monotonic() - beat
            if still_s >= self._blocked_after_s:
                told = self._tell(thread_id, still_s)
                while self._beat == beat:
                    self._stopping.wait(beat_s)
                self._over(told, self._beat - beat)

    def _tell(self, thread_id: int, still_s: float) -> CodeLocation | None:
        """Warn of what blocks the loop, if it was not told yet."""
        stack = self._stack(thread_id)
        place = blamed(stack)
        if place is None:
            if stack and not _is_debugged(stack):
                log.info("the event loop has not run for %.1f s: it is in %s", still_s, _where(stack[0]))
            return None
        key = (place.file, place.line)
        if key in self._warned or len(self._warned) >= WARNINGS_MAX:
            return None
        self._warned.add(key)
        log.warning("%s has blocked the crawl for %.1f s at %s: %s", place.function, still_s, place, place.advice)
        return place

    def _stack(self, thread_id: int) -> list[FrameType]:
        """Return the frames that the loop has called, innermost first."""
        stack = []
        for frame in _outwards(sys._current_frames().get(thread_id)):  # noqa: SLF001
            if frame in self._below:
                break
            stack.append(frame)
        return stack

    def _over(self, told: CodeLocation | None, blocked_s: float) -> None:
        self.blocked_s = max(self.blocked_s, blocked_s)
        if told is not None:
            log.warning("the crawl goes on: %s blocked it for %.1f s at %s", told.function, blocked_s, told)


def blamed(stack: list[FrameType]) -> CodeLocation | None:
    """Return the innermost place in the user's code of a stack (innermost first); None when there is none."""
    if _is_debugged(stack):
        return None
    for depth, frame in enumerate(stack):
        if is_user_file(frame.f_code.co_filename):
            call = _call_at(frame)
            return _where(frame)._replace(call=call, advice=_advice(call, stack[:depth]))
    return None


def _where(frame: FrameType) -> CodeLocation:
    return CodeLocation(frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno or 0)


def _call_at(frame: FrameType) -> str:
    """Return the name of what is being called at the frame's place, as it is written there; "" when it is no call."""
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return ""
    lines = [text.encode() for text in linecache.getlines(frame.f_code.co_filename)[line - 1 : end_line]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        written = ast.parse(b"".join(lines), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    return ast.unparse(written.func)[:CALL_MAX] if isinstance(written, ast.Call) else ""


def _advice(call: str, inner: list[FrameType]) -> str:
    """Return what to do instead of a call, below which there are these frames."""
    if call.rpartition(".")[2] == "sleep":
        return "use await asyncio.sleep(...)"
    if not NETWORK.isdisjoint(str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in inner):
        return "use await self.fetch(...), or callback_mode = 'thread'"
    return ELSEWHERE


def _is_debugged(stack: list[FrameType]) -> bool:
    return not DEBUGGERS.isdisjoint(str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in stack)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
