"""Who is cancelled: the task that runs, or one that it waits for."""

from __future__ import annotations

import asyncio


def is_being_cancelled() -> bool:
    """Return whether somebody cancels the task that runs: not one that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
