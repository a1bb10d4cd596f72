"""Who may join a crawl on Redis, with which URL, and the one-line messages for everybody else (C3, C6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.core.errors import ForeignState, NewerState, StateError, StorageFull, UsageError
from lycosa.crawl.events.reporting import WorkerReporter
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.model import Selection
from lycosa.frontier.core.states import Policy
from lycosa.frontier.core.telemetry import CRAWLING, WorkerReport, encode
from lycosa.frontier.redis import replicas
from lycosa.frontier.redis.admin.open_crawl import CrawlForm, open_crawl
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.layout import LAYOUT, Key
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.session import CRAWLS, Session
from lycosa.infra.redis.server import CALL_TIMEOUT_S
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import url
from tests.servers.redis import RedisCluster, RedisServer, redis_server
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

SPIDER = "spider shop"
SHORT_S, LONG_S = 0.3, 60.0


class Crawl:
    """A crawl that workers try to join."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, token_hex(4)
        self.server = redis_client(url)

    def join(self, known: str = "", *, spider: str = SPIDER, partitions: int = 2, calls_max: int = 99) -> str:
        """Join the crawl. The worker is killed after `calls_max` calls."""
        calls_left = [calls_max]

        async def at_once(call: Callable[[], Awaitable[Any]]) -> Any:
            calls_left[0] -= 1
            if calls_left[0] < 0:
                raise KeyboardInterrupt
            return await call()

        client = LooplessClient(self.url)
        session = Session(client, self.name, "w", at_once, partitions, callers_clock=True, spider=spider)
        session.now = 1e9
        return asyncio.run(session.open({}, known))

    def key(self, number: int) -> str:
        return f"lycosa:{{{self.name}.{number}}}:m"

    def lose(self, number: int) -> None:
        self.server.delete(*self.server.scan_iter(f"lycosa:{{{self.name}.{number}}}:*"))


@pytest.fixture
def crawl(redis) -> Crawl:
    return Crawl(redis.url)


@contextmanager
def refused(error: type[Exception], message: str):
    with pytest.raises(error, match=message) as caught:
        yield
    assert "\n" not in str(caught.value)


def test_workers_of_the_same_spider_may_join(crawl):
    assert crawl.join() == crawl.join() == crawl.join(crawl.join())


def test_another_spider_is_refused(crawl):
    crawl.join()
    with refused(ForeignState, "belongs to spider shop, not to spider news: give another --crawl-name"):
        crawl.join(spider="spider news")


def test_another_number_of_partitions_is_refused(crawl):
    crawl.join()
    with refused(StateError, "has 2 partitions, not 4: set partitions=2"):
        crawl.join(partitions=4)


def test_other_layout_versions_are_refused(crawl):
    crawl.join()
    crawl.server.hset(crawl.key(0), "layout", "1000")
    with refused(NewerState, r"newer version of Lycosa \(layout 1000, this one has \d+\): update this worker"):
        crawl.join()
    crawl.server.hset(crawl.key(0), "layout", str(LAYOUT - 1))
    with refused(
        StateError, rf"older version of Lycosa \(layout {LAYOUT - 1}, .*let workers of that version finish it"
    ):
        crawl.join()
    crawl.server.hdel(crawl.key(0), "layout")
    with refused(StateError, r"older version of Lycosa \(layout 1, "):
        crawl.join()
    assert crawl.server.hget(crawl.key(0), "workers") == b"1", "a refused worker changes nothing"


def test_the_first_worker_may_die_at_any_call(crawl):
    for calls in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            crawl.join(calls_max=calls)
    assert crawl.join() == crawl.join()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_server_that_lost_some_partitions_is_refused(crawl, lost):
    """A new worker does not recreate the lost partition: its records would be missing unnoticed."""
    known = crawl.join()
    crawl.lose(lost)
    with refused(StateError, "is incomplete: its partition 1 is missing: .*; give another --crawl-name"):
        crawl.join()
    with refused(StateError, "is incomplete|is missing: another crawl has its name"):
        crawl.join(known)


def test_starting_a_crawl_is_reported_with_the_other_crawls_on_the_server(tmp_path):
    """Otherwise a misspelt name would start another crawl unnoticed."""

    def messages_of_joining(name: str) -> str:
        messages: list[str] = []

        async def scenario() -> None:
            frontier = await redis_frontier(server.url, name, Policy(), Membership("w"), messages.append, partitions=2)
            await frontier.close()

        asyncio.run(scenario())
        return "\n".join(messages)

    with redis_server() as server:
        started = f"Started crawl 'shop' in {server.url}; workers can join."
        assert messages_of_joining("shop") == started
        assert messages_of_joining("shop") == ""
        assert messages_of_joining("news") == started.replace("shop", "news") + " Other crawls there: shop"
        misspelt = started.replace("shop", "shpo") + " Other crawls there: news, shop: did you mean 'shop'?"
        assert messages_of_joining("shpo") == misspelt
        client = redis_client(server.url)
        client.delete(*client.scan_iter("lycosa:{shop.*"))
        assert messages_of_joining("other").endswith(" Other crawls there: news, shpo")
        for n in range(20):
            messages_of_joining(f"n{n:02}")
        assert messages_of_joining("last").endswith(
            " Other crawls there: n00, n01, n02, n03, n04, n05, n06, n07, n08, n09, ..."
        )
        with refused(UsageError, "there is no crawl 'nws' in .*; did you mean 'news'[?]$"):
            asyncio.run(open_existing(server.url, "nws"))


async def open_existing(url: str, name: str) -> None:
    async with open_crawl(url, name, pytest.fail):
        pass


@pytest.mark.parametrize("name", ["", "{}", "}{", "a{b", "a\nb", "\x1b[31m", "x" * 201, "\udcff"])
def test_invalid_crawl_names_are_refused(name):
    """A brace would end the hash tag of the keys and spread a partition over a cluster."""
    with refused(UsageError, "is not a valid crawl name: use 1 to 200 characters, but no braces or control characters"):
        Session(None, name, "w", asyncio.sleep, 1, callers_clock=True)


@pytest.mark.parametrize("name", ["shop", "a b/c", "..", "ü*☃", "x" * 200])
def test_valid_crawl_names_are_accepted(redis, name):
    async def scenario() -> None:
        frontier = await redis_frontier(redis.url, name, Policy(), Membership(token_hex(4)), print, partitions=2)
        await frontier.close()

    asyncio.run(scenario())


def test_two_workers_with_the_same_state_are_detected(redis):
    """They would expire each other for ever, so the expired one detects this and ends."""

    def report() -> bytes:
        return encode(WorkerReport("machine", 7, "1.0", time.monotonic(), CRAWLING))

    async def scenario(name: str) -> None:
        first = await redis_frontier(redis.url, name, Policy(), Membership("w"), print)
        copy = await redis_frontier(redis.url, name, Policy(), Membership("w"), print)
        copy.set_reporter(report, bytes)
        await first.close()
        with refused(ForeignState, "with a copy of this state: give each worker a separate --state"):
            await redis_frontier(redis.url, name, Policy(), Membership("w"), print, again=True)
        await copy.close()
        alone = await redis_frontier(redis.url, name, Policy(), Membership("w"), print, again=True)
        await alone.close()

    asyncio.run(scenario(token_hex(4)))


def test_a_worker_whose_report_fails_leaves_properly(crawl):
    """Its leases are released at once, not when it expires."""

    async def scenario() -> None:
        failing = await redis_frontier(crawl.url, crawl.name, Policy(), Membership("a"), print)
        OpenFrontier.joined(failing).set_reporter(WorkerReporter(None, RunStats(0.0), StatsCollector(), 1))
        other = await redis_frontier(crawl.url, crawl.name, Policy(), Membership("b"), print)
        await failing.push([url(1)])
        assert await failing.lease(1, time.time())
        await OpenFrontier.joined(failing).totals(WorkerReporter(None, RunStats(0.0), StatsCollector(), 1))
        await failing.close()
        assert crawl.server.zcard(crawl.key(0)[:-1] + Key.WORKERS) == 1
        assert await other.lease(1, time.time())
        await other.close()

    asyncio.run(scenario())


def join_and_leave(url: str) -> None:
    async def scenario() -> None:
        member = Membership("w")
        frontier = await redis_frontier(url, token_hex(4), Policy(), member, print)
        assert member.crawl
        await frontier.commit({})
        await frontier.close()

    asyncio.run(scenario())


def test_a_refused_worker_does_not_set_the_spider_of_a_crawl(crawl):
    """A crawl that was started by seeds belongs to no spider yet."""
    crawl.join(spider="")
    with refused(StateError, "has 2 partitions, not 4"):
        crawl.join(spider="spider news", partitions=4)
    assert crawl.server.hget(crawl.key(0), "spider") == b""
    crawl.join()


def test_a_worker_with_another_keep_done_is_refused_and_changes_nothing(crawl):
    crawl.join()
    crawl.server.hset(crawl.key(0), "keep_done", "1")
    with refused(StateError, "was started with keep_done: set keep_done=true"):
        crawl.join()
    assert crawl.server.hget(crawl.key(0), "workers") == b"1", "a refused worker changes nothing"


def open_from_outside(crawl: Crawl, partitions: int) -> int:
    """Open a crawl, which is created if it does not exist. Return its number of partitions."""

    async def scenario() -> int:
        async with open_crawl(crawl.url, crawl.name, pytest.fail, CrawlForm(partitions, keep_done=False)) as opened:
            return len(opened.session.partitions)

    return asyncio.run(scenario())


def test_a_partially_created_crawl_is_completed(crawl):
    """Its creator died in between, or is still running."""
    with pytest.raises(KeyboardInterrupt):
        crawl.join(calls_max=1)
    assert open_from_outside(crawl, 4) == 2
    assert crawl.server.hget(crawl.key(0), "crawl") == crawl.server.hget(crawl.key(1), "crawl")
    crawl.join()


def test_a_crawl_of_another_version_cannot_be_opened_from_outside(crawl):
    crawl.join()
    crawl.server.sadd(CRAWLS, crawl.name)
    crawl.server.hset(crawl.key(0), "layout", "1000")
    with refused(StateError, "another version of Lycosa: its layout is 1000"):
        open_from_outside(crawl, 2)


def test_a_commit_waits_for_replicas(monkeypatch):
    """But not longer than the limit if a replica is paused, which is reported once."""
    messages: list[str] = []
    positions = "lycosa:{shop.0}:" + Key.POSITIONS

    async def committed(frontier: RedisFrontier, items: int, within_s: float) -> float:
        monkeypatch.setattr(replicas, "REPLICATED_MAX_S", within_s)
        started = time.monotonic()
        await frontier.commit({"items": items})
        return time.monotonic() - started

    async def scenario(url: str, replica: RedisServer) -> None:
        frontier = await redis_frontier(url, "shop", Policy(), Membership("w"), messages.append, replicas=1)
        assert await committed(frontier, 0, LONG_S) < LONG_S
        assert redis_client(replica.url).hget(positions, "w/items") == b"0", "committed, but not on the replica"
        assert len(messages) == 1, "only the start of the crawl"
        replica.pause()
        for items in (1, 2):
            assert SHORT_S <= await committed(frontier, items, SHORT_S) < LONG_S
        replica.resume()
        await frontier.close()

    with redis_server() as server, redis_server(replicaof=f"127.0.0.1 {server.port}") as replica:
        while "state=online" not in server.cli("INFO", "replication"):
            time.sleep(0.05)
        asyncio.run(scenario(server.url, replica))
    assert messages[1:] == ["only 0 of 1 replicas confirmed a commit within 0.3 s; the crawl continues"]


def url_with_ca(server: RedisServer) -> str:
    return f"{server.url}?ca={server.ca}"


def test_a_server_with_password_and_tls_is_joined_only_with_a_url_that_has_both():
    with redis_server(tls=True, password="a%20secret") as server:
        with_password = url_with_ca(server).replace("a%20secret", "a%2520secret")
        join_and_leave(with_password)
        join_and_leave(f"{with_password}&cert={server.ca}&key={server.home / 'server.key'}")
        for wrong, error, message in (
            (server.url, UsageError, "name its authority with ca=FILE"),
            (url_with_ca(server), UsageError, "rejects this user and password"),
            (
                with_password.replace("rediss:", "redis:").partition("?")[0],
                StateError,
                "if it requires TLS, write rediss://",
            ),
        ):
            with refused(error, message):
                join_and_leave(wrong)


@pytest.mark.parametrize("form", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_tls_is_refused_by_a_server_without_it(redis, form):
    """Such a server waits silently for the end of a line; the driver alone would wait for its full timeout."""
    address = f"{form}://{redis.url.split('/')[2]}" + ("/shop" if "sentinel" in form else "")
    started = time.monotonic()
    with refused(UsageError, "there is no TLS on this port; without TLS write redis://"):
        join_and_leave(address)
    assert time.monotonic() - started < CALL_TIMEOUT_S - 2


def test_a_url_with_the_wrong_kind_of_server_is_refused(redis):
    host_port = redis.url.split("/")[2]
    with refused(UsageError, "is not a node of a cluster; write redis://"):
        join_and_leave(f"redis+cluster://{host_port}")
    with refused(UsageError, "is not a Sentinel; write redis://"):
        join_and_leave(f"redis+sentinel://{host_port}/shop")
    with refused(StateError, "^redis.sentinel://127.0.0.1:1/shop: no answer from any of these Sentinels$"):
        join_and_leave("redis+sentinel://127.0.0.1:1/shop")


@pytest.mark.parametrize("options", [{"rename_command INFO": ""}, {}])
def test_links_are_delivered_on_a_server_that_hides_its_info(options):
    """Some hosted servers do so. Links are delivered between partitions although the server's id is unknown."""

    async def scenario(address: str) -> set[str]:
        frontier = await redis_frontier(address, "shop", Policy(), Membership("w"), print, partitions=2)
        await frontier.push([url(0, "http://h0.test")])
        found: set[str] = set()
        while len(found) < 1 + 8:
            leases = await frontier.lease(10, time.time())
            for lease in leases:
                children = [] if found else [url(n, f"http://h{n}.test") for n in range(1, 9)]
                await frontier.ack(lease, "200", children, time.time())
                found.add(lease.record.host)
            await frontier.commit({})
            await asyncio.sleep(0 if leases else 0.01)
        await frontier.close()
        return found

    with redis_server(**options) as server:
        server.cli("ACL", "SETUSER", "default", "-info")
        assert asyncio.run(asyncio.wait_for(scenario(server.url), 60)) == {f"http://h{n}.test" for n in range(9)}


def test_a_server_is_reached_through_a_unix_socket(tmp_path: Path):
    with redis_server(unixsocket=tmp_path / "redis.sock", password="secret") as server:
        join_and_leave(f"unix://:secret@{tmp_path}/redis.sock?db=3")
        assert server.cli("INFO", "keyspace").count("db3:") == 1
        with refused(UsageError, "rejects this user and password"):
            join_and_leave(f"unix://{tmp_path}/redis.sock")
        with refused(StateError, "no answer from the server"):
            join_and_leave(f"unix://{tmp_path}/other.sock")


def test_operations_are_refused_by_a_full_server() -> None:
    async def scenario() -> None:
        worker = await redis_frontier(server.url, "shop", Policy(robots=False), Membership("w"), print)
        await worker.push([url(2)])
        await worker.nack((await worker.lease(1, time.time()))[0], "timeout", None, time.time())
        await worker.commit({})
        await worker.close()
        async with open_crawl(server.url, "shop", pytest.fail, CrawlForm(1, keep_done=False)) as opened:
            operations = RedisOperations(opened.session)
            server.cli("CONFIG", "SET", "maxmemory", "1mb")
            for segment in (None, "other"):
                with pytest.raises(StorageFull, match="has reached its maxmemory; nothing is lost"):
                    await operations.requeue(Selection(("dead",)), segment, time.time(), "", 10)
            with pytest.raises(StorageFull, match="has reached its maxmemory; nothing is lost"):
                await operations.push([url(1)])
            server.cli("CONFIG", "SET", "maxmemory", "0")
            stats = await operations.stats()
            assert (stats.queued, stats.dead) == (0, 1)
            assert (await operations.requeue(Selection(("dead",)), None, time.time(), "", 10)).requeued == 1
            assert await operations.push([url(1)]) == 1
            assert (await operations.stats()).queued == 2

    with redis_server() as server:
        asyncio.run(scenario())


def test_a_server_that_may_evict_keys_is_refused():
    with redis_server(maxmemory_policy="allkeys-lru") as server:
        with refused(StateError, "maxmemory-policy allkeys-lru .* set maxmemory-policy to noeviction"):
            join_and_leave(server.url)
        server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        join_and_leave(server.url)


def test_every_master_of_a_cluster_is_checked(cluster: RedisCluster):
    for node in cluster.nodes[:3]:
        node.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb")
        try:
            with refused(StateError, "maxmemory-policy allkeys-lru .* set maxmemory-policy to noeviction"):
                join_and_leave(cluster.url)
        finally:
            node.cli("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    join_and_leave(cluster.url)
