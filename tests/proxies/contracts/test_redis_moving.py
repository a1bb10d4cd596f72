"""A target that a Redis Cluster moves to another server while its proxies are lent (P4)."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest

from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.redis.pool import redis_pool
from tests.frontier.contracts.redis.test_moving import END_MAX_S, MOVES, Move, everything, nothing
from tests.servers.redis import RedisCluster

pytestmark = pytest.mark.redis

SITE, PROXIES = "a.example", 4


def the_pairs(key: str) -> bool:
    return key.endswith(":p")


@pytest.mark.parametrize("moved", [nothing, the_pairs, everything])
def test_nobody_has_a_proxy_of_somebody_else_while_it_moves(cluster: RedisCluster, moved: Any) -> None:
    """The one call happens on all that is known of the target, or waits."""

    async def story() -> None:
        said: list[str] = []
        name = token_hex(4)
        pool = await redis_pool(cluster.url, name, said.append)
        await pool.add([parse_proxy(f"http://127.0.0.1:{8000 + number}") for number in range(PROXIES)])
        first = await pool.acquire(SITE, PROXIES // 2)
        key = f"lycosa:proxies:{{{name}/{SITE}}}:"
        masters = [each for each in cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        going = Move(cluster, key, next(each for each in masters if each is not cluster.owner(key)))
        assert going.carry(moved)
        asking = asyncio.create_task(pool.acquire(SITE, PROXIES // 2, wait_s=END_MAX_S))
        async with asyncio.timeout(END_MAX_S):
            while not any(MOVES in each for each in said):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not asking.done()
        going.end()
        second = await asyncio.wait_for(asking, END_MAX_S)
        assert len({lease.proxy.key for lease in [*first, *second]}) == PROXIES
        for lease in [*first, *second]:
            assert await pool.release(lease)
        await pool.close()

    asyncio.run(story())
