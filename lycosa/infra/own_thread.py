"""Calls that may block for ever, each in a daemon thread of its own, which ends with the process at the latest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class OwnThread:
    """One call at a time. If its caller is cancelled, the thread goes on; the next call has to wait for `is_busy`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_busy = False

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return what the function returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                deliver = partial(future.set_result, function())
            except BaseException as error:  # noqa: BLE001  raised in the caller
                deliver = partial(future.set_exception, _as_exception(error))
            self.is_busy = False  # before the caller goes on, and may call again
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(_unless_done, future, deliver)

        self.is_busy = True
        Thread(target=run, name=self._name, daemon=True).start()
        return await future


def _unless_done(future: asyncio.Future[Result], deliver: Callable[[], None]) -> None:
    """Deliver the outcome, unless the caller was cancelled."""
    if not future.done():
        deliver()


def _as_exception(error: BaseException) -> BaseException:
    """Return an error that a future accepts: no StopIteration, and nothing that would end the event loop."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
