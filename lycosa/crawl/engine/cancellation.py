"""Tells a cancellation of the running task from one of a task that it awaits."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Return whether the running task itself is being cancelled, not one that it awaits."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
