"""Cancellation of calls: `preserve_cancellation` keeps it from being lost, `ShieldedCalls` lets the call finish.

redis-py uses `asyncio.wait_for`. In Python 3.11, it returns normally if the result arrives just when the task is
cancelled. The cancellation is lost, and a task that makes one call after another never ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

Call = Callable[[], Awaitable[Any]]
Result = TypeVar("Result")


def preserve_cancellation(retry: Callable[[Call], Awaitable[Any]]) -> Callable[[Call], Awaitable[Any]]:
    """Wrap `retry`, a function that makes a call.

    The wrapper raises `CancelledError` instead of returning if the task was cancelled during the call.
    """

    async def preserving(call: Call) -> Any:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        result = await retry(call)
        if task and task.cancelling() > before:
            raise asyncio.CancelledError
        return result

    return preserving


class ShieldedCalls:
    """Runs calls that change state on the server and in this process: each must run until its answer is processed.

    If the caller is cancelled, its call continues. If that call then fails, the next call raises its error.
    """

    def __init__(self) -> None:
        self._orphans: set[asyncio.Task[Any]] = set()
        self._error: Exception | None = None

    async def __call__(self, call: Coroutine[Any, Any, Result]) -> Result:
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

    async def to_the_end(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Make a call. If the caller is cancelled, wait for the end of the call first; if again, leave it to itself."""
        task = asyncio.create_task(self(call))
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            try:
                await asyncio.wait([task])
            finally:
                task.cancel()  # does nothing if it has ended
            if not task.cancelled() and isinstance(error := task.exception(), Exception):
                self._error = error
            raise
        return task.result()

    async def wait(self) -> None:
        """Wait for calls whose callers were cancelled."""
        if self._orphans:
            await asyncio.wait(self._orphans)

    def _orphan_ended(self, task: asyncio.Task[Any]) -> None:
        self._orphans.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._error = error
