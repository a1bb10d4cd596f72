"""Partitions of a crawl that a Redis Cluster moves to other servers while workers are at it (C3, C6).

As `redis-cli --cluster reshard` does it: key by key. A call that comes meanwhile happens as a whole, or waits.
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
MOVES = "the cluster is moving keys of this to another server: trying again for at most 600 s"
EVERY = 10_000


class Move:
    """The slot of a key, on its way from one server of a cluster to another."""

    def __init__(self, cluster: RedisCluster, key: str, to: RedisServer) -> None:
        self.cluster, self.source, self.to = cluster, cluster.owner(key), to
        self.slot = cluster.nodes[0].cli("CLUSTER", "KEYSLOT", key)
        self._say(to, "IMPORTING", self.source.cli("CLUSTER", "MYID"))
        self._say(self.source, "MIGRATING", to.cli("CLUSTER", "MYID"))

    def _say(self, server: RedisServer, *words: str) -> None:
        server.cli("CLUSTER", "SETSLOT", self.slot, *words)

    def carry(self, which: Callable[[str], bool]) -> int:
        """Move these of the keys. Return how many."""
        keys = self.source.cli("CLUSTER", "GETKEYSINSLOT", self.slot, str(EVERY)).splitlines()
        for key in filter(which, keys):
            assert self.source.cli("MIGRATE", ADDRESS, str(self.to.port), key, "0", "10000") in {"OK", "NOKEY"}
        return len(keys)

    def end(self) -> None:
        """Move the others: the slot is there."""
        self.carry(everything)
        masters = [each for each in self.cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        for server in (self.to, self.source, *masters):
            self._say(server, "NODE", self.to.cli("CLUSTER", "MYID"))


def nothing(_: str) -> bool:
    return False


def all_but_the_first_hash(key: str) -> bool:
    return not key.endswith(":m")


def the_first_hash(key: str) -> bool:
    return key.endswith(":m")


def everything(_: str) -> bool:
    return True


async def crawled_while(move: Callable[[str], Move], address: str, moved: Callable[[str], bool], number: int) -> int:
    """Crawl, and ask in the middle of a move of one partition, which is said. Return how many pages are done."""
    said: list[str] = []
    crawl = token_hex(4)
    frontier = await redis_frontier(
        address, crawl, Policy(robots=False), Membership("w"), said.append, partitions=PARTITIONS
    )
    await frontier.push([url(n, f"http://h{n}.example:80") for n in range(PAGES)])
    leases = await frontier.lease(PAGES // 2, time.time())
    going = move(frontier.session.partitions[number].key)
    assert going.carry(moved)
    asked = [asyncio.create_task(act) for act in (frontier.lease(PAGES, time.time()), queued(address, crawl, said))]
    async with asyncio.timeout(END_MAX_S):
        while not any(MOVES in each for each in said):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert not any(each.done() for each in asked)
    going.end()
    more, before = await asyncio.wait_for(asyncio.gather(*asked), END_MAX_S)
    assert before <= PAGES - len(leases)
    for lease in leases + more + await frontier.lease(PAGES, time.time()):
        assert await frontier.ack(lease, "200", [], time.time())
    await frontier.commit({})
    done = (await frontier.stats()).done
    await frontier.close()
    return done


async def queued(address: str, crawl: str, said: list[str]) -> int:
    """Return how much is queued, as somebody sees it who takes no part."""
    async with open_crawl(address, crawl, said.append) as visit:
        return (await RedisOperations(visit.session).stats()).queued


@pytest.mark.parametrize("moved", [nothing, all_but_the_first_hash, the_first_hash, everything])
@pytest.mark.parametrize("number", range(PARTITIONS))
def test_a_partition_that_moves_is_waited_for(cluster: RedisCluster, number: int, moved: Any) -> None:
    def move(key: str) -> Move:
        masters = [each for each in cluster.nodes if "role:master" in each.cli("INFO", "replication")]
        return Move(cluster, key, next(each for each in masters if each is not cluster.owner(key)))

    assert asyncio.run(crawled_while(move, cluster.url, moved, number)) == PAGES


@pytest.mark.parametrize("moved", [nothing, everything])
def test_one_that_moves_to_a_server_that_is_new(moved: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The client has not heard of it when it is sent there."""
    with redis_cluster() as cluster, redis_server(cluster_enabled="yes", cluster_node_timeout=1000) as new:

        def move(key: str) -> Move:
            new.cli(
                "CLUSTER", "MEET", ADDRESS, str(cluster.nodes[0].port), str(cluster.nodes[0]._options["cluster-port"])
            )
            me = new.cli("CLUSTER", "MYID")
            all_of_it = RedisCluster([*cluster.nodes, new])
            while not (all_of_it.is_whole() and all(me in each.cli("CLUSTER", "NODES") for each in cluster.nodes)):
                time.sleep(0.05)
            return Move(cluster, key, new)

        assert asyncio.run(crawled_while(move, cluster.url, moved, 0)) == PAGES
    assert "Traceback" not in caplog.text
