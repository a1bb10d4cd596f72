"""What a worker of a crawl on Redis does that stood still, or hears late how the crawl is (C3, C6)."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontiers.redis.joining import simulated_frontier
from tests.contracts.redis_client import LooplessClient
from tests.contracts.test_frontier import PLAIN, run, url

pytestmark = pytest.mark.redis

TURNS = 20
"""Of the loop, in which whatever can happen happens."""


class Late(LooplessClient):
    """A client to which the answers to those who only look come late."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.gate = asyncio.Event()

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command."""
        said = self._real.execute_command(*arguments)
        if "outlook" in arguments:
            await self.gate.wait()
        return said


def test_what_is_heard_late_is_not_taken_for_what_is(redis) -> None:
    """Else a worker could end although there is something to do."""

    async def story() -> None:
        client, name = Late(redis.url), token_hex(8)
        one = await simulated_frontier(client, name, PLAIN, 0.0, worker="one")
        other = await simulated_frontier(LooplessClient(redis.url), name, PLAIN, 0.0, worker="other")
        late = asyncio.create_task(one.session.outlook())
        await asyncio.sleep(0)
        await other.push([url(1)])
        now = asyncio.create_task(one.session.look())
        for _ in range(TURNS):
            await asyncio.sleep(0)
        client.gate.set()
        await asyncio.gather(late, now)
        assert one.session.is_live()
        assert not await one.session.is_over()

    run(story())
