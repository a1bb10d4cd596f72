"""Finds calls in callbacks, middlewares and pipelines that block the event loop.

The loop records the time at least every BEAT_S. After `blocked_after_s` without a record, a thread inspects the stack
of the loop's thread and reports the innermost line of the user's code:

    Quotes.parse has blocked the crawl for 1.1 s at quotes.py:12 (time.sleep): use await asyncio.sleep(...)

Only the first blocking call on each line is reported: once while it blocks, and once with its duration when it has
ended. A call that holds the interpreter lock (such as a regular expression that backtracks) is reported only when it
ends; the reported line may then be the one after the call.
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
"""Maximum seconds between two records of the time."""

WARNINGS_MAX = 20

CALL_MAX = 60

NETWORK = frozenset({"socket", "ssl", "http", "urllib", "urllib3", "requests", "httpx", "httpcore", "aiohttp"})
DEBUGGERS = frozenset({"pdb", "bdb", "IPython", "debugpy", "pydevd"})

USE_THREAD = "run it in a thread, with callback_mode = 'thread'"


class CodeLocation(NamedTuple):
    """The code that a thread runs. `call` is the function being called, or ""; `advice` says what to write instead."""

    function: str
    file: str
    line: int
    call: str = ""
    advice: str = USE_THREAD

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}{self.call and f' ({self.call})'}"


class Watchdog:
    """Watches the running loop inside `async with`, unless `blocked_after_s` is 0.

    `blocked_s` is the longest time for which the loop was blocked.
    """

    def __init__(self, blocked_after_s: float = BLOCKED_AFTER_S) -> None:
        self._blocked_after_s = blocked_after_s
        self._beat = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._loop_frames: set[FrameType] = set()
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
            await ready  # now the frames of the loop are known
            self._thread = threading.Thread(
                target=self._watch, args=(threading.get_ident(), beat_s), name="lycosa-watchdog", daemon=True
            )
            self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._beat = time.monotonic()  # otherwise the thread could wait forever for the end of a blocking call
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
        self._loop_frames.clear()

    def _begin(self, loop: asyncio.AbstractEventLoop, beat_s: float, ready: asyncio.Future[None]) -> None:
        # The frames below this callback run the loop: they are not user code.
        self._loop_frames = set(_outwards(sys._getframe(1)))  # noqa: SLF001
        self._record_time(loop, beat_s)
        ready.set_result(None)

    def _record_time(self, loop: asyncio.AbstractEventLoop, beat_s: float) -> None:
        self._beat = time.monotonic()
        self._timer = loop.call_later(beat_s, self._record_time, loop, beat_s)

    def _watch(self, thread_id: int, beat_s: float) -> None:
        while not self._stopping.wait(beat_s):
            beat = self._beat
            blocked_s = time.monotonic() - beat
            if blocked_s >= self._blocked_after_s:
                location = self._warn(thread_id, blocked_s)
                while self._beat == beat:
                    self._stopping.wait(beat_s)
                self._on_unblocked(location, self._beat - beat)

    def _warn(self, thread_id: int, blocked_s: float) -> CodeLocation | None:
        """Log the call that blocks the loop, once per line. Return its location if logged."""
        stack = self._stack(thread_id)
        location = blocking_location(stack)
        if location is None:
            if stack and not _is_debugged(stack):
                log.info("the event loop has been blocked for %.1f s in %s", blocked_s, _location_of(stack[0]))
            return None
        key = (location.file, location.line)
        if key in self._warned or len(self._warned) >= WARNINGS_MAX:
            return None
        self._warned.add(key)
        text = "%s has blocked the crawl for %.1f s at %s: %s"
        log.warning(text, location.function, blocked_s, location, location.advice)
        return location

    def _stack(self, thread_id: int) -> list[FrameType]:
        """Return the frames above the loop's, innermost first."""
        stack = []
        for frame in _outwards(sys._current_frames().get(thread_id)):  # noqa: SLF001
            if frame in self._loop_frames:
                break
            stack.append(frame)
        return stack

    def _on_unblocked(self, location: CodeLocation | None, blocked_s: float) -> None:
        self.blocked_s = max(self.blocked_s, blocked_s)
        if location is not None:
            log.warning("the crawl continues: %s blocked it for %.1f s at %s", location.function, blocked_s, location)


def blocking_location(stack: list[FrameType]) -> CodeLocation | None:
    """Return the innermost location in the user's code, or None. `stack`: innermost frame first."""
    if _is_debugged(stack):
        return None
    for depth, frame in enumerate(stack):
        if is_user_file(frame.f_code.co_filename):
            call = _call_at(frame)
            return _location_of(frame)._replace(call=call, advice=_advice(call, stack[:depth]))
    return None


def _location_of(frame: FrameType) -> CodeLocation:
    return CodeLocation(frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno or 0)


def _call_at(frame: FrameType) -> str:
    """Return the function that the frame is calling, as in the source, or ""."""
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return ""
    lines = [text.encode() for text in linecache.getlines(frame.f_code.co_filename)[line - 1 : end_line]]
    if not lines:
        return ""
    lines[-1] = lines[-1][:end_column]
    lines[0] = lines[0][column:]
    try:
        expression = ast.parse(b"".join(lines), mode="eval").body
    except (SyntaxError, ValueError):
        return ""
    return ast.unparse(expression.func)[:CALL_MAX] if isinstance(expression, ast.Call) else ""


def _advice(call: str, inner: list[FrameType]) -> str:
    if call.rpartition(".")[2] == "sleep":
        return "use await asyncio.sleep(...)"
    if not NETWORK.isdisjoint(str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in inner):
        return "use await self.fetch(...), or callback_mode = 'thread'"
    return USE_THREAD


def _is_debugged(stack: list[FrameType]) -> bool:
    return not DEBUGGERS.isdisjoint(str(frame.f_globals.get("__name__", "")).partition(".")[0] for frame in stack)


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
