"""What a worker tells a shared frontier, and asks it for, travels together, and no turn comes sooner (C3, C6)."""

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
    return await redis_frontier(url, crawl, policy, member, print, partitions=partitions, **more)  # type: ignore[arg-type]


async def until(told: Callable[[], Awaitable[Any]]) -> None:
    """Ask until there is an answer."""
    for _ in range(10_000):
        if await told():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("no answer")


async def trips_of(frontier: RedisFrontier, act: Any) -> int:
    """Do it, and return how often the server was called."""
    wire, trips = frontier.session.calls, 0
    run = wire.run

    async def counted(*arguments: Any) -> Any:
        nonlocal trips
        trips += 1
        return await run(*arguments)

    wire.run = counted  # type: ignore[method-assign]
    try:
        await act
    finally:
        wire.run = run  # type: ignore[method-assign]
    return trips


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_commit_asks_for_more_too(redis, partitions: int) -> None:
    """Where there are many commits, nothing else is sent."""

    async def story() -> int:
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

        trips = await trips_of(frontier, crawl())
        await frontier.close()
        return trips

    assert asyncio.run(story()) <= COMMITS * partitions


def test_a_worker_that_lends_no_more_asks_for_nothing(redis) -> None:
    """It stops, and others are there for what is left."""

    async def story() -> list[int]:
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

    # The first commit may fill the stock, as the last question is not yet answered in full.
    first, *others = asyncio.run(story())
    assert others == [first - 1, first - 2]


def test_for_a_few_pages_one_partition_is_asked_each_time_another(redis) -> None:
    async def story() -> list[int]:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False), partitions=4)
        await frontier.push([page(host) for host in range(4_000)])
        asked = []
        run = frontier.session.calls.run

        async def noted(partition: Any, *arguments: Any) -> Any:
            asked.append(partition.number)
            return await run(partition, *arguments)

        frontier.session.calls.run = noted  # type: ignore[method-assign]
        while len(asked) < 12:
            assert len(await frontier.lease(1, time.time())) == 1
        await frontier.close()
        return asked[:12]

    asked = asyncio.run(story())
    assert [set(asked[at : at + 4]) for at in (0, 4, 8)] == [{0, 1, 2, 3}] * 3


@pytest.mark.parametrize("partitions", [1, 4])
def test_an_idle_worker_asks_each_partition_once_at_a_time(redis, partitions: int) -> None:
    async def story() -> None:
        crawl = token_hex()
        frontier = await joined(redis.url, crawl, Policy(robots=False), partitions, keep_alive=True)
        other = await joined(redis.url, crawl, Policy(robots=False), partitions, name="other")
        await frontier.lease(AHEAD, time.time())
        frontier.session._mended_at = math.inf  # no clock on the wall

        async def poll() -> None:
            for _ in range(10):
                assert await frontier.lease(AHEAD, time.time()) == []

        for path in ("/", "/again"):
            assert await trips_of(frontier, poll()) == 10 * partitions
            await other.push([page(0, path)])
            [lease] = await frontier.lease(AHEAD, time.time())
            await frontier.ack(lease, "200", (), time.time())
            await frontier.commit({})
            # Something has arrived: whether all is over is seen anew, by looking twice.
            assert await trips_of(frontier, frontier.lease(AHEAD, time.time())) > partitions
        for each in (frontier, other):
            await each.close()

    asyncio.run(story())


class Listener:
    """A client that notes what the beats tell."""

    def __init__(self) -> None:
        self.told: list[bytes] = []

    def execute_command(self, *arguments: Any) -> None:
        self.told.append(arguments[-1])

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(("heard_at", "silent"), [(time.monotonic, False), (lambda: 0.0, True)])
def test_whoever_is_heard_beats_only_to_report(heard_at: Callable[[], float], silent: bool) -> None:
    client = Listener()
    heart = WorkerHeartbeat(client, "key", "worker", heard_at)
    heart.report = lambda: b"report"
    until_at = time.monotonic() + 60.0
    while client.told.count(b"report") < 3 and time.monotonic() < until_at:
        time.sleep(0.01)
    heart.stop()
    assert client.told.count(b"report") >= 3
    assert (b"" in client.told) == silent


def test_the_robots_txt_of_many_hosts_are_told_together(redis) -> None:
    async def story() -> int:
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
            await until(lambda: other.host_facts(leases[-1].record.host))

        trips = await trips_of(frontier, learn())
        assert len(leases) == HOSTS
        assert await frontier.host_facts(leases[0].record.host) == facts
        for each in (frontier, other):
            await each.close()
        return trips

    assert asyncio.run(story()) <= 2


def test_what_was_learned_just_now_is_recalled(redis) -> None:
    async def story() -> None:
        frontier = await joined(redis.url, token_hex(), Policy(robots=True))
        for number in range(3):
            facts = HostFacts(b"", 200 + number, time.time())
            await frontier.set_host_facts(page(0).host, facts, time.time())
            assert await frontier.host_facts(page(0).host) == facts
        await frontier.close()

    asyncio.run(story())


def test_turns_that_come_one_by_one_are_asked_for_together(redis) -> None:
    """A page ends every millisecond, and the engine asks each time."""

    async def story() -> tuple[int, float]:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False, delay_s=DELAY_S))
        await frontier.push([page(host) for host in range(HOSTS)])
        assert len(await frontier.lease(HOSTS, time.time())) == HOSTS
        began = time.monotonic()

        async def ask() -> None:
            for _ in range(100):
                assert await frontier.lease(1, time.time()) == []
                await asyncio.sleep(0.001)

        trips = await trips_of(frontier, ask())
        took_s = time.monotonic() - began
        await frontier.close()
        return trips, took_s

    trips, took_s = asyncio.run(story())
    assert trips <= took_s / GATHER_MAX_S + 1


def test_what_is_lent_ahead_of_a_delay_does_not_start_its_turn(redis) -> None:
    """The turn of a host counts from when it hears of the request, however long that waited in the stock."""

    async def story() -> float:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False, delay_s=0.2))
        await frontier.push([page(0), page(0, "/2")])
        [lease] = await frontier.lease(1, time.time())
        await asyncio.sleep(0.3)
        assert await frontier.lease(1, time.time()) == []
        began = time.monotonic()
        frontier.report_start(lease.record.host, time.time())
        await until(lambda: frontier.lease(1, time.time()))
        took_s = time.monotonic() - began
        await frontier.close()
        return took_s

    assert asyncio.run(story()) >= 0.19


def test_a_call_ends_when_its_task_is_cancelled_in_the_moment_in_which_it_is_answered(redis) -> None:
    """Without that, whoever asks again and again is never cancelled, and a crawl that is done does not end."""

    async def answered_and_cancelled() -> str:
        with suppress(asyncio.CancelledError):  # as asyncio.wait_for of Python 3.11, when what it waits for is done
            await asyncio.sleep(60)
        return "answer"

    async def story() -> bool:
        frontier = await joined(redis.url, token_hex(), Policy())
        asking = asyncio.create_task(frontier.session.calls.retry(answered_and_cancelled))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])
        await frontier.close()
        return asking.cancelled()

    assert asyncio.run(story())


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


def test_links_that_are_found_while_others_are_brought_over_are_brought_over_too(redis) -> None:
    """Links of each partition lead to all, and pages end while outboxes are emptied."""

    async def story() -> int:
        frontier = await joined(redis.url, token_hex(), Policy(robots=False), partitions=4)
        await frontier.push([page(host) for host in range(40)])
        leases = await frontier.lease(40, time.time())
        children = iter(range(1_000, 10_000))
        bring = frontier.session.calls.deliver

        async def ends() -> None:
            if leases:
                found = [page(next(children), "/child")]
                await frontier.ack(leases.pop(), "200", found, time.time())

        async def ends_meanwhile(source: Any, target: Any) -> None:
            await bring(source, target)
            await ends()

        frontier.session.calls.deliver = ends_meanwhile  # type: ignore[method-assign]
        for _ in range(4):
            await ends()
        lent = 40
        for _ in range(1_000):
            await ends()
            await frontier.commit({})
            lent += len(more := await frontier.lease(1_000, time.time()))
            for lease in more:
                await frontier.ack(lease, "200", (), time.time())
            if lent == 80 and not leases:
                break
            await asyncio.sleep(0.01)
        await frontier.close()
        return lent

    assert asyncio.run(story()) == 80
