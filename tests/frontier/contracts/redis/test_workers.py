"""Two workers of one crawl on Redis (C3, C6): what one leaves behind, the other takes over."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.crawl.middlewares.cookies import Cookies
from lycosa.frontier.core.model import Lease
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.scripts import WORKER_SCRIPT
from lycosa.frontier.redis.worker.cookies import RedisCookies
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import HOST, OTHER, PLAIN, run, url
from tests.frontier.simulated import simulated_frontier
from tests.servers.redis import RedisServer, redis_server

pytestmark = pytest.mark.redis

CALL_TIMES = [0.8, 1.6, 2.4, 2.5]
"""A worker calls at these times; one that is silent during all of them expires."""

Join = Callable[[float], Awaitable[Any]]


@pytest.fixture(params=[1, 3])
def join(request: pytest.FixtureRequest, redis) -> Join:
    """A function that returns the frontier of one more worker of the crawl."""
    name, names = token_hex(8), iter("abc")

    async def join_(now: float) -> Any:
        client: Any = LooplessClient(redis.url)
        return await simulated_frontier(client, name, PLAIN, now, worker=next(names), partitions=request.param)

    return join_


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A server for tests that change all of its data."""
    with redis_server() as server:
        yield server


class RecordingClient(LooplessClient):
    """A client that stores the data of the server before each call, so that the server can lose later writes."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.before_calls: list[dict[bytes, bytes]] = []

    async def execute_command(self, *arguments: Any) -> Any:
        server = self.blocking
        self.before_calls.append({key: server.dump(key) for key in server.scan_iter()})
        return server.execute_command(*arguments)

    def go_back(self, calls: int) -> None:
        """Restart the server without the writes of this many last calls."""
        self.blocking.flushdb()
        for key, value in self.before_calls[-calls].items():
            self.blocking.restore(key, 0, value)
        self.blocking.execute_command("DEBUG", "CHANGE-REPL-ID")


class RestartingClient(RecordingClient):
    """A client whose server restarts between the two steps of a commit, without what two partitions have prepared."""

    restarts = False

    async def execute_command(self, *arguments: Any) -> Any:
        if self.restarts and "commit" in arguments:
            self.restarts = False
            self.go_back(2)
        return await super().execute_command(*arguments)


async def lease_one(frontier: Any, now: float) -> Lease:
    """Return the only lease. Its record may first have to be delivered from another partition."""
    (lease,) = [lease for _ in range(2) for lease in await frontier.lease(5, now)]
    return lease  # type: ignore[no-any-return]


@pytest.mark.parametrize("host", [HOST, OTHER])
def test_an_unfiltered_record_is_queued_once_although_its_parent_is_fetched_again(join: Join, host: str) -> None:
    async def scenario() -> None:
        first, unfiltered = await join(0.0), url(2, host, dont_filter=True)
        await first.push([url(1)])
        await first.ack(await lease_one(first, 0.0), "200", [unfiltered], 0.0)
        assert await first.lease(5, 0.0) == [], "its parent is not committed"
        second = await join(0.0)
        (parent,) = [lease for now in CALL_TIMES for lease in await second.lease(5, now)]
        await second.ack(parent, "200", [unfiltered], CALL_TIMES[-1])
        await second.commit({})
        child = await lease_one(second, CALL_TIMES[-1])
        assert child.record == unfiltered
        await second.ack(child, "200", [], CALL_TIMES[-1])
        await second.commit({})
        assert await second.lease(5, CALL_TIMES[-1]) == []
        stats = await second.stats()
        assert (stats.done, stats.unfinished) == (2, 0)
        await asyncio.gather(first.close(), second.close())

    run(scenario())


def test_a_late_call_of_a_session_that_the_server_has_lost_is_refused(own_redis) -> None:
    """The server gives the lost number of the worker, and the lost tokens of its leases, to the next session."""

    async def scenario() -> None:
        client: Any = RecordingClient(own_redis.url)
        await (await simulated_frontier(client, "x", PLAIN, 0.0, worker="other")).push([url(1), url(2, OTHER)])
        joined_after = len(client.before_calls)
        lost = await simulated_frontier(client, "x", PLAIN, 0.0, worker="a")
        lost_leases = await lost.lease(2, 0.0)
        client.go_back(len(client.before_calls) - joined_after)
        frontier = await simulated_frontier(client, "x", PLAIN, 0.0, worker="a")
        leases = await frontier.lease(2, 0.0)
        assert [lease.token for lease in lost_leases] == [lease.token for lease in leases]
        await lost.ack(lost_leases[0], "200", [], 0.0)
        with pytest.raises(WorkerLost):
            await lost.commit({})
        assert (await frontier.stats()).leased == 2

    run(scenario())


@pytest.mark.parametrize("lost", ["decision", "prepared"])
def test_a_restarted_server_that_has_lost_a_part_of_a_commit_keeps_none_of_it(own_redis, lost: str) -> None:
    """The position of the items is that of the commit before, so the worker writes the items of the lost commit again.

    The pages of the lost commit are fetched again.
    """

    async def scenario() -> None:
        client: Any = RestartingClient(own_redis.url)
        worker = partial(simulated_frontier, client, "x", PLAIN, 0.0, worker="a", partitions=3)
        frontier = await worker()
        hosts = {frontier.session.partition_of(host): host for host in (f"http://h{n}.example:80" for n in range(20))}
        await frontier.push([url(number, host) for number, host in enumerate(hosts.values())])
        await frontier.commit({"items": 10})
        await frontier.session.refresh()
        for lease in await frontier.lease(3, 0.0):
            await frontier.ack(lease, "200", [], 0.0)
        await frontier.session.send()
        if lost == "prepared":
            client.restarts = True
            with pytest.raises(WorkerLost):
                await frontier.commit({"items": 20})
        else:
            await frontier.commit({"items": 20})
            client.go_back(1)
            with pytest.raises(WorkerLost):
                await frontier.session.send(frontier.session.partitions[1:])
        await frontier.session.leave()
        frontier = await worker()
        assert await frontier.positions() == {"items": 10}
        assert len(await fetch_all(frontier)) == 3

    run(scenario())


async def fetch_all(frontier: Any) -> list[str]:
    """Fetch all records. Return their URLs."""
    urls = []
    for _ in range(4):  # records may be delivered from one partition to another, and on to a third
        for lease in await frontier.lease(1000, 0.0):
            urls.append(lease.record.url)
            await frontier.ack(lease, "200", [], 0.0)
    return sorted(urls)


def test_outboxes_are_renumbered_on_another_server(join: Join, redis) -> None:
    """The id of the server changes, as after a restart or a failover.

    Partitions to which more or fewer records were delivered before lose nothing.
    """

    async def scenario() -> None:
        frontier = await join(0.0)
        for first, count in ((100, 3), (200, 40), (300, 7)):
            children = [url(first + n, f"http://h{n % 7}.example:80") for n in range(count)]
            await frontier.push([url(first)])
            parent = await lease_one(frontier, 0.0)
            await frontier.ack(parent, "200", children, 0.0)
            redis.cli("DEBUG", "CHANGE-REPL-ID")
            assert set(await fetch_all(frontier)) >= {child.url for child in children}
        assert (await frontier.stats()).unfinished == 0
        await frontier.close()

    run(scenario())


def test_a_worker_gets_the_cookies_of_the_pages_it_leases(join: Join, tmp_path: Path) -> None:
    async def scenario() -> None:
        frontiers = [await join(0.0) for _ in range(2)]
        jars, page = [], Request(f"{OTHER}/")
        for name, frontier in zip("ab", frontiers, strict=True):
            frontier.cookies = RedisCookies(frontier.session)
            jars.append(Cookies(SqliteKeyStore(tmp_path / name), Clock(), shared=frontier.cookies))
        first, second = frontiers
        for value in ("1", "2"):
            request = Request(f"{OTHER}/", cookies={"id": value})
            jars[0].process_request(request)
            await first.push([url(int(value), host) for host in (HOST, OTHER, "http://c.example:80")])
            assert await second.lease(100, 0.0)
            jars[1].process_request(page)
            assert page.headers["Cookie"] == f"id={value}"
        jars[1].process_request(Request(f"{OTHER}/", cookies=[{"name": "other", "value": "3"}]))
        await second.push([url(9)])
        await first.lease(100, 0.0)
        jars[0].process_request(page)
        assert page.headers["Cookie"] == "id=2; other=3"
        for frontier in frontiers:
            await frontier.close()

    run(scenario())


def test_no_two_verbs_or_commands_of_the_script_have_the_same_name() -> None:
    names = re.findall(rb"^(verbs|commands)\['(.+?)'\] =", WORKER_SCRIPT.text, re.MULTILINE)
    assert len(names) > 20
    assert len(names) == len(set(names))


def test_cookies_that_a_replica_lacks_do_not_delay_later_cookies(redis) -> None:
    async def scenario() -> None:
        client: Any = LooplessClient(redis.url)
        first, second = [await simulated_frontier(client, name, PLAIN, 0.0, worker=worker) for worker in "ab"]
        publisher, subscriber = RedisCookies(first.session), RedisCookies(second.session)
        cookies: list[bytes] = []
        subscriber.subscribe(lambda _, cookie: cookies.append(cookie))
        for each in (b"1", b"2", b"3"):
            publisher.publish("", each.decode(), each)
        await first.session.send()
        await subscriber.update()
        key = first.session.partitions[0].key
        client.blocking.hset(key + Key.META, "cookies", 1)
        client.blocking.zremrangebyscore(key + Key.COOKIE_CHANGES, 2, 3)
        cookies.clear()
        publisher.publish("", "later", b"later")
        await first.session.send()
        await subscriber.update()
        assert b"later" in cookies

    name = token_hex(8)
    run(scenario())


def test_the_number_of_reasons_is_bounded(join: Join) -> None:
    """A page could make a spider fail for any number of different reasons."""

    async def story() -> None:
        first = await join(0.0)
        partition = first.session.partition_of(HOST)
        await first.push([url(1), url(2), url(3)])
        fields = {f"\nno {number}": 0 for number in range(10_000)}
        first.session.calls.client.blocking.hset(partition.key + Key.DONE_REASONS, mapping=fields)
        for reason in ("no 7", "a new one", "200"):
            await first.ack(await lease_first(first), reason, [], 0.0)
            await first.session.refresh()
        assert (await first.stats()).reasons == {"no 7": 1, "other reasons": 1, "200": 1}
        await first.close()
        second = await join(0.0)
        await second.session.refresh()
        assert (await second.stats()).reasons == {}, "uncommitted reasons are dropped"
        await second.close()

    async def lease_first(frontier: Any) -> Lease:
        return (await frontier.lease(1, 0.0))[0]

    run(story())


def test_pages_with_very_many_links_are_sent_immediately(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no single call occupies the server for long."""
    monkeypatch.setattr("lycosa.frontier.redis.worker.frontier.WAITING_ARGUMENTS_MAX", 200)

    async def scenario() -> None:
        frontier = await join(0.0)
        await frontier.push([url(1), url(2)])
        few, many = await frontier.lease(2, 0.0)
        await frontier.ack(few, "200", [url(number) for number in range(10, 15)], 0.0)
        assert frontier.session.partition_of(HOST).waiting_arguments > 0
        await frontier.ack(many, "200", [url(number) for number in range(20, 60)], 0.0)
        assert frontier.session.partition_of(HOST).waiting_arguments == 0
        await frontier.close()

    run(scenario())
