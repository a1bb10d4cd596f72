"""How long who serves others waits for a pool, whose store may be away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lycosa.core.errors import StateError

STORE_TIMEOUT_S = 8.0
"""A pool whose store is away is given up so long after the time that somebody would wait for a proxy."""

T = TypeVar("T")


async def with_store_timeout(answer: Awaitable[T], waits_s: float = 0.0) -> T:
    """Wait for what a pool answers. Raises `StateError` when it does not: it may wait for its store."""
    most_s = waits_s + STORE_TIMEOUT_S
    try:
        async with asyncio.timeout(most_s):
            return await answer
    except TimeoutError:
        raise StateError(f"the pool did not answer within {most_s:g} s: its store may be away") from None
