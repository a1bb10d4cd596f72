"""Run calls that may block forever in daemon threads, which end with the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class OwnThread:
    """Runs one call at a time. If its caller is cancelled, the thread continues: do not call again while `is_busy`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_busy = False

    async def call(self, function: Callable[[], Result]) -> Result:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                deliver = partial(future.set_result, function())
            except BaseException as error:  # noqa: BLE001  raised in the caller
                deliver = partial(future.set_exception, _as_exception(error))
            self.is_busy = False  # before the caller resumes, since it may call again at once
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_unless_done, future, deliver)

        self.is_busy = True
        Thread(target=run, name=self._name, daemon=True).start()
        return await future


def _unless_done(future: asyncio.Future[Result], deliver: Callable[[], None]) -> None:
    if not future.done():
        deliver()


def _as_exception(error: BaseException) -> BaseException:
    """Replace StopIteration, which a future refuses, and errors that would end the event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
