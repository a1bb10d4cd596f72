"""Runs a coroutine on an event loop of asyncio or uvloop. Errors in callbacks fail the test."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""For `params` and `ids` of a fixture."""


def run_on(new_loop: Callable[[], asyncio.AbstractEventLoop], scenario: Awaitable[Any], within_s: float = 60) -> Any:
    """Return the result of a coroutine."""
    errors: list[dict[str, Any]] = []

    async def bounded() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(within_s):
            return await scenario

    with asyncio.Runner(loop_factory=new_loop) as runner:
        result = runner.run(bounded())
    assert errors == []
    return result
