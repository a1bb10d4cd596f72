"""Calls that end when their task is cancelled.

`asyncio.wait_for` of Python 3.11, with which redis-py sends commands, returns what it waited for when that is done in
the same moment in which the task is cancelled: the cancellation is lost, and a task that calls again and again goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Act = Callable[[], Awaitable[Any]]


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
