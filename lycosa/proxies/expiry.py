"""Regularly forgets proxies that have been dead for a long time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from lycosa.core.errors import StateError
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

ROUND_S = 60.0


async def forget_dead(
    pool: ProxyPool, kept_s: float, on_forgotten: Callable[[Sequence[str]], None], round_s: float = ROUND_S
) -> None:
    """Forget dead proxies every `round_s` until cancelled, and call `on_forgotten` with their keys.

    An unreachable pool is tried again in the next round.
    """
    while True:
        try:
            while keys := await pool.forget_dead(kept_s):
                on_forgotten(keys)
                await asyncio.sleep(0)  # calls to a pool in memory never yield to the loop
        except StateError as error:
            log.warning("cannot forget dead proxies: %s", error)
        await asyncio.sleep(round_s)
