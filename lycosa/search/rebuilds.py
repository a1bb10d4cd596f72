"""Rebuild requests: through DIR/rebuild.json, another process asks the writer of an index for a rebuild, and follows
the progress of the rebuild.

The writer checks the file about once a second. If the writer is killed, the next writer starts the rebuild again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from lycosa.core.errors import IndexFailure, LycosaError
from lycosa.infra.durable_files import replace_file

FILE = "rebuild.json"
NOTED_EVERY_S = 0.5

_log = logging.getLogger(__name__)


class TaskProgress(msgspec.Struct):
    """The progress of a long task. Times are unix seconds; `started` is 0 before the start, `ended` None until the end.

    `noted` is the time when the file was last written, and `error` the reason for a failure.
    """

    total: int = 0
    done: int = 0
    started: float = 0.0
    ended: float | None = None
    noted: float = 0.0
    error: str = ""

    @property
    def is_running(self) -> bool:
        return self.ended is None

    def rate(self, now: float) -> float:
        passed_s = (now if self.ended is None else self.ended) - self.started
        return self.done / passed_s if passed_s > 0 else 0.0

    def left_s(self, now: float) -> float | None:
        """Return the estimated remaining seconds; None while nothing is done."""
        rate = self.rate(now)
        return max(self.total - self.done, 0) / rate if rate else None


class RebuildRequests:
    """Rebuild requests for an index. Raises `IndexFailure` if the file cannot be written."""

    def __init__(self, folder: Path, now: Callable[[], float] = time.time) -> None:
        self._path, self._now = folder / FILE, now

    def progress(self) -> TaskProgress | None:
        """Return the progress of the last rebuild; None if none was requested."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=TaskProgress)
        except (OSError, msgspec.MsgspecError):
            return None

    def ask(self) -> None:
        self._write(TaskProgress())

    def is_wanted(self) -> bool:
        progress = self.progress()
        return progress is not None and progress.is_running

    def fail(self, error: str) -> None:
        now = self._now()
        self._write(TaskProgress(started=now, ended=now, error=error))

    @asynccontextmanager
    async def noted(self, total: int, done: Callable[[], int]) -> AsyncIterator[None]:
        """Write the progress and the end of the rebuild that runs in the block.

        A `LycosaError` in the block is not raised, but written and logged.
        """
        progress = TaskProgress(total, started=self._now())
        self._write(progress)
        ticking = asyncio.ensure_future(self._tick(progress, done))
        try:
            yield
        except LycosaError as error:
            _log.error("the index was not rebuilt: %s", error)
            progress.error = str(error)
        finally:
            ticking.cancel()
            progress.done = done()
        progress.ended = self._now()
        self._write(progress)

    async def _tick(self, progress: TaskProgress, done: Callable[[], int]) -> None:
        while True:
            await asyncio.sleep(NOTED_EVERY_S)
            progress.done = done()
            with suppress(IndexFailure):
                self._write(progress)

    def _write(self, progress: TaskProgress) -> None:
        progress.noted = self._now()
        try:
            replace_file(self._path, msgspec.json.encode(progress), sync=False)
        except OSError as error:
            raise IndexFailure(f"{self._path} cannot be written: {error.strerror or error}") from error
