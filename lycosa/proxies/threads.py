"""Calls that may block for ever, each in a thread of its own, which ends with the process at the latest."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


class OwnThread:
    """One call at a time. Who waits may stop waiting; the thread goes on, and no other begins before it has ended."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether an earlier call has not ended."""
        return self._thread is not None and self._thread.is_alive()

    async def call(self, function: Callable[[], Result]) -> Result:
        """Return what the function returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                result = function()
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                _tell(loop, future, lambda error=error: future.set_exception(_plain(error)))
            else:
                _tell(loop, future, lambda: future.set_result(result))

        self._thread = Thread(target=run, name=self._name, daemon=True)
        self._thread.start()
        return await future


def _tell(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Result], act: Callable[[], None]) -> None:
    """Let the loop know, if it still runs and somebody waits."""

    def unless_done() -> None:
        if not future.done():
            act()

    try:
        loop.call_soon_threadsafe(unless_done)
    except RuntimeError:
        return  # the loop is closed


def _plain(error: BaseException) -> BaseException:
    """Return an error that a future can hold."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
