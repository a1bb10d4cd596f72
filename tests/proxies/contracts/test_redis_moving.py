"""A target that a Redis Cluster moves to another server while its proxies are leased (P4)."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest

from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.redis.pool import redis_pool
from tests.frontier.contracts.redis.test_moving import END_MAX_S, MOVES, Move, all_keys, no_keys
from tests.servers.redis import RedisCluster

pytestmark = pytest.mark.redis

SITE, PROXIES = "a.example", 4


def member_keys(key: str) -> bool:
    return key.endswith(":p")


@pytest.mark.parametrize("moved", [no_keys, member_keys, all_keys])
def test_no_proxy_is_leased_twice_while_its_target_moves(cluster: RedisCluster, moved: Any) -> None:
    """A call runs with all keys of the target on one server, or waits."""

    async def scenario() -> None:
        reports: list[str] = []
        name = token_hex(4)
        pool = await redis_pool(cluster.url, name, reports.append)
        await pool.add([parse_proxy(f"http://127.0.0.1:{8000 + number}") for number in range(PROXIES)])
        first = await pool.acquire(SITE, PROXIES // 2)
        key = f"lycosa:proxies:{{{name}/{SITE}}}:"
        masters = [each for each in cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        move = Move(cluster, key, next(each for each in masters if each is not cluster.owner(key)))
        assert move.move_keys(moved)
        waiting = asyncio.create_task(pool.acquire(SITE, PROXIES // 2, wait_s=END_MAX_S))
        async with asyncio.timeout(END_MAX_S):
            while not any(MOVES in each for each in reports):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not waiting.done()
        move.finish()
        second = await asyncio.wait_for(waiting, END_MAX_S)
        assert len({lease.proxy.key for lease in [*first, *second]}) == PROXIES
        for lease in [*first, *second]:
            assert await pool.release(lease)
        await pool.close()

    asyncio.run(scenario())
