"""Calls whose task is cancelled: some must end then, others must run to their end all the same.

`asyncio.wait_for` of Python 3.11, with which redis-py sends commands, returns the result if that arrives in the moment
in which the task is cancelled: the cancellation is lost, and a task that makes call after call never ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from lycosa.core.errors import StateError

Call = Callable[[], Awaitable[Any]]
Result = TypeVar("Result")


def preserve_cancellation(retry: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
    """Return `retry`, which makes a call; if its task is cancelled meanwhile it raises `CancelledError` in any case."""

    async def preserving(call: Call) -> Any:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        result = await retry(call)
        if task and task.cancelling() > before:
            raise asyncio.CancelledError
        return result

    return preserving


class ShieldedCalls:
    """Runs calls that change something on both sides, and are half done without their answer.

    They go on when the caller is cancelled. If such a call fails, the next one raises its error.
    """

    def __init__(self) -> None:
        self._orphans: set[asyncio.Task[Any]] = set()
        self._error: StateError | None = None

    async def __call__(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Return the result of the call. Raises its error, or that of an earlier one whose caller was cancelled."""
        if self._error is not None:
            error, self._error = self._error, None
            call.close()
            raise error
        task = asyncio.create_task(call)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._orphans.add(task)
            task.add_done_callback(self._orphan_ended)
            raise
        return task.result()

    async def wait(self) -> None:
        """Wait for calls whose callers were cancelled."""
        if self._orphans:
            await asyncio.wait(self._orphans)

    def _orphan_ended(self, task: asyncio.Task[Any]) -> None:
        self._orphans.discard(task)
        if not task.cancelled() and isinstance(task.exception(), StateError):
            self._error = task.exception()  # type: ignore[assignment]
