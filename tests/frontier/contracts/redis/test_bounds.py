"""What a crawl in Redis remembers of workers and servers that are gone does not grow with their number (C3, C6)."""

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
HOSTS = {number: f"http://h{n}.example:80" for number, n in enumerate((1, 3, 7))}
"""One for each of three partitions, by its number: see `in_order`."""


def bound(name: str) -> int:
    """Return what the script says."""
    (value,) = re.findall(rf"local {name} = (\d+)", WORKER_SCRIPT.text.decode())
    return int(value)


async def joined(url: str, crawl: str, worker: str) -> Any:
    """Return a worker's frontier."""
    return await simulated_frontier(LooplessClient(url), crawl, POLICY, NOW, worker=worker, partitions=3)


def record(frontier: Any, partition: int, number: int) -> UrlRecord:
    """Return a record of a partition."""
    (host,) = (each for each in HOSTS.values() if frontier.session.partition_of(each).number == partition)
    return UrlRecord(1, number, f"{host}/{number}", host)


async def link(frontier: Any, number: int, many: int = 1) -> None:
    """Fetch a page of the first partition that links to pages of the second one. They wait in the outbox."""
    await frontier.push([record(frontier, 0, number)])
    (lease,) = [each for each in await frontier.lease(9, frontier.session.now) if each.record.fingerprint == number]
    await frontier.ack(lease, "200", [record(frontier, 1, number + n + 1) for n in range(many)], frontier.session.now)
    await frontier.session.send()


def test_a_worker_that_was_given_up_joins_no_more_however_many_came_after_it(redis):
    async def play() -> None:
        crawl = token_hex(4)
        stays = await joined(redis.url, crawl, "stays")
        run, (_, other, _) = stays.session.calls.run, stays.session.partitions
        server = stays.session.calls.client._real
        gone = [f"w#{number}" for number in range(2, 2 * bound("REFUSED_MAX"))]
        for worker in reversed(gone[:10]):  # in any order
            await run(other, "expire", worker, 0)
        for worker in gone[10:]:
            await run(other, "expire", worker, 0)
        assert server.zcard(other.key + Key.REFUSED) == bound("REFUSED_MAX")
        begun = (crawl_of(server, other), 3, 1, 0, "", 0)
        for worker in (gone[0], gone[9], gone[10], gone[len(gone) // 2], gone[-1]):
            other.worker = worker
            with pytest.raises(WorkerLost):
                await run(other, "join", "w", *begun)
        for worker in (f"w#{len(gone) + 2}", "stays#1"):  # one that comes now, and one that is there, again
            other.worker = worker
            assert (await run(other, "join", "w", *begun))[1] == worker.encode()

    asyncio.run(play())


def crawl_of(server: Any, partition: Any) -> bytes:
    """Return which crawl it is."""
    return server.hget(partition.key + Key.META, "crawl")  # type: ignore[no-any-return]


def test_servers_that_handed_nothing_out_leave_no_trace(redis):
    async def play() -> None:
        frontier = await joined(redis.url, token_hex(4), "w")
        server, (first, second, _) = frontier.session.calls.client._real, frontier.session.partitions
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

    asyncio.run(play())


def test_of_very_many_failovers_the_last_are_remembered(redis):
    """A partition that is some of them behind itself loses nothing."""

    async def play() -> None:
        crawl, many, behind = token_hex(4), 3 * bound("SERVERS_MAX") + 4, 3
        frontier = await joined(redis.url, crawl, "w")
        server, (first, second, _) = frontier.session.calls.client._real, frontier.session.partitions
        for number in range(many):
            if number == many - behind:
                replica = {key: server.dump(key) for key in server.scan_iter(second.key + "*")}
            redis.cli("DEBUG", "CHANGE-REPL-ID")
            await link(frontier, 100 * (number + 1), many=number % 3 + 1)
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

    asyncio.run(play())


def test_what_was_brought_is_kept_for_a_while_and_then_the_last_of_it(redis):
    """A partition that has lost all of a moment is brought it again, however much that was."""

    async def play() -> None:
        crawl, many = token_hex(4), 3 * bound("RETAINED")
        frontier = await joined(redis.url, crawl, "w")
        server, (first, second, _) = frontier.session.calls.client._real, frontier.session.partitions
        replica = {key: server.dump(key) for key in server.scan_iter(second.key + "*")}
        await link(frontier, 1000, many)
        await frontier.session.deliver()
        server.delete(*server.scan_iter(second.key + "*"))
        for key, value in replica.items():
            server.restore(key, 0, value)
        await frontier.session.leave()
        frontier = await joined(redis.url, crawl, "w")
        assert await deliver_lost_records(frontier.session.calls, frontier.session.partitions) == 1
        await frontier.session.refresh()
        assert frontier.session.partitions[1].counts["queued"] == many
        for number in (1, 2):
            frontier.session.now = NOW + number * bound("RETAINED_S")
            await link(frontier, 10_000 * number)
            await frontier.session.deliver()
        assert server.llen(first.key + Key.OUTBOX + "1") == bound("RETAINED")

    asyncio.run(play())
