"""Repeated and lost calls of a frontier on Redis (C3, C6): cases that `test_redis_history` found, one by one."""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import StorageError, WorkerLost
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.repair import expire_unknown_workers
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.sim.redis.test_redis_history import shrink_script
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

NOW = 1e9
POLICY = Policy(0.0, 8, 1e6, robots=False)
RECORDS = [UrlRecord(1, n, f"http://h{n}.example:80/", f"http://h{n}.example:80") for n in (1, 3, 7)]
"""One in each of three partitions."""


async def joined(url: str, crawl: str, worker: str) -> Any:
    """Join the crawl as this worker, and return its frontier."""
    return await simulated_frontier(LooplessClient(url), crawl, POLICY, NOW, worker=worker, partitions=3)


async def work(frontier: Any) -> None:
    """Lease, ack and commit everything. The other partitions have not applied the commit yet."""
    await frontier.push(RECORDS)
    for lease in await frontier.lease(10, NOW):
        await frontier.ack(lease, "200", [], NOW)
    await frontier.commit({})


async def counts(frontier: Any) -> dict[str, int]:
    """Return the counts by state, once all partitions know which workers expired."""
    session = frontier.session
    await session.refresh()
    await session.announce_expired()
    await session.refresh()
    return {name: session.total(name) for name in ("queued", "leased", "uncommitted", "done") if session.total(name)}


def test_a_worker_that_leaves_twice_keeps_its_commit(redis):
    async def scenario() -> None:
        crawl = token_hex(4)
        first, second = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await work(first)
        await first.session.calls.run(first.session.partitions[0], "leave")
        await first.session.calls.run(first.session.partitions[0], "leave")
        assert await counts(second) == {"done": 3}
        assert await second.session.is_finished()

    asyncio.run(scenario())


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_late_exchange_expires_no_worker(redis, partition):
    async def scenario() -> None:
        frontier = await joined(redis.url, token_hex(4), "one")
        await work(frontier)
        with pytest.raises(WorkerLost):
            await frontier.session.calls.run(frontier.session.partitions[partition], "exchange", 1, "", 0, 0, 0)
        assert await counts(frontier) == {"done": 3}

    asyncio.run(scenario())


@pytest.mark.parametrize("partition", [1, 2])
def test_a_missing_exchange_reverts_no_commit(redis, partition):
    async def scenario() -> None:
        crawl = token_hex(4)
        first, second = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await work(first)
        with pytest.raises(WorkerLost):
            await first.session.calls.run(first.session.partitions[partition], "exchange", 99, "", 0, 0, 0)
        with pytest.raises(WorkerLost):
            await first.session.refresh()
        await first.session.leave()
        assert await counts(second) == {"done": 3}

    asyncio.run(scenario())


def test_a_repeated_exchange_requeues_the_leases_of_a_worker_that_it_expires(redis):
    async def scenario() -> None:
        crawl = token_hex(4)
        silent, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await silent.push(RECORDS)
        assert len(await silent.lease(10, NOW)) == 3
        for late_s in (0.9, 1.8):
            other.session.now = NOW + late_s
            await other.session.refresh()
        other.session.now = NOW + 2.1
        first = other.session.partitions[0]
        first.serial -= 1
        await other.session.calls.run(first, "exchange", first.serial + 1, "", 0, 0, 0)
        first.serial += 1
        assert await counts(other) == {"queued": 3}

    asyncio.run(scenario())


def test_a_worker_that_all_partitions_lost_is_expired(redis):
    """After failovers the first partition no longer knows that the worker joined, and the other partitions have lost
    some of its exchanges. The worker never comes back.
    """

    async def scenario() -> None:
        crawl = token_hex(4)
        lost, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await lost.push(RECORDS)
        assert len(await lost.lease(10, NOW)) == 3
        first, *others = lost.session.partitions
        for partition in others:
            with pytest.raises(WorkerLost):
                await lost.session.calls.run(partition, "exchange", 99, "", 0, 0, 0)
        lost.session.calls.client.blocking.zrem(first.key + Key.WORKERS, first.worker)
        lost.session.calls.client.blocking.hdel(first.key + Key.SERIALS, first.worker)
        await expire_unknown_workers(other.session.calls, other.session.partitions)
        await other.session.announce_expired()
        await other.session.refresh()
        assert [each.counts["leased"] for each in other.session.partitions[1:]] == [0, 0]

    asyncio.run(scenario())


def test_a_slow_delivery_is_overtaken_by_a_faster_one(redis, monkeypatch):
    """The other worker delivers so many records that the first of them are trimmed."""
    shrink_script(redis.url, monkeypatch, ("RETAINED_MAX = 100000", "RETAINED_MAX = 100"))

    async def scenario() -> None:
        crawl = token_hex(4)
        slow, fast = await joined(redis.url, crawl, "slow"), await joined(redis.url, crawl, "fast")
        calls, (source, target, _) = slow.session.calls, slow.session.partitions
        parent, child = (
            each for part in (source, target) for each in RECORDS if slow.session.partition_of(each.host) is part
        )
        children = [UrlRecord(1, 100 + n, f"{child.url}{n}", child.host) for n in range(300)]
        await slow.push([parent])
        (lease,) = await slow.lease(1, NOW)
        await slow.ack(lease, "200", children, NOW)
        await slow.session.send()
        run, commands = calls.run, []

        async def overtake(partition: Any, command: str, *arguments: Any) -> Any:
            commands.append(command)
            if commands.count("read_outbox") == 2 and command == "read_outbox":
                await fast.session.calls.deliver(*fast.session.partitions[:2])
            return await run(partition, command, *arguments)

        monkeypatch.setattr(calls, "run", overtake)
        await calls.deliver(source, target)
        assert calls.client.blocking.llen(f"{source.key}{Key.OUTBOX}{target.number}") == 100
        await slow.session.refresh()
        assert (source.counts["outgoing"], target.counts["queued"]) == (0, 300)

    asyncio.run(scenario())


@pytest.mark.parametrize("partition", [0, 1])
def test_a_commit_that_no_replica_has_is_not_decided(redis, partition):
    """The replica of one partition takes over while the worker waits for replication: all pages of the commit go
    back to the queues.
    """

    class ReplicaTakesOver:
        """Replaces the wait for replicas."""

        async def wait(self, partitions: Any) -> None:
            """Fail over to a replica that lacks the last writes."""
            if any(each.number == partition for each in partitions):
                server.delete(*server.scan_iter(key + "*"))
                for each, value in replica.items():
                    server.restore(each, 0, value)

    async def scenario() -> None:
        nonlocal server, key
        crawl = token_hex(4)
        first, second = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        server, key = first.session.calls.client.blocking, first.session.partitions[partition].key
        await first.push(RECORDS)
        for lease in await first.lease(10, NOW):
            await first.ack(lease, "200", [], NOW)
        await first.session.send()
        replica.update({each: server.dump(each) for each in server.scan_iter(key + "*")})
        first.commits.replicas = ReplicaTakesOver()
        with pytest.raises(WorkerLost):
            await first.commit({"items": 3})
        await first.session.leave()
        assert await counts(second) == {"queued": 3}
        assert await second.commits.positions() == {}
        assert await first.commits.positions() == {}

    replica: dict[bytes, bytes] = {}
    server: Any = None
    key = ""
    asyncio.run(scenario())


def test_a_commit_in_a_lost_exchange_is_not_confirmed(redis, monkeypatch):
    """Another task of the process sent the commit together with its own call, and got no response."""

    async def scenario() -> None:
        frontier = await simulated_frontier(LooplessClient(redis.url), token_hex(4), POLICY, NOW, worker="one")
        await frontier.push(RECORDS)
        for lease in await frontier.lease(10, NOW):
            await frontier.ack(lease, "200", [], NOW)
        calls, (first,) = frontier.session.calls, frontier.session.partitions
        run = calls.run

        async def fail(*_: Any) -> Any:
            monkeypatch.setattr(calls, "run", run)
            raise StorageError("no answer")

        monkeypatch.setattr(calls, "run", fail)
        async with calls._exchange_lock:
            other = asyncio.create_task(frontier.session.refresh())
            await asyncio.sleep(0)
            commit = asyncio.create_task(frontier.commit({}))
            await asyncio.sleep(0)
        with pytest.raises(StorageError):
            await other
        with pytest.raises(WorkerLost):
            await commit
        assert first.waiting_verbs == 0

    asyncio.run(scenario())
