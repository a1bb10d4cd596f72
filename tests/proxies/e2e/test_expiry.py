"""Dead proxies are forgotten while the pool is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import FORGOTTEN_MAX
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.expiry import forget_dead
from lycosa.proxies.memory.pool import LocalPool

PARTS = 4


def test_other_tasks_run_between_the_batches() -> None:
    async def story() -> None:
        pool = LocalPool(lambda _: TargetPolicy())
        dead = (Proxy("http", "10.0.0.1", port) for port in range(1, PARTS * FORGOTTEN_MAX + 1))
        await pool.add(dead, unchecked=True)
        turns, at = 0, []

        def forgotten(keys: Sequence[str]) -> None:
            at.append(turns)

        forgetting = asyncio.create_task(forget_dead(pool, 0.0, forgotten))
        while await pool.count():
            await asyncio.sleep(0)
            turns += 1
        forgetting.cancel()
        assert len(set(at)) == len(at) == PARTS

    asyncio.run(story())
