"""What workers of a shared crawl report, and what is seen of it from outside (C6, C7, F8).

On a real Redis: reports, their sums, former workers, the busiest hosts.
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


def worker_report(state: str = CRAWLING, uptime_s: float = 1.0, **counts: int) -> bytes:
    return encode(WorkerReport("machine", 7, "1.0", uptime_s, state, counts=counts))


class OutsideCrawl:
    """A crawl with workers whose clock the test sets."""

    def __init__(self, client: Any, partitions: int) -> None:
        self.client = client
        self.name = token_hex(4)
        self.partitions = partitions
        self.now = START

    async def worker(self, name: str = "w", places: int = 8, places_per_ip: int = 0) -> RedisFrontier:
        policy = Policy(robots=False, concurrency_per_host=places, concurrency_per_ip=places_per_ip)
        return await simulated_frontier(
            self.client, self.name, policy, self.now, worker=name, partitions=self.partitions
        )

    async def beat(self, frontier: RedisFrontier, report: bytes = b"") -> bytes:
        first = frontier.session.partitions[0]
        arguments = (repr(self.now), "beat", first.worker, report)
        response = await WORKER_SCRIPT.run_async(self.client, keys_of(first.key), arguments)
        return response[0]

    async def leave(self, frontier: RedisFrontier, report: bytes) -> None:
        frontier.session.now = self.now
        frontier.set_reporter(bytes, lambda: report)
        await frontier.session.leave()

    def outside_session(self) -> Session:
        session = Session(self.client, self.name, "", call_once, self.partitions, callers_clock=True)
        session.now = self.now
        return session

    async def view(self) -> CrawlView:
        view = await Watcher(self.outside_session()).view()
        assert view is not None
        return view


async def call_once(call: Callable[[], Awaitable[Any]]) -> Any:
    return await call()


@asynccontextmanager
async def new_crawl(url: str, partitions: int = 1) -> AsyncIterator[OutsideCrawl]:
    client = redis.asyncio.Redis.from_url(url)
    try:
        yield OutsideCrawl(client, partitions)
    finally:
        await client.aclose()


@pytest.fixture
def url(redis) -> Iterator[str]:
    return redis.url


def test_totals_include_all_workers_that_ever_took_part(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            first, second = await crawl.worker("one"), await crawl.worker("two")
            await crawl.beat(first, worker_report(pages=10, **{"stats/x": 1}))
            await crawl.beat(first, worker_report(pages=10, **{"stats/x": 1}))  # reported twice, counted once
            await crawl.beat(first, worker_report(pages=25, **{"stats/x": 3}, uptime_s=2.0))
            await crawl.beat(second, worker_report(pages=5))
            await crawl.leave(first, worker_report(ENDED, pages=27, items=4))
            view = await crawl.view()
            assert view.totals == {"pages": 32, "items": 4, "stats/x": 3}
            assert [(each.name, each.state) for each in view.workers] == [("two#2", CRAWLING)]
            assert [(each.name, each.state) for each in view.former_workers] == [("one#1", ENDED)]
            third = await crawl.worker("three")
            for _ in range(6):  # the second worker is silent
                crawl.now += 0.5
                await crawl.beat(third, worker_report(pages=1))
            view = await crawl.view()
            assert view.totals["pages"] == 33
            assert [(each.name, each.state) for each in view.former_workers] == [("two#2", LOST), ("one#1", ENDED)]
            assert await crawl.beat(second, worker_report(pages=1000)) == b"unknown"
            assert (await crawl.view()).totals["pages"] == 33

    asyncio.run(scenario())


def test_a_restarted_worker_counts_from_zero(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            first = await crawl.worker("one")
            await crawl.beat(first, worker_report(pages=10))
            restarted = await crawl.worker("one")
            await crawl.beat(restarted, worker_report(pages=3))
            view = await crawl.view()
            assert view.totals == {"pages": 13}
            assert [each.name for each in view.workers] == ["one#2"]
            assert [each.name for each in view.former_workers] == ["one#1"]

    asyncio.run(scenario())


def test_a_worker_without_a_report_is_shown_as_waiting(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            await crawl.worker("one")
            (worker,) = (await crawl.view()).workers
            assert (worker.name, worker.state, worker.report) == ("one#1", WAITING, None)
            crawl.now += 2.5  # enough to be lost, although no call has made the worker expire
            assert [each.state for each in (await crawl.view()).former_workers] == [LOST]

    asyncio.run(scenario())


def test_former_workers_are_shown_for_a_while_and_their_counts_stay_in_the_totals(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            for _ in range(105):
                worker = await crawl.worker("w")
                await crawl.beat(worker, worker_report(pages=1))
                crawl.now += 0.01
            await crawl.leave(worker, b"")
            view = await crawl.view()
            assert (view.totals, len(view.former_workers)) == ({"pages": 105}, 100)
            assert view.former_workers[0].name == "w#105"
            assert await crawl.client.hlen(key_of(crawl.name, 0) + Key.REPORTS) == 100
            crawl.now += 100_000.0
            late = await crawl.worker("late")
            await crawl.beat(late, worker_report(pages=1))
            await crawl.leave(late, b"")
            view = await crawl.view()
            assert (view.totals, [each.name for each in view.former_workers]) == ({"pages": 106}, ["late#106"])

    asyncio.run(scenario())


def test_the_number_of_counts_is_bounded_and_a_too_long_report_is_ignored(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            worker = await crawl.worker("one")
            await crawl.beat(worker, worker_report(pages=1))
            for number in range(12):
                await crawl.beat(
                    worker, worker_report(pages=1 + number, **{f"stats/{number}/{n}": 1 for n in range(100)})
                )
            await crawl.beat(worker, worker_report(pages=1000, **{f"stats/{n:0100}": 1 for n in range(1000)}))
            view = await crawl.view()
            assert len(view.totals) == 1000
            assert view.totals["pages"] == 12
            assert view.workers[0].report is not None

    asyncio.run(scenario())


def test_a_crawl_that_does_not_exist_has_no_view(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            watcher = Watcher(crawl.outside_session())
            assert await watcher.view() is None
            await crawl.worker()
            assert (await watcher.view()).name == crawl.name

    asyncio.run(scenario())


def test_the_busiest_hosts_include_those_that_share_an_address(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            worker = await crawl.worker(places_per_ip=1)
            hosts = [f"http://h{n}.example:80" for n in range(4)]
            await worker.push([record(f"{host}/{each}") for host in hosts for each in range(3)])
            for host in hosts:
                await worker.set_address(host, "10.0.0.1", crawl.now + 1e6, crawl.now)
            await worker.session.refresh()
            assert {host.host for host in (await crawl.view()).hosts} == set(hosts)

    asyncio.run(scenario())


def test_the_busiest_hosts_include_those_with_requests_in_flight(url):
    async def scenario() -> None:
        async with new_crawl(url, 2) as crawl:
            worker = await crawl.worker(places=1)
            records = [record(f"http://h{n}.example/{each}") for n in range(20) for each in range(5 * n + 5)]
            await worker.push(records)
            leases = await worker.lease(15, crawl.now)  # hosts with a request in flight are not in the ready queue
            view = await crawl.view()
            assert len(view.hosts) == HOSTS_SHOWN
            busy = {host.host: host for host in view.hosts}
            leased_hosts = {lease.record.host for lease in leases}
            for n in range(10, 20):
                host = busy[f"http://h{n}.example:80"]
                assert host.queued + host.in_flight == 5 * n + 5
                assert host.in_flight == 1 or host.host not in leased_hosts
            assert sum(worker.leased for worker in view.workers) >= len(leases)

    asyncio.run(scenario())


def test_viewing_a_crawl_changes_nothing(url):
    async def scenario() -> None:
        async with new_crawl(url) as crawl:
            worker = await crawl.worker()
            await worker.push([record(f"http://h{n}.example/") for n in range(9)])
            await crawl.beat(worker, worker_report(pages=1))
            before = await dump(crawl)
            for _ in range(3):
                await crawl.view()
            assert await dump(crawl) == before

    async def dump(crawl: OutsideCrawl) -> dict[bytes, bytes]:
        keys = [key async for key in crawl.client.scan_iter(key_of(crawl.name, 0) + "*")]
        return {key: await crawl.client.dump(key) for key in sorted(keys)}

    asyncio.run(scenario())
