"""A worker sends its changes and its requests for leases to a shared frontier together, to save round trips (C3, C6).

No page starts before its delay is over because of this.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any

import pytest
from redis.asyncio import Redis as AsyncRedis

from lycosa.core.url import fingerprint
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.hiredis_packing import pack_in_c
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.heartbeat import WorkerHeartbeat
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.lease_pacing import GATHER_MAX_S
from lycosa.frontier.redis.worker.membership import Membership
from tests.servers.redis import redis_server

pytestmark = pytest.mark.redis

HOSTS = 20
DELAY_S = 60.0
"""Longer than any test takes."""

AHEAD = 64
COMMITS = 20


def page(host: int, path: str = "/") -> UrlRecord:
    url = f"http://h{host}.example{path}"
    return UrlRecord(RECORD_VERSION, fingerprint("GET", url), url, f"http://h{host}.example:80")


async def joined(
    url: str, crawl: str, policy: Policy, partitions: int = 1, *, name: str = "worker", keep_alive: bool = False
) -> RedisFrontier:
    member, more = Membership(name, ""), {"ahead": AHEAD, "keep_alive": keep_alive}
    frontier = await redis_frontier(url, crawl, policy, member, print, partitions=partitions, **more)  # type: ignore[arg-type]
    frontier.session._repaired_at = math.inf  # no reconciliation by wall-clock time
    return frontier


async def wait_until(call: Callable[[], Awaitable[Any]]) -> None:
    """Call until the result is true."""
    for _ in range(10_000):
        if await call():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("no answer")


async def count_round_trips(frontier: RedisFrontier, awaitable: Any) -> int:
    """Await the call. Return the number of calls to the server."""
    calls, count = frontier.session.calls, 0
    run = calls.run

    async def counted(*arguments: Any) -> Any:
        nonlocal count
        count += 1
        return await run(*arguments)

    calls.run = counted  # type: ignore[method-assign]
    try:
        await awaitable
    finally:
        calls.run = run  # type: ignore[method-assign]
    return count


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_commit_also_asks_for_more_leases(redis, partitions: int) -> None:
    """A crawl with frequent commits needs no other calls."""

    async def scenario() -> int:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False), partitions)
        await frontier.push([page(host) for host in range(1_000)])
        await frontier.lease(1, time.time())

        async def crawl() -> None:
            for _ in range(COMMITS):
                for _ in range(4):
                    leases = await frontier.lease(8, time.time())
                    assert len(leases) == 8
                    for lease in leases:
                        await frontier.ack(lease, "200", (), time.time())
                await frontier.commit({})

        trips = await count_round_trips(frontier, crawl())
        await frontier.close()
        return trips

    assert asyncio.run(scenario()) <= COMMITS * partitions


def test_a_worker_that_stops_asks_for_no_more_leases(redis) -> None:
    """The worker leaves the remaining URLs to the other workers."""

    async def scenario() -> list[int]:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False))
        await frontier.push([page(host) for host in range(1_000)])
        leases = await frontier.lease(AHEAD, time.time())
        leased = []
        for lease in leases[:3]:
            await frontier.ack(lease, "200", (), time.time())
            await frontier.commit({})
            leased.append((await frontier.stats()).leased)
        await frontier.close()
        return leased

    # The first commit after `lease` may still ask for leases, to fill the buffer. Further commits do not, since there
    # is no further call of `lease`.
    first, *others = asyncio.run(scenario())
    assert others == [first - 1, first - 2]


def test_a_worker_that_needs_few_pages_asks_a_different_partition_each_time(redis) -> None:
    async def scenario() -> list[int]:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False), partitions=4)
        await frontier.push([page(host) for host in range(4_000)])
        numbers = []
        run = frontier.session.calls.run

        async def recorded(partition: Any, *arguments: Any) -> Any:
            numbers.append(partition.number)
            return await run(partition, *arguments)

        frontier.session.calls.run = recorded  # type: ignore[method-assign]
        while len(numbers) < 12:
            assert len(await frontier.lease(1, time.time())) == 1
        await frontier.close()
        return numbers[:12]

    numbers = asyncio.run(scenario())
    assert [set(numbers[start : start + 4]) for start in (0, 4, 8)] == [{0, 1, 2, 3}] * 3


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_idle_worker_calls_each_partition_once_per_poll(redis, partitions: int) -> None:
    async def scenario() -> None:
        crawl = token_hex()
        frontier = await joined(redis.url, crawl, Policy(robots=False), partitions, keep_alive=True)
        other = await joined(redis.url, crawl, Policy(robots=False), partitions, name="other")
        await frontier.lease(AHEAD, time.time())

        async def poll() -> None:
            for _ in range(10):
                assert await frontier.lease(AHEAD, time.time()) == []

        for path in ("/", "/again"):
            assert await count_round_trips(frontier, poll()) == 10 * partitions
            await other.push([page(0, path)])
            [lease] = await frontier.lease(AHEAD, time.time())
            await frontier.ack(lease, "200", (), time.time())
            await frontier.commit({})
            # Something has arrived: termination detection starts again, with two rounds.
            assert await count_round_trips(frontier, frontier.lease(AHEAD, time.time())) > partitions
        for each in (frontier, other):
            await each.close()

    asyncio.run(scenario())


class Listener:
    """A client that records the reports of the heartbeat."""

    def __init__(self) -> None:
        self.reports: list[bytes] = []

    def execute_command(self, *arguments: Any) -> None:
        self.reports.append(arguments[-1])

    def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(("heard_at", "silent"), [(time.monotonic, False), (lambda: 0.0, True)])
def test_only_a_worker_without_recent_contact_sends_heartbeats_without_a_report(
    heard_at: Callable[[], float], silent: bool
) -> None:
    client = Listener()
    heartbeat = WorkerHeartbeat(client, "key", "worker", heard_at)
    heartbeat.report = lambda: b"report"
    deadline = time.monotonic() + 60.0
    while client.reports.count(b"report") < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    heartbeat.stop()
    assert client.reports.count(b"report") >= 3
    assert (b"" in client.reports) == silent


def test_robots_txt_of_many_hosts_are_sent_together(redis) -> None:
    async def scenario() -> int:
        crawl = token_hex()
        frontier = await joined(redis.url, crawl, Policy(robots=True))
        other = await redis_frontier(redis.url, crawl, Policy(robots=True), Membership("other", ""), print)
        await frontier.push([page(host) for host in range(HOSTS)])
        now = time.time()
        leases = await frontier.lease(HOSTS, now)
        facts = HostFacts(b"User-agent: *\nDisallow: /x", 200, now)

        async def learn() -> None:
            for lease in leases:
                await frontier.set_host_facts(lease.record.host, facts, now)
                await frontier.ack(lease, "robots.txt", (), now)
            await wait_until(lambda: other.host_facts(leases[-1].record.host))

        trips = await count_round_trips(frontier, learn())
        assert len(leases) == HOSTS
        assert await frontier.host_facts(leases[0].record.host) == facts
        for each in (frontier, other):
            await each.close()
        return trips

    assert asyncio.run(scenario()) <= 2


def test_facts_that_were_just_sent_can_be_read_back(redis) -> None:
    async def scenario() -> None:
        frontier = await joined(redis.url, token_hex(), Policy(robots=True))
        for number in range(3):
            facts = HostFacts(b"", 200 + number, time.time())
            await frontier.set_host_facts(page(0).host, facts, time.time())
            assert await frontier.host_facts(page(0).host) == facts
        await frontier.close()

    asyncio.run(scenario())


def test_frequent_small_requests_are_gathered(redis) -> None:
    """A page ends every millisecond, and the engine asks for one lease each time."""

    async def scenario() -> tuple[int, float]:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False, delay_s=DELAY_S))
        await frontier.push([page(host) for host in range(HOSTS)])
        assert len(await frontier.lease(HOSTS, time.time())) == HOSTS
        started = time.monotonic()

        async def ask() -> None:
            for _ in range(100):
                assert await frontier.lease(1, time.time()) == []
                await asyncio.sleep(0.001)

        trips = await count_round_trips(frontier, ask())
        took_s = time.monotonic() - started
        await frontier.close()
        return trips, took_s

    trips, took_s = asyncio.run(scenario())
    assert trips <= took_s / GATHER_MAX_S + 1


def test_the_delay_starts_with_the_request_not_with_the_lease(redis) -> None:
    """The delay of a host counts from the start of the request, however long the lease waited in the buffer."""

    async def scenario() -> float:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False, delay_s=0.2))
        await frontier.push([page(0), page(0, "/2")])
        [lease] = await frontier.lease(1, time.time())
        await asyncio.sleep(0.3)
        assert await frontier.lease(1, time.time()) == []
        started = time.monotonic()
        frontier.report_start(lease.record.host, time.time())
        await wait_until(lambda: frontier.lease(1, time.time()))
        took_s = time.monotonic() - started
        await frontier.close()
        return took_s

    assert asyncio.run(scenario()) >= 0.19


def test_a_call_can_be_cancelled_while_its_response_arrives(redis) -> None:
    """Otherwise a loop of calls could never be cancelled, and a finished crawl would not end."""

    async def answered_and_cancelled() -> str:
        with suppress(asyncio.CancelledError):  # as asyncio.wait_for of Python 3.11 does if the awaited call is done
            await asyncio.sleep(60)
        return "answer"

    async def scenario() -> bool:
        frontier = await joined(redis.url, token_hex(), Policy())
        task = asyncio.create_task(frontier.session.calls.retry(answered_and_cancelled))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        await frontier.close()
        return task.cancelled()

    assert asyncio.run(scenario())


def test_commands_are_packed_as_redis_py_packs_them() -> None:
    client = AsyncRedis(host="127.0.0.1", port=1)
    plain = client.connection_pool.make_connection()
    pack_in_c(client)
    packing = client.connection_pool.make_connection()
    assert type(packing) is not type(plain)
    for command in (("SET", "é", b"\x00\r\n", 7, -1, "x" * 70_000), ("CONFIG GET", "save"), (b"PING",)):
        assert b"".join(packing.pack_command(*command)) == b"".join(plain.pack_command(*command))


def test_a_server_with_a_password(redis) -> None:
    async def story(url: str) -> int:
        frontier = await joined(url, token_hex(), Policy(robots=False))
        added = await frontier.push([page(0, "/é"), page(1)])
        await frontier.close()
        return added

    with redis_server(password="secret") as server:
        assert asyncio.run(story(server.url)) == 2


def test_links_found_during_a_delivery_are_delivered_too(redis) -> None:
    """Each partition links to all others, and pages end while outboxes are emptied."""

    async def scenario() -> int:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False), partitions=4)
        await frontier.push([page(host) for host in range(40)])
        leases = await frontier.lease(40, time.time())
        children = iter(range(1_000, 10_000))
        deliver = frontier.session.calls.deliver

        async def finish_page() -> None:
            if leases:
                found = [page(next(children), "/child")]
                await frontier.ack(leases.pop(), "200", found, time.time())

        async def deliver_and_finish(source: Any, target: Any) -> None:
            await deliver(source, target)
            await finish_page()

        frontier.session.calls.deliver = deliver_and_finish  # type: ignore[method-assign]
        for _ in range(4):
            await finish_page()
        leased_count = 40
        for _ in range(1_000):
            await finish_page()
            await frontier.commit({})
            leased_count += len(more := await frontier.lease(1_000, time.time()))
            for lease in more:
                await frontier.ack(lease, "200", (), time.time())
            if leased_count == 80 and not leases:
                break
            await asyncio.sleep(0.01)
        await frontier.close()
        return leased_count

    assert asyncio.run(scenario()) == 80
