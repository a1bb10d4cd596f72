"""The contract of `SharedFrontier` and `SharedCrawl`: what a frontier on a server offers beyond `Frontier` (C3, C6)."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterator
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import NewerState
from lycosa.frontier.core.description import Description
from lycosa.frontier.core.states import Policy
from lycosa.frontier.core.telemetry import CRAWLING, ENDED, RunProgress, WorkerReport, encode
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.ports import Frontier, SharedCookies, SharedCrawl, SharedFrontier
from lycosa.frontier.redis.admin.open_crawl import open_crawl
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.shared_crawl import RedisCrawl
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.session import Session, key_of
from tests.frontier.contracts.conftest import PARTITIONS
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import OTHER, PLAIN, run, url
from tests.frontier.simulated import simulated_frontier
from tests.servers.redis import RedisServer, redis_server
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

Join = Callable[[str], Awaitable[SharedFrontier]]
REPORT_MAX_S = 30.0
ROUNDS_MAX = 3
"""After this many exchanges of all workers every partition knows the last commit."""


@pytest.fixture(params=PARTITIONS)
def join(request: pytest.FixtureRequest) -> Join:
    """A function that lets one more worker join the crawl `join.name` on `join.server`."""
    server = request.getfixturevalue(request.param.partition(",")[0])
    name, partitions = token_hex(8), PARTITIONS[request.param]

    async def join_(worker: str) -> SharedFrontier:
        client = LooplessClient(server.url)
        return await simulated_frontier(client, name, PLAIN, 0.0, worker=worker, partitions=partitions)

    join_.server, join_.name = server, name  # type: ignore[attr-defined]
    return join_


def report(pages: int, state: str = CRAWLING) -> bytes:
    return encode(WorkerReport("machine", 7, "1.0", float(pages), state, counts={"pages": pages}))


def names_of(port: type) -> Iterator[str]:
    """Yield the public names of a port and of the ports it extends."""
    for each in port.__mro__:
        if getattr(each, "_is_protocol", False) and each.__name__ != "Protocol":
            yield from (name for name in vars(each) if not name.startswith("_"))


@pytest.mark.parametrize(
    ("port", "adapter"),
    [(SharedFrontier, RedisFrontier), (SharedCrawl, RedisCrawl), (SharedCookies, RedisCookies)],
    ids=lambda each: each.__name__,
)
def test_an_adapter_has_every_name_of_its_port_with_the_same_parameters(join: Join, port: type, adapter: type) -> None:
    async def scenario() -> None:
        frontier: Any = await join("one")
        instance = {RedisFrontier: frontier, RedisCrawl: frontier.crawl, RedisCookies: RedisCookies(frontier.session)}[
            adapter
        ]
        assert isinstance(instance, adapter)
        names = set(names_of(port))
        assert names
        assert [name for name in names if not hasattr(instance, name)] == []
        for name in names:
            if inspect.isfunction(method := inspect.getattr_static(port, name)):
                adapter_method = getattr(adapter, name)
                assert list(inspect.signature(adapter_method).parameters) == list(
                    inspect.signature(method).parameters
                ), name
                assert inspect.iscoroutinefunction(adapter_method) == inspect.iscoroutinefunction(method), name
        await frontier.close()

    run(scenario())


def test_a_local_frontier_has_no_names_of_the_shared_port() -> None:
    local = memory_frontier(PLAIN)
    assert [name for name in names_of(Frontier) if not hasattr(local, name)] == []
    assert [name for name in {*names_of(SharedFrontier)} - {*names_of(Frontier)} if hasattr(local, name)] == []


def test_the_description_of_a_crawl_is_that_of_all_its_workers(join: Join) -> None:
    """Seeds are merged; the other fields are those of the last worker."""

    async def scenario() -> None:
        one, two = await join("one"), await join("two")
        assert await one.crawl.description() == Description(), "no worker has described it"
        await one.crawl.describe(Description(name="shop", seeds=["http://a.example/"]))
        assert await two.crawl.description() == Description(name="shop", seeds=["http://a.example/"])
        await two.crawl.describe(Description(name="shop", key=["path"], seeds=["http://b.example/"]))
        seeds = ["http://a.example/", "http://b.example/"]
        assert await one.crawl.description() == Description(name="shop", key=["path"], seeds=seeds)
        await one.crawl.describe(Description(imported=True), keep_existing=True)
        assert await one.crawl.description() == Description(name="shop", key=["path"], seeds=seeds), (
            "the description of a worker is kept"
        )
        await one.close()
        await two.close()

    run(scenario())


def test_a_description_of_a_later_version_is_refused(join: Join) -> None:
    async def scenario() -> None:
        frontier = await join("one")
        server, name = join.server, join.name  # type: ignore[attr-defined]
        redis_client(server.url).set(key_of(name, 0) + Key.DESCRIPTION, b'{"seeds":"one"}')
        with pytest.raises(NewerState, match=f"cannot read the description of the crawl '{name}'"):
            await frontier.crawl.description()
        await frontier.close()

    run(scenario())


def test_workers_are_counted_while_they_take_part(join: Join) -> None:
    async def scenario() -> None:
        one, two = await join("one"), await join("two")
        assert await one.crawl.workers() == 2
        await two.close()
        assert await one.crawl.workers() == 1
        await one.close()

    run(scenario())


def test_a_crawl_is_finished_when_no_worker_has_work_left(join: Join) -> None:
    async def scenario() -> None:
        one, two = await join("one"), await join("two")
        await one.push([url(1)])
        (lease,) = await one.lease(1, 0.0)
        assert not await two.is_finished(), "another worker holds the lease"
        await one.ack(lease, "200", [url(2, OTHER)], 0.0)
        await one.commit({})
        await two.stats()
        assert not await two.is_finished(), "the link of the page is yet to be fetched"
        (child,) = [lease for _ in range(2) for lease in await two.lease(5, 0.0)]
        await two.ack(child, "200", [], 0.0)
        await two.commit({})
        for _ in range(ROUNDS_MAX):
            assert await one.lease(5, 0.0) == await two.lease(5, 0.0) == []
        for each in (one, two):
            assert await each.is_finished()
            await each.close()

    run(scenario())


def test_totals_include_the_current_report_and_those_of_workers_that_left(join: Join) -> None:
    async def scenario() -> None:
        one, two = await join("one"), await join("two")
        assert await one.totals(b"") == {}, "nothing was reported"
        assert await one.totals(report(3)) == {"pages": 3}
        assert await one.totals(report(4)) == {"pages": 4}, "the counters of a worker replace its previous ones"
        assert await two.totals(report(10)) == {"pages": 14}
        one.set_reporter(bytes, lambda: report(5, ENDED))
        await one.close()
        assert await two.totals(report(10)) == {"pages": 15}
        await two.close()

    run(scenario())


def counted(pages: int, items: int, state: str = CRAWLING) -> bytes:
    counts = {"pages": pages, "items": items}
    return encode(WorkerReport("machine", 7, "1.0", float(pages), state, counts=counts))


def test_progress_counts_all_workers_from_the_time_when_the_first_of_them_joined(join: Join) -> None:
    async def scenario() -> None:
        one: Any = await join("one")
        one.session.now = 10.0
        assert await one.progress(counted(4, 1)) == RunProgress(10.0, 0.0, 4, {"pages": 4, "items": 1})
        two: Any = await join("two")
        one.session.now = two.session.now = 15.0
        both = RunProgress(15.0, 5.0, 4, {"pages": 7, "items": 1})
        assert await two.progress(counted(3, 0)) == both, "a worker that joins later has the same run"
        await one.close()
        assert await two.progress(counted(3, 0)) == both, "with the counts of a worker that left"
        await two.close()
        three: Any = await join("three")
        assert await three.progress(counted(2, 0)) == RunProgress(0.0, 0.0, 0, {"pages": 2, "items": 0}), "a new run"
        assert await three.totals(counted(2, 0)) == {"pages": 9, "items": 1}, "and the same crawl"
        await three.close()

    run(scenario())


def test_a_worker_that_was_expired_and_joins_again_continues_its_run(join: Join) -> None:
    async def scenario() -> None:
        one: Any = await join("one")
        await one.progress(counted(4, 1))
        again = Session(one.session.calls.client, one.session.crawl, "one", one.session.calls.retry,
                        len(one.session.partitions), callers_clock=True)  # fmt: skip
        again.now, again.rejoins = 5.0, True
        frontier = RedisFrontier(again, PLAIN)
        await frontier.open()
        assert (await frontier.progress(counted(2, 0))) == RunProgress(5.0, 5.0, 4, {"pages": 6, "items": 1})
        await frontier.close()

    run(scenario())


def test_operations_apply_to_the_crawl_and_to_the_leases_of_this_worker(join: Join) -> None:
    async def scenario() -> None:
        frontier, calls = await join("one"), []

        async def commit() -> None:
            calls.append("commit")

        operations = frontier.operations(commit, lambda: calls.append("changed"), lambda: "the disk is full")
        assert (await operations.stats()).paused == "the disk is full"
        assert await operations.push([url(1, segment="monday"), url(2)]) == 2
        assert calls == ["changed"]
        await operations.commit()
        assert calls == ["changed", "commit"]
        leases = await frontier.lease(2, 0.0)
        (dropped,) = [each for each in leases if each.record.segment == "monday"]
        (kept,) = [each for each in leases if each.record.segment != "monday"]
        await operations.drop("monday")
        assert not await frontier.ack(dropped, "200", [], 0.0), "the lease is void with its segment"
        assert await frontier.ack(kept, "200", [], 0.0)
        await frontier.close()

    run(scenario())


def test_there_are_no_shared_cookies_and_no_shortage_by_default(join: Join) -> None:
    async def scenario() -> None:
        frontier = await join("one")
        assert frontier.cookies is None
        assert frontier.shortage == ""
        await frontier.check_membership()
        await frontier.close()

    run(scenario())


def test_reports_are_sent_with_the_heartbeat_and_on_leaving(redis: RedisServer) -> None:
    async def scenario() -> None:
        frontier = await redis_frontier(redis.url, name, Policy(robots=False), Membership("w"), print)
        frontier.set_reporter(lambda: report(7), lambda: report(8, ENDED))
        async with open_crawl(redis.url, name, pytest.fail) as visit:
            watcher, until = visit.watcher(), time.monotonic() + REPORT_MAX_S
            while not (view := await watcher.view()) or not view.totals:
                assert time.monotonic() < until
            assert view.totals == {"pages": 7}
            assert await visit.crawl.workers() == 1
            assert (await visit.operations(runs=True).stats()).unfinished == 0
            await frontier.close()
            view = await watcher.view()
            assert view is not None
            assert view.totals == {"pages": 8}
            assert [each.state for each in view.former_workers] == [ENDED]
            assert await visit.crawl.workers() == 0

    name = token_hex(8)
    run(scenario())


def test_a_full_server_is_reported_as_a_shortage_until_it_has_memory_again() -> None:
    async def scenario() -> None:
        frontier = await redis_frontier(server.url, "shop", Policy(robots=False), Membership("w"), print)
        await frontier.push([url(1)])
        assert frontier.server_url == f"redis://127.0.0.1:{server.port}/0"
        server.cli("CONFIG", "SET", "maxmemory", "1mb")
        await frontier.stats()
        assert frontier.shortage == f"{frontier.server_url} has reached its maxmemory"
        server.cli("CONFIG", "SET", "maxmemory", "0")
        await frontier.lease(0, time.time())
        assert frontier.shortage == ""
        await frontier.close()

    with redis_server() as server:
        run(scenario())
