"""What workers of a shared crawl tell of themselves, and what those see that take no part (C6, C7, F8).

On a real Redis: reports, their sums, who is gone, which hosts are busy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

import pytest
import redis.asyncio

from lycosa.core.url import fingerprint, host_key
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.core.telemetry import CRAWLING, ENDED, LOST, WAITING, CrawlView, WorkerReport, encode
from lycosa.frontier.redis.admin.watcher import HOSTS_SHOWN, Watcher
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.scripts import WORKER_SCRIPT, keys_of
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.session import Session, key_of
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

START = 1_000_000.0


def record(url: str) -> UrlRecord:
    return UrlRecord(RECORD_VERSION, fingerprint("GET", url, b""), url, host_key(url))


def told(state: str = CRAWLING, uptime_s: float = 1.0, **counts: int) -> bytes:
    return encode(WorkerReport("machine", 7, "1.0", uptime_s, state, counts=counts))


class Play:
    """A crawl with workers whose clock stands where we put it."""

    def __init__(self, client: Any, partitions: int) -> None:
        self.client = client
        self.name = token_hex(4)
        self.partitions = partitions
        self.now = START

    async def worker(self, name: str = "w", places: int = 8) -> RedisFrontier:
        policy = Policy(robots=False, concurrency_per_host=places)
        return await simulated_frontier(
            self.client, self.name, policy, self.now, worker=name, partitions=self.partitions
        )

    async def beat(self, frontier: RedisFrontier, report: bytes = b"") -> bytes:
        first = frontier.session.partitions[0]
        arguments = (repr(self.now), "beat", first.worker, report)
        said = await WORKER_SCRIPT.run_async(self.client, keys_of(first.key), arguments)
        return said[0]

    async def leave(self, frontier: RedisFrontier, report: bytes) -> None:
        frontier.session.now = self.now
        frontier.set_reporter(bytes, lambda: report)
        await frontier.session.leave()

    def visitor(self) -> Session:
        session = Session(self.client, self.name, "", at_once, self.partitions, callers_clock=True)
        session.now = self.now
        return session

    async def view(self) -> CrawlView:
        view = await Watcher(self.visitor()).view()
        assert view is not None
        return view


async def at_once(act: Callable[[], Awaitable[Any]]) -> Any:
    return await act()


@asynccontextmanager
async def play(url: str, partitions: int = 1) -> AsyncIterator[Play]:
    client = redis.asyncio.Redis.from_url(url)
    try:
        yield Play(client, partitions)
    finally:
        await client.aclose()


@pytest.fixture
def url(redis) -> Iterator[str]:
    return redis.url


def test_totals_are_what_all_workers_did_that_ever_took_part(url):
    async def story() -> None:
        async with play(url) as crawl:
            one, two = await crawl.worker("one"), await crawl.worker("two")
            await crawl.beat(one, told(pages=10, **{"stats/x": 1}))
            await crawl.beat(one, told(pages=10, **{"stats/x": 1}))  # said twice, counted once
            await crawl.beat(one, told(pages=25, **{"stats/x": 3}, uptime_s=2.0))
            await crawl.beat(two, told(pages=5))
            await crawl.leave(one, told(ENDED, pages=27, items=4))
            view = await crawl.view()
            assert view.totals == {"pages": 32, "items": 4, "stats/x": 3}
            assert [(each.name, each.state) for each in view.workers] == [("two#2", CRAWLING)]
            assert [(each.name, each.state) for each in view.former_workers] == [("one#1", ENDED)]
            three = await crawl.worker("three")
            for _ in range(6):  # of two nothing is heard
                crawl.now += 0.5
                await crawl.beat(three, told(pages=1))
            view = await crawl.view()
            assert view.totals["pages"] == 33
            assert [(each.name, each.state) for each in view.former_workers] == [("two#2", LOST), ("one#1", ENDED)]
            assert await crawl.beat(two, told(pages=1000)) == b"unknown"
            assert (await crawl.view()).totals["pages"] == 33

    asyncio.run(story())


def test_the_same_worker_begun_again_counts_from_zero(url):
    async def story() -> None:
        async with play(url) as crawl:
            first = await crawl.worker("one")
            await crawl.beat(first, told(pages=10))
            again = await crawl.worker("one")
            await crawl.beat(again, told(pages=3))
            view = await crawl.view()
            assert view.totals == {"pages": 13}
            assert [each.name for each in view.workers] == ["one#2"]
            assert [each.name for each in view.former_workers] == ["one#1"]

    asyncio.run(story())


def test_a_worker_that_has_said_nothing_yet_is_there_all_the_same(url):
    async def story() -> None:
        async with play(url) as crawl:
            await crawl.worker("one")
            (worker,) = (await crawl.view()).workers
            assert (worker.name, worker.state, worker.report) == ("one#1", WAITING, None)
            crawl.now += 2.5  # and nobody comes by to bury it
            assert [each.state for each in (await crawl.view()).former_workers] == [LOST]

    asyncio.run(story())


def test_who_is_gone_is_known_for_a_while_and_its_numbers_for_ever(url):
    async def story() -> None:
        async with play(url) as crawl:
            for _ in range(105):
                worker = await crawl.worker("w")
                await crawl.beat(worker, told(pages=1))
                crawl.now += 0.01
            await crawl.leave(worker, b"")
            view = await crawl.view()
            assert (view.totals, len(view.former_workers)) == ({"pages": 105}, 100)
            assert view.former_workers[0].name == "w#105"
            assert await crawl.client.hlen(key_of(crawl.name, 0) + Key.REPORTS) == 100
            crawl.now += 100_000.0
            late = await crawl.worker("late")
            await crawl.beat(late, told(pages=1))
            await crawl.leave(late, b"")
            view = await crawl.view()
            assert (view.totals, [each.name for each in view.former_workers]) == ({"pages": 106}, ["late#106"])

    asyncio.run(story())


def test_names_of_counts_have_a_bound_and_a_report_that_is_too_long_is_left(url):
    async def story() -> None:
        async with play(url) as crawl:
            worker = await crawl.worker("one")
            await crawl.beat(worker, told(pages=1))
            for number in range(12):
                await crawl.beat(worker, told(pages=1 + number, **{f"stats/{number}/{n}": 1 for n in range(100)}))
            await crawl.beat(worker, told(pages=1000, **{f"stats/{n:0100}": 1 for n in range(1000)}))
            view = await crawl.view()
            assert len(view.totals) == 1000
            assert view.totals["pages"] == 12
            assert view.workers[0].report is not None

    asyncio.run(story())


def test_a_crawl_that_is_gone_is_none(url):
    async def story() -> None:
        async with play(url) as crawl:
            watcher = Watcher(crawl.visitor())
            assert await watcher.view() is None
            await crawl.worker()
            assert (await watcher.view()).name == crawl.name

    asyncio.run(story())


def test_the_busiest_hosts_are_those_with_the_most_to_do_also_while_they_are_asked(url):
    async def story() -> None:
        async with play(url, 2) as crawl:
            worker = await crawl.worker(places=1)
            records = [record(f"http://h{n}.example/{each}") for n in range(20) for each in range(5 * n + 5)]
            await worker.push(records)
            leases = await worker.lease(15, crawl.now)  # which are in no line as long as they are asked
            view = await crawl.view()
            assert len(view.hosts) == HOSTS_SHOWN
            busy = {host.host: host for host in view.hosts}
            asked = {lease.record.host for lease in leases}
            for n in range(10, 20):
                host = busy[f"http://h{n}.example:80"]
                assert host.queued + host.in_flight == 5 * n + 5
                assert host.in_flight == 1 or host.host not in asked
            assert sum(worker.leased for worker in view.workers) >= len(leases)

    asyncio.run(story())


def test_looking_changes_nothing(url):
    async def story() -> None:
        async with play(url) as crawl:
            worker = await crawl.worker()
            await worker.push([record(f"http://h{n}.example/") for n in range(9)])
            await crawl.beat(worker, told(pages=1))
            before = await dump(crawl)
            for _ in range(3):
                await crawl.view()
            assert await dump(crawl) == before

    async def dump(crawl: Play) -> dict[bytes, bytes]:
        keys = [key async for key in crawl.client.scan_iter(key_of(crawl.name, 0) + "*")]
        return {key: await crawl.client.dump(key) for key in sorted(keys)}

    asyncio.run(story())
