"""Partitions that a Redis Cluster moves to other servers while workers use them (C3, C6).

They move key by key, as with `redis-cli --cluster reshard`. A call in the meantime is executed as a whole, or waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin.open_crawl import open_crawl
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from tests.frontier.contracts.test_frontier import url
from tests.servers.redis import ADDRESS, RedisCluster, RedisServer, redis_cluster, redis_server

pytestmark = pytest.mark.redis

PAGES, PARTITIONS, END_MAX_S = 40, 2, 60.0
MOVES = "the cluster is moving keys to another server: trying again for at most 600 s"
ALL_KEYS = 10_000


class Move:
    """The move of a key's slot from one server of a cluster to another."""

    def __init__(self, cluster: RedisCluster, key: str, target: RedisServer) -> None:
        self.cluster, self.source, self.target = cluster, cluster.owner(key), target
        self.slot = cluster.nodes[0].cli("CLUSTER", "KEYSLOT", key)
        self._set_slot(target, "IMPORTING", self.source.cli("CLUSTER", "MYID"))
        self._set_slot(self.source, "MIGRATING", target.cli("CLUSTER", "MYID"))

    def _set_slot(self, server: RedisServer, *words: str) -> None:
        server.cli("CLUSTER", "SETSLOT", self.slot, *words)

    def move_keys(self, selected: Callable[[str], bool]) -> int:
        """Move the selected keys of the slot. Return how many keys the slot had on the source."""
        keys = self.source.cli("CLUSTER", "GETKEYSINSLOT", self.slot, str(ALL_KEYS)).splitlines()
        for key in filter(selected, keys):
            assert self.source.cli("MIGRATE", ADDRESS, str(self.target.port), key, "0", "10000") in {"OK", "NOKEY"}
        return len(keys)

    def finish(self) -> None:
        """Move the remaining keys, and assign the slot to the target."""
        self.move_keys(all_keys)
        masters = [each for each in self.cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        for server in (self.target, self.source, *masters):
            self._set_slot(server, "NODE", self.target.cli("CLUSTER", "MYID"))


def no_keys(_: str) -> bool:
    return False


def all_but_the_meta_hash(key: str) -> bool:
    return not key.endswith(":m")


def only_the_meta_hash(key: str) -> bool:
    return key.endswith(":m")


def all_keys(_: str) -> bool:
    return True


async def crawl_during_a_move(
    move: Callable[[str], Move], address: str, moved: Callable[[str], bool], number: int
) -> int:
    """Crawl while a partition is being moved, which must be reported. Return the number of done pages."""
    messages: list[str] = []
    crawl = token_hex(4)
    frontier = await redis_frontier(
        address, crawl, Policy(robots=False), Membership("w"), messages.append, partitions=PARTITIONS
    )
    await frontier.push([url(n, f"http://h{n}.example:80") for n in range(PAGES)])
    leases = await frontier.lease(PAGES * 3 // 4, time.time())
    early, leases = leases[::3], [lease for place, lease in enumerate(leases) if place % 3]
    assert {frontier.session.partition_of(lease.record.host).number for lease in early} == {0, 1}
    for lease in early:
        assert await frontier.ack(lease, "200", [], time.time())
    await frontier.session.send()
    current = move(frontier.session.partitions[number].key)
    assert current.move_keys(moved)
    calls = [
        asyncio.create_task(call)
        for call in (frontier.commit({}), frontier.lease(PAGES, time.time()), count_queued(address, crawl, messages))
    ]
    async with asyncio.timeout(END_MAX_S):
        while not any(MOVES in each for each in messages):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert not any(each.done() for each in calls)
    current.finish()
    _, more, queued_during = await asyncio.wait_for(asyncio.gather(*calls), END_MAX_S)
    assert queued_during <= PAGES - len(early) - len(leases)
    for lease in leases + more + await frontier.lease(PAGES, time.time()):
        assert await frontier.ack(lease, "200", [], time.time())
    await frontier.commit({})
    done = (await frontier.stats()).done
    await frontier.close()
    return done


async def count_queued(address: str, crawl: str, messages: list[str]) -> int:
    """Return the number of queued records, as seen from outside the crawl."""
    async with open_crawl(address, crawl, messages.append) as visit:
        return (await RedisOperations(visit.session).stats()).queued


@pytest.mark.parametrize("moved", [no_keys, all_but_the_meta_hash, only_the_meta_hash, all_keys])
@pytest.mark.parametrize("number", range(PARTITIONS))
def test_calls_wait_for_a_moving_partition(cluster: RedisCluster, number: int, moved: Any) -> None:
    def move(key: str) -> Move:
        masters = [each for each in cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        return Move(cluster, key, next(each for each in masters if each is not cluster.owner(key)))

    assert asyncio.run(crawl_during_a_move(move, cluster.url, moved, number)) == PAGES


@pytest.mark.parametrize("moved", [no_keys, all_keys])
def test_a_partition_moves_to_a_server_that_joined_the_cluster_later(
    moved: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The client does not know the server yet when it is redirected there."""
    slow = {"cluster_node_timeout": 10000}  # a slow node on a busy machine does not fail over
    with redis_cluster(**slow) as cluster, redis_server(cluster_enabled="yes", **slow) as new:

        def move(key: str) -> Move:
            new.cli(
                "CLUSTER", "MEET", ADDRESS, str(cluster.nodes[0].port), str(cluster.nodes[0]._options["cluster-port"])
            )
            node_id = new.cli("CLUSTER", "MYID")
            extended = RedisCluster([*cluster.nodes, new])
            while not (
                extended.is_complete() and all(node_id in each.cli("CLUSTER", "NODES") for each in cluster.nodes)
            ):
                time.sleep(0.05)
            return Move(cluster, key, new)

        assert asyncio.run(crawl_during_a_move(move, cluster.url, moved, 0)) == PAGES
    assert "Traceback" not in caplog.text
