"""Lets a pool forget its dead proxies, again and again: those that no check has found well for a long time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from lycosa.core.errors import StateError
from lycosa.proxies.ports import ProxyPool

log = logging.getLogger(__name__)

ROUND_S = 60.0
"""How often is looked for them."""


async def forget_dead(
    pool: ProxyPool, kept_s: float, forgotten: Callable[[Sequence[str]], None], round_s: float = ROUND_S
) -> None:
    """Go on until cancelled; `forgotten` hears the keys of those that are gone. A pool that is away is waited for."""
    while True:
        try:
            while keys := await pool.forget_dead(kept_s):
                forgotten(keys)
                await asyncio.sleep(0)  # a pool in memory gives nobody else a turn
        except StateError as error:
            log.warning("dead proxies are not forgotten: %s", error)
        await asyncio.sleep(round_s)
