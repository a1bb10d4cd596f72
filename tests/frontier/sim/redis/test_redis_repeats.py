"""Calls of a frontier on Redis that come once more (C3, C6): what `test_redis_history` found, each by itself."""

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
from tests.frontier.sim.redis.test_redis_history import shrunk
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

NOW = 1e9
POLICY = Policy(0.0, 8, 1e6, robots=False)
RECORDS = [UrlRecord(1, n, f"http://h{n}.example:80/", f"http://h{n}.example:80") for n in (1, 3, 7)]
"""One in each of three partitions."""


async def joined(url: str, crawl: str, worker: str) -> Any:
    """Return a worker's frontier."""
    return await simulated_frontier(LooplessClient(url), crawl, POLICY, NOW, worker=worker, partitions=3)


async def work(frontier: Any) -> None:
    """Lend, ack and commit everything; the other partitions are not told yet."""
    await frontier.push(RECORDS)
    for lease in await frontier.lease(10, NOW):
        await frontier.ack(lease, "200", [], NOW)
    await frontier.commit({})


async def counts(frontier: Any) -> dict[str, int]:
    """Return how much there is of what, when everybody knows who is gone."""
    session = frontier.session
    await session.refresh()
    await session.announce_expired()
    await session.refresh()
    return {name: session.total(name) for name in ("queued", "leased", "uncommitted", "done") if session.total(name)}


def test_who_leaves_twice_has_committed_what_it_has(redis):
    async def play() -> None:
        crawl = token_hex(4)
        one, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await work(one)
        await one.session.calls.run(one.session.partitions[0], "leave")
        await one.session.calls.run(one.session.partitions[0], "leave")
        assert await counts(other) == {"done": 3}
        assert await other.session.is_finished()

    asyncio.run(play())


@pytest.mark.parametrize("partition", [0, 1, 2])
def test_a_late_exchange_buries_nobody(redis, partition):
    async def play() -> None:
        one = await joined(redis.url, token_hex(4), "one")
        await work(one)
        with pytest.raises(WorkerLost):
            await one.session.calls.run(one.session.partitions[partition], "exchange", 1, 0, 0, 0)
        assert await counts(one) == {"done": 3}

    asyncio.run(play())


@pytest.mark.parametrize("partition", [1, 2])
def test_a_missing_exchange_takes_back_nothing_that_was_committed(redis, partition):
    async def play() -> None:
        crawl = token_hex(4)
        one, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await work(one)
        with pytest.raises(WorkerLost):
            await one.session.calls.run(one.session.partitions[partition], "exchange", 99, 0, 0, 0)
        with pytest.raises(WorkerLost):
            await one.session.refresh()
        await one.session.leave()
        assert await counts(other) == {"done": 3}

    asyncio.run(play())


def test_a_repeated_exchange_keeps_what_it_took_from_the_silent(redis):
    async def play() -> None:
        crawl = token_hex(4)
        one, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await one.push(RECORDS)
        assert len(await one.lease(10, NOW)) == 3
        for late_s in (0.9, 1.8):
            other.session.now = NOW + late_s
            await other.session.refresh()
        other.session.now = NOW + 2.1
        first = other.session.partitions[0]
        first.serial -= 1
        await other.session.calls.run(first, "exchange", first.serial + 1, 0, 0, 0)
        first.serial += 1
        assert await counts(other) == {"queued": 3}

    asyncio.run(play())


def test_who_all_partitions_have_lost_is_given_up(redis):
    """Replicas took over: the first has lost that it joined, the others some exchange. It never comes back."""

    async def play() -> None:
        crawl = token_hex(4)
        one, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        await one.push(RECORDS)
        assert len(await one.lease(10, NOW)) == 3
        first, *others = one.session.partitions
        for partition in others:
            with pytest.raises(WorkerLost):
                await one.session.calls.run(partition, "exchange", 99, 0, 0, 0)
        one.session.calls.client.blocking.zrem(first.key + Key.WORKERS, first.worker)
        one.session.calls.client.blocking.hdel(first.key + Key.SERIALS, first.worker)
        await expire_unknown_workers(other.session.calls, other.session.partitions)
        await other.session.announce_expired()
        await other.session.refresh()
        assert [each.counts["leased"] for each in other.session.partitions[1:]] == [0, 0]

    asyncio.run(play())


def test_who_brings_records_slowly_is_overtaken(redis, monkeypatch):
    """By others that bring so many that the first of them are not kept any more."""
    shrunk(redis.url, monkeypatch, ("RETAINED_MAX = 100000", "RETAINED_MAX = 100"))

    async def play() -> None:
        crawl = token_hex(4)
        slow, fast = await joined(redis.url, crawl, "slow"), await joined(redis.url, crawl, "fast")
        wire, (source, target, _) = slow.session.calls, slow.session.partitions
        parent, child = (
            each for part in (source, target) for each in RECORDS if slow.session.partition_of(each.host) is part
        )
        children = [UrlRecord(1, 100 + n, f"{child.url}{n}", child.host) for n in range(300)]
        await slow.push([parent])
        (lease,) = await slow.lease(1, NOW)
        await slow.ack(lease, "200", children, NOW)
        await slow.session.send()
        run, asked = wire.run, []

        async def overtaken(partition: Any, command: str, *arguments: Any) -> Any:
            asked.append(command)
            if asked.count("read_outbox") == 2 and command == "read_outbox":
                await fast.session.calls.deliver(*fast.session.partitions[:2])
            return await run(partition, command, *arguments)

        monkeypatch.setattr(wire, "run", overtaken)
        await wire.deliver(source, target)
        assert wire.client.blocking.llen(f"{source.key}{Key.OUTBOX}{target.number}") == 100
        await slow.session.refresh()
        assert (source.counts["outgoing"], target.counts["queued"]) == (0, 300)

    asyncio.run(play())


@pytest.mark.parametrize("partition", [0, 1])
def test_a_commit_that_was_lost_before_replicas_had_it_goes_no_further(redis, partition):
    """The replica of one partition takes over while the worker waits for it: all pages of the commit go back."""

    class TakesOver:
        """Waits for replicas."""

        async def wait(self, partitions: Any) -> None:
            """Let one take over that lacks what was written last."""
            if any(each.number == partition for each in partitions):
                server.delete(*server.scan_iter(key + "*"))
                for each, value in replica.items():
                    server.restore(each, 0, value)

    async def play() -> None:
        nonlocal server, key
        crawl = token_hex(4)
        one, other = await joined(redis.url, crawl, "one"), await joined(redis.url, crawl, "other")
        server, key = one.session.calls.client.blocking, one.session.partitions[partition].key
        await one.push(RECORDS)
        for lease in await one.lease(10, NOW):
            await one.ack(lease, "200", [], NOW)
        await one.session.send()
        replica.update({each: server.dump(each) for each in server.scan_iter(key + "*")})
        one.commits.replicas = TakesOver()
        with pytest.raises(WorkerLost):
            await one.commit({"items": 3})
        await one.session.leave()
        assert await counts(other) == {"queued": 3}
        assert await other.commits.positions() == {}
        assert await one.commits.positions() == {}

    replica: dict[bytes, bytes] = {}
    server: Any = None
    key = ""
    asyncio.run(play())


def test_a_commit_that_went_with_a_lost_exchange_is_not_answered(redis, monkeypatch):
    """Somebody else in the process was about to send, took it along, and had no answer; nobody heard of that."""

    async def play() -> None:
        one = await simulated_frontier(LooplessClient(redis.url), token_hex(4), POLICY, NOW, worker="one")
        await one.push(RECORDS)
        for lease in await one.lease(10, NOW):
            await one.ack(lease, "200", [], NOW)
        wire, (first,) = one.session.calls, one.session.partitions
        run = wire.run

        async def away(*_: Any) -> Any:
            monkeypatch.setattr(wire, "run", run)
            raise StorageError("no answer")

        monkeypatch.setattr(wire, "run", away)
        async with wire._exchange_lock:
            other = asyncio.create_task(one.session.refresh())
            await asyncio.sleep(0)
            commit = asyncio.create_task(one.commit({}))
            await asyncio.sleep(0)
        with pytest.raises(StorageError):
            await other
        with pytest.raises(WorkerLost):
            await commit
        assert first.waiting_verbs == 0

    asyncio.run(play())
