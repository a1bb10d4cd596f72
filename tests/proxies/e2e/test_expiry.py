"""Dead proxies are forgotten while the pool is in use."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import FORGOTTEN_MAX
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.expiry import forget_dead
from lycosa.proxies.memory.pool import LocalPool

BATCHES = 4


def test_other_tasks_run_between_batches_of_forgotten_proxies() -> None:
    async def main() -> None:
        pool = LocalPool(lambda _: TargetPolicy())
        dead = (Proxy("http", "10.0.0.1", port) for port in range(1, BATCHES * FORGOTTEN_MAX + 1))
        await pool.add(dead, unchecked=True)
        steps, batch_steps = 0, []

        def on_forgotten(keys: Sequence[str]) -> None:
            batch_steps.append(steps)

        forgetting = asyncio.create_task(forget_dead(pool, 0.0, on_forgotten))
        while await pool.count():
            await asyncio.sleep(0)
            steps += 1
        forgetting.cancel()
        assert len(set(batch_steps)) == len(batch_steps) == BATCHES

    asyncio.run(main())
