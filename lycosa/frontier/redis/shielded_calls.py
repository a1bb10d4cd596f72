"""Calls whose task is cancelled: those that end then, and those that are brought to their end all the same.

`asyncio.wait_for` of Python 3.11, with which redis-py sends commands, returns what it waited for when that is done in
the same moment in which the task is cancelled: the cancellation is lost, and a task that calls again and again goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from lycosa.core.errors import StateError

Act = Callable[[], Awaitable[Any]]
Answer = TypeVar("Answer")


def heeding(call: Callable[[Act], Awaitable[Any]]) -> Callable[[Act], Awaitable[Any]]:
    """Return the same call; one during which its task was cancelled raises `CancelledError`."""

    async def heeded(act: Act) -> Any:
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        answer = await call(act)
        if task and task.cancelling() > before:
            raise asyncio.CancelledError
        return answer

    return heeded


class Unbroken:
    """Calls that change something on both sides, and are half done without their answer.

    They go on when who waits for one is cancelled. What goes wrong with it then, the next one raises.
    """

    def __init__(self) -> None:
        self._alone: set[asyncio.Task[Any]] = set()
        self._wrong: StateError | None = None

    async def __call__(self, call: Coroutine[Any, Any, Answer]) -> Answer:
        """Do it. Raises what it raises, or what the one before did."""
        if self._wrong is not None:
            wrong, self._wrong = self._wrong, None
            call.close()
            raise wrong
        task = asyncio.create_task(call)
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            self._alone.add(task)
            task.add_done_callback(self._ended)
            raise
        return task.result()

    async def ended(self) -> None:
        """Wait for those that nobody waits for."""
        if self._alone:
            await asyncio.wait(self._alone)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._alone.discard(task)
        if not task.cancelled() and isinstance(task.exception(), StateError):
            self._wrong = task.exception()  # type: ignore[assignment]
