"""Detects the cancellation of the running task."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Whether the running task itself is being cancelled, rather than a task that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
