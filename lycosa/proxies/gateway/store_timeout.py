"""A timeout for calls to a pool whose store may be unreachable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from lycosa.core.errors import StateError

STORE_TIMEOUT_S = 8.0
"""In seconds, in addition to the time that the call itself may wait for a proxy."""

T = TypeVar("T")


async def with_store_timeout(call: Awaitable[T], wait_s: float = 0.0) -> T:
    """Return the result of a call to a pool. Raises `StateError` after `wait_s` + STORE_TIMEOUT_S."""
    timeout_s = wait_s + STORE_TIMEOUT_S
    try:
        async with asyncio.timeout(timeout_s):
            return await call
    except TimeoutError:
        raise StateError(f"the pool did not answer within {timeout_s:g} s: its store may be unreachable") from None
