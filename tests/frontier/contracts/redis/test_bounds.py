"""What Redis stores about former workers and servers does not grow with their number (C3, C6)."""

from __future__ import annotations

import asyncio
import re
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.frontier.core.model import UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.repair import deliver_lost_records
from lycosa.frontier.redis.scripts import WORKER_SCRIPT
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

NOW = 1e9
POLICY = Policy(0.0, 8, 1e6, robots=False)
HOSTS = [f"http://h{n}.example:80" for n in (1, 3, 7)]
"""One host for each of three partitions; `record` finds the host of a partition."""


def bound(name: str) -> int:
    """Return a constant of the script."""
    (value,) = re.findall(rf"local {name} = (\d+)", WORKER_SCRIPT.text.decode())
    return int(value)


async def joined(url: str, crawl: str, worker: str) -> Any:
    """Join the crawl as this worker, and return its frontier."""
    return await simulated_frontier(LooplessClient(url), crawl, POLICY, NOW, worker=worker, partitions=3)


def record(frontier: Any, partition: int, number: int) -> UrlRecord:
    """Return a record that belongs to this partition."""
    (host,) = (each for each in HOSTS if frontier.session.partition_of(each).number == partition)
    return UrlRecord(1, number, f"{host}/{number}", host)


async def link(frontier: Any, number: int, links: int = 1) -> None:
    """Fetch a page of partition 0 with links to partition 1. The links wait in the outbox."""
    await frontier.push([record(frontier, 0, number)])
    (lease,) = [each for each in await frontier.lease(9, frontier.session.now) if each.record.fingerprint == number]
    await frontier.ack(lease, "200", [record(frontier, 1, number + n + 1) for n in range(links)], frontier.session.now)
    await frontier.session.send()


def test_an_expired_worker_cannot_rejoin_however_many_expired_after_it(redis):
    async def scenario() -> None:
        crawl = token_hex(4)
        member = await joined(redis.url, crawl, "stays")
        run, (_, other, _) = member.session.calls.run, member.session.partitions
        server = member.session.calls.client.blocking
        expired = [f"w#{number}" for number in range(2, 2 * bound("REFUSED_MAX"))]
        for worker in reversed(expired[:10]):  # in any order
            await run(other, "expire", worker, 0)
        for worker in expired[10:]:
            await run(other, "expire", worker, 0)
        assert server.zcard(other.key + Key.REFUSED) == bound("REFUSED_MAX")
        join_arguments = (crawl_of(server, other), 3, 1, 0, "", 0)
        for worker in (expired[0], expired[9], expired[10], expired[len(expired) // 2], expired[-1]):
            other.worker = worker
            with pytest.raises(WorkerLost):
                await run(other, "join", "w", *join_arguments)
        for worker in (
            f"w#{len(expired) + 2}",
            member.session.partitions[0].worker,
        ):  # a new worker, and a member that joins again
            other.worker = worker
            assert (await run(other, "join", "w", *join_arguments))[1] == worker.encode()

    asyncio.run(scenario())


def crawl_of(server: Any, partition: Any) -> bytes:
    """Return the id of the crawl that the partition belongs to."""
    return server.hget(partition.key + Key.META, "crawl")  # type: ignore[no-any-return]


def test_servers_without_deliveries_leave_no_trace(redis):
    async def scenario() -> None:
        frontier = await joined(redis.url, token_hex(4), "w")
        server, (first, second, _) = frontier.session.calls.client.blocking, frontier.session.partitions
        await link(frontier, 100)
        await frontier.session.deliver()
        traces = server.hgetall(first.key + Key.OUTBOX_SERVERS), server.hgetall(second.key + Key.INBOX_LAST)
        assert all(traces)
        for _ in range(5):
            redis.cli("DEBUG", "CHANGE-REPL-ID")
            await frontier.session.calls.deliver(first, second)
            assert not await frontier.is_finished()
        assert (server.hgetall(first.key + Key.OUTBOX_SERVERS), server.hgetall(second.key + Key.INBOX_LAST)) == traces
        await link(frontier, 200)
        await frontier.session.deliver()
        await frontier.session.refresh()
        assert second.counts["queued"] + second.counts["leased"] == 2

    asyncio.run(scenario())


def test_only_the_latest_of_many_failovers_are_stored(redis):
    """A partition that is a few failovers behind loses nothing."""

    async def scenario() -> None:
        crawl, many, behind = token_hex(4), 3 * bound("SERVERS_MAX") + 4, 3
        frontier = await joined(redis.url, crawl, "w")
        server, (first, second, _) = frontier.session.calls.client.blocking, frontier.session.partitions
        for number in range(many):
            if number == many - behind:
                replica = {key: server.dump(key) for key in server.scan_iter(second.key + "*")}
            redis.cli("DEBUG", "CHANGE-REPL-ID")
            await link(frontier, 100 * (number + 1), links=number % 3 + 1)
            await frontier.session.calls.deliver(first, second)
        assert len(server.hget(first.key + Key.OUTBOX_SERVERS, "1").split()) == 2 * bound("SERVERS_MAX")
        assert bound("SERVERS_MAX") <= server.hlen(second.key + Key.INBOX_LAST) <= bound("SERVERS_MAX") + 1
        server.delete(*server.scan_iter(second.key + "*"))
        for key, value in replica.items():
            server.restore(key, 0, value)
        await frontier.session.leave()
        frontier = await joined(redis.url, crawl, "w")
        assert await deliver_lost_records(frontier.session.calls, frontier.session.partitions) == 1
        await frontier.session.refresh()
        assert frontier.session.partitions[1].counts["queued"] == sum(number % 3 + 1 for number in range(many))

    asyncio.run(scenario())


def test_delivered_records_are_kept_for_a_while_and_then_only_the_last_ones(redis):
    """A partition that lost the records of the last seconds gets all of them again."""

    async def scenario() -> None:
        crawl, count = token_hex(4), 3 * bound("RETAINED")
        frontier = await joined(redis.url, crawl, "w")
        server, (first, second, _) = frontier.session.calls.client.blocking, frontier.session.partitions
        replica = {key: server.dump(key) for key in server.scan_iter(second.key + "*")}
        await link(frontier, 1000, count)
        await frontier.session.deliver()
        server.delete(*server.scan_iter(second.key + "*"))
        for key, value in replica.items():
            server.restore(key, 0, value)
        await frontier.session.leave()
        frontier = await joined(redis.url, crawl, "w")
        assert await deliver_lost_records(frontier.session.calls, frontier.session.partitions) == 1
        await frontier.session.refresh()
        assert frontier.session.partitions[1].counts["queued"] == count
        for number in (1, 2):
            frontier.session.now = NOW + number * bound("RETAINED_S")
            await link(frontier, 10_000 * number)
            await frontier.session.deliver()
        assert server.llen(first.key + Key.OUTBOX + "1") == bound("RETAINED")

    asyncio.run(scenario())
