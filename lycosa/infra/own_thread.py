"""Calls that may block for ever, each in a thread of its own, which ends with the process at the latest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class OwnThread:
    """One call at a time. Who waits may stop waiting; the thread goes on, and no other begins before it has ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_busy = False

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return what the function returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                told = partial(future.set_result, function())
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                told = partial(future.set_exception, _plain(error))
            self.is_busy = False
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_unless_done, future, told)

        self.is_busy = True
        Thread(target=run, name=self._name, daemon=True).start()
        return await future


def _unless_done(future: asyncio.Future[Result], told: Callable[[], None]) -> None:
    """Nobody may be waiting any more."""
    if not future.done():
        told()


def _plain(error: BaseException) -> BaseException:
    """Return an error that a future can hold."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
