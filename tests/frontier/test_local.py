"""The statistics of a frontier in this process (F8)."""

from __future__ import annotations

import asyncio

from lycosa.frontier.memory import memory_frontier
from tests.frontier.contracts.test_frontier import HOST, OTHER, PLAIN, url


def test_the_stats_say_until_when_all_hosts_with_work_are_blocked() -> None:
    async def scenario() -> None:
        frontier = memory_frontier(PLAIN)
        await frontier.push([url(1), url(2, OTHER)])
        await frontier.block_host(HOST, 60.0)
        await frontier.lease(0, 50.0)
        assert (await frontier.stats()).blocked_until == 0.0
        await frontier.block_host(OTHER, 90.0)
        assert (await frontier.stats()).blocked_until == 60.0

    asyncio.run(scenario())
