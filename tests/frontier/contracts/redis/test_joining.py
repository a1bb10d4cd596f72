"""Who may take part in a crawl on Redis, by which address, and what others are told in one line (C3, C6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest
import redis as driver

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

pytestmark = pytest.mark.redis

SPIDER = "spider shop"
SHORT_S, LONG_S = 0.3, 60.0


class Crawl:
    """A crawl that workers try to join."""

    def __init__(self, url: str) -> None:
        self.url, self.name = url, token_hex(4)
        self.server = driver.Redis.from_url(url)

    def join(self, known: str = "", *, spider: str = SPIDER, partitions: int = 2, until: int = 99) -> str:
        """Join. The worker dies after so many calls."""
        left = [until]

        async def at_once(act: Callable[[], Awaitable[Any]]) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            return await act()

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
def refused(error: type[Exception], says: str):
    with pytest.raises(error, match=says) as caught:
        yield
    assert "\n" not in str(caught.value)


def test_of_the_same_spider_all_may_join(crawl):
    assert crawl.join() == crawl.join() == crawl.join(crawl.join())


def test_another_spider(crawl):
    crawl.join()
    with refused(ForeignState, "is one of spider shop, not of spider news: give another --crawl-name"):
        crawl.join(spider="spider news")


def test_otherwise_divided(crawl):
    crawl.join()
    with refused(StateError, "has 2 partitions, not 4: set partitions=2"):
        crawl.join(partitions=4)


def test_other_versions(crawl):
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
    assert crawl.server.hget(crawl.key(0), "workers") == b"1", "nothing is changed by who is refused"


def test_who_begins_may_die_anywhere(crawl):
    for calls in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            crawl.join(until=calls)
    assert crawl.join() == crawl.join()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_server_of_some_partitions_that_comes_back_empty(crawl, lost):
    """A new worker that knows of no crawl does not fill the gap: what was there would be missing in silence."""
    known = crawl.join()
    crawl.lose(lost)
    with refused(StateError, "is incomplete: its partition 1 is missing: .*; give another --crawl-name"):
        crawl.join()
    with refused(StateError, "is incomplete|is missing: another crawl has its name"):
        crawl.join(known)


def test_the_creator_of_a_crawl_is_told_of_it_and_of_the_others_there(tmp_path):
    """A name that is misspelt begins another crawl."""

    def told(name: str) -> str:
        said: list[str] = []

        async def story() -> None:
            frontier = await redis_frontier(server.url, name, Policy(), Membership("w"), said.append, partitions=2)
            await frontier.close()

        asyncio.run(story())
        return "\n".join(said)

    with redis_server() as server:
        begun = f"Started crawl 'shop' in {server.url}; workers can join."
        assert told("shop") == begun
        assert told("shop") == ""
        assert told("news") == begun.replace("shop", "news") + " Other crawls there: shop"
        shpo = begun.replace("shop", "shpo") + " Other crawls there: news, shop: did you mean 'shop'?"
        assert told("shpo") == shpo
        client = driver.Redis.from_url(server.url)
        client.delete(*client.scan_iter("lycosa:{shop.*"))
        assert told("other").endswith(" Other crawls there: news, shpo")
        for n in range(20):
            told(f"n{n:02}")
        assert told("last").endswith(" Other crawls there: n00, n01, n02, n03, n04, n05, n06, n07, n08, n09, ...")
        with refused(UsageError, "there is no crawl 'nws' in .*; did you mean 'news'[?]$"):
            asyncio.run(visited(server.url, "nws"))


async def visited(url: str, name: str) -> None:
    async with open_crawl(url, name, pytest.fail):
        pass


@pytest.mark.parametrize("name", ["", "{}", "}{", "a{b", "a\nb", "\x1b[31m", "x" * 201, "\udcff"])
def test_names_that_no_crawl_can_have(name):
    """A brace would end the hash tag of its keys: a partition would be spread over a cluster."""
    with refused(UsageError, "is not a crawl name: give a --crawl-name of at most 200 characters, no braces"):
        Session(None, name, "w", asyncio.sleep, 1, callers_clock=True)


@pytest.mark.parametrize("name", ["shop", "a b/c", "..", "ü*☃", "x" * 200])
def test_names_that_a_crawl_may_have(redis, name):
    async def story() -> None:
        frontier = await redis_frontier(redis.url, name, Policy(), Membership(token_hex(4)), print, partitions=2)
        await frontier.close()

    asyncio.run(story())


def test_a_process_with_a_copy_of_our_state(redis):
    """Two that give up each other would do so for ever: the one that was given up finds out, and ends."""

    def report() -> bytes:
        return encode(WorkerReport("machine", 7, "1.0", time.monotonic(), CRAWLING))

    async def story(name: str) -> None:
        first = await redis_frontier(redis.url, name, Policy(), Membership("w"), print)
        copy = await redis_frontier(redis.url, name, Policy(), Membership("w"), print)
        copy.set_reporter(report, bytes)
        await first.close()
        with refused(ForeignState, "with a copy of this state: give each worker a --state of its own"):
            await redis_frontier(redis.url, name, Policy(), Membership("w"), print, again=True)
        await copy.close()
        alone = await redis_frontier(redis.url, name, Policy(), Membership("w"), print, again=True)
        await alone.close()

    asyncio.run(story(token_hex(4)))


def test_who_cannot_tell_of_itself_leaves_all_the_same(crawl):
    """What it was lent is lent to others at once, and not when it is dead."""

    async def story() -> None:
        dumb = await redis_frontier(crawl.url, crawl.name, Policy(), Membership("a"), print)
        OpenFrontier.joined(dumb).set_reporter(WorkerReporter(None, RunStats(0.0), StatsCollector(), 1))
        other = await redis_frontier(crawl.url, crawl.name, Policy(), Membership("b"), print)
        await dumb.push([url(1)])
        assert await dumb.lease(1, time.time())
        await OpenFrontier.joined(dumb).totals(WorkerReporter(None, RunStats(0.0), StatsCollector(), 1))
        await dumb.close()
        assert crawl.server.zcard(crawl.key(0)[:-1] + Key.WORKERS) == 1
        assert await other.lease(1, time.time())
        await other.close()

    asyncio.run(story())


def joined(url: str) -> None:
    async def story() -> None:
        member = Membership("w")
        frontier = await redis_frontier(url, token_hex(4), Policy(), member, print)
        assert member.crawl
        await frontier.commit({})
        await frontier.close()

    asyncio.run(story())


def test_who_is_refused_does_not_make_the_crawl_its_own(crawl):
    """Seeds were first, and are nobody's."""
    crawl.join(spider="")
    with refused(StateError, "has 2 partitions, not 4"):
        crawl.join(spider="spider news", partitions=4)
    assert crawl.server.hget(crawl.key(0), "spider") == b""
    crawl.join()


def test_who_keeps_what_is_done_otherwise_changes_no_policy(crawl):
    crawl.join()
    crawl.server.hset(crawl.key(0), "keep_done", "1")
    with refused(StateError, "was begun with keep_done: set keep_done=true"):
        crawl.join()
    assert crawl.server.hget(crawl.key(0), "workers") == b"1", "nothing is changed by who is refused"


def looked_at(crawl: Crawl, partitions: int) -> int:
    """Look at a crawl, which is begun if it is not there. Return how many partitions it has."""

    async def story() -> int:
        async with open_crawl(crawl.url, crawl.name, pytest.fail, CrawlForm(partitions, keep_done=False)) as opened:
            return len(opened.session.partitions)

    return asyncio.run(story())


def test_a_beginning_that_others_made_is_gone_on_with(crawl):
    """Somebody else died in the middle of it, or is at it."""
    with pytest.raises(KeyboardInterrupt):
        crawl.join(until=1)
    assert looked_at(crawl, 4) == 2
    assert crawl.server.hget(crawl.key(0), "crawl") == crawl.server.hget(crawl.key(1), "crawl")
    crawl.join()


def test_a_crawl_of_another_version_is_not_touched_from_outside(crawl):
    crawl.join()
    crawl.server.sadd(CRAWLS, crawl.name)
    crawl.server.hset(crawl.key(0), "layout", "1000")
    with refused(StateError, "another version of Lycosa: its layout is 1000"):
        looked_at(crawl, 2)


def test_a_commit_waits_for_replicas(monkeypatch):
    """And no longer than a while for one that stands still, which is said once."""
    said: list[str] = []
    positions = "lycosa:{shop.0}:" + Key.POSITIONS

    async def committed(frontier: RedisFrontier, items: int, within_s: float) -> float:
        monkeypatch.setattr(replicas, "REPLICATED_MAX_S", within_s)
        began = time.monotonic()
        await frontier.commit({"items": items})
        return time.monotonic() - began

    async def story(url: str, replica: RedisServer) -> None:
        frontier = await redis_frontier(url, "shop", Policy(), Membership("w"), said.append, replicas=1)
        assert await committed(frontier, 0, LONG_S) < LONG_S
        assert driver.Redis.from_url(replica.url).hget(positions, "w/items") == b"0", "committed, and not there"
        assert len(said) == 1, "that it begins"
        replica.pause()
        for items in (1, 2):
            assert SHORT_S <= await committed(frontier, items, SHORT_S) < LONG_S
        replica.resume()
        await frontier.close()

    with redis_server() as server, redis_server(replicaof=f"127.0.0.1 {server.port}") as replica:
        while "state=online" not in server.cli("INFO", "replication"):
            time.sleep(0.05)
        asyncio.run(story(server.url, replica))
    assert said[1:] == ["0 of 1 replicas have a commit after 0.3 s; the crawl continues"]


def login(server: RedisServer) -> str:
    return f"{server.url}?ca={server.ca}"


def test_by_a_password_and_tls():
    with redis_server(tls=True, password="a%20secret") as server:
        with_password = login(server).replace("a%20secret", "a%2520secret")
        joined(with_password)
        joined(f"{with_password}&cert={server.ca}&key={server.home / 'server.key'}")
        for wrong, error, says in (
            (server.url, UsageError, "name its authority with ca=FILE"),
            (login(server), UsageError, "refuses this user and password"),
            (with_password.replace("rediss:", "redis:").partition("?")[0], StateError, "does it want TLS, rediss://"),
        ):
            with refused(error, says):
                joined(wrong)


@pytest.mark.parametrize("form", ["rediss", "rediss+cluster", "rediss+sentinel"])
def test_tls_with_a_server_that_has_none(redis, form):
    """It waits for the end of a line, and says nothing: the driver would wait for as long as for any answer."""
    address = f"{form}://{redis.url.split('/')[2]}" + ("/shop" if "sentinel" in form else "")
    began = time.monotonic()
    with refused(UsageError, "there is no TLS on this port; without TLS write redis://"):
        joined(address)
    assert time.monotonic() - began < CALL_TIMEOUT_S - 2


def test_a_server_that_is_not_what_its_address_says(redis):
    place = redis.url.split("/")[2]
    with refused(UsageError, "is no node of a cluster; write redis://"):
        joined(f"redis+cluster://{place}")
    with refused(UsageError, "is no Sentinel; write redis://"):
        joined(f"redis+sentinel://{place}/shop")
    with refused(StateError, "^redis.sentinel://127.0.0.1:1/shop: no answer from any of these Sentinels$"):
        joined("redis+sentinel://127.0.0.1:1/shop")


@pytest.mark.parametrize("options", [{"rename_command INFO": ""}, {}])
def test_a_server_that_hides_its_info(options):
    """As some do that others run for us. Links go from one partition to another, though nobody says who counts them."""

    async def story(address: str) -> set[str]:
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
        assert asyncio.run(asyncio.wait_for(story(server.url), 60)) == {f"http://h{n}.test" for n in range(9)}


def test_through_a_socket(tmp_path: Path):
    with redis_server(unixsocket=tmp_path / "redis.sock", password="secret") as server:
        joined(f"unix://:secret@{tmp_path}/redis.sock?db=3")
        assert server.cli("INFO", "keyspace").count("db3:") == 1
        with refused(UsageError, "refuses this user and password"):
            joined(f"unix://{tmp_path}/redis.sock")
        with refused(StateError, "no answer from the server"):
            joined(f"unix://{tmp_path}/other.sock")


def test_what_comes_from_outside_is_refused_by_a_server_that_is_full() -> None:
    async def story() -> None:
        worker = await redis_frontier(server.url, "shop", Policy(robots=False), Membership("w"), print)
        await worker.push([url(2)])
        await worker.nack((await worker.lease(1, time.time()))[0], "timeout", None, time.time())
        await worker.commit({})
        await worker.close()
        async with open_crawl(server.url, "shop", pytest.fail, CrawlForm(1, keep_done=False)) as opened:
            operations = RedisOperations(opened.session)
            server.cli("CONFIG", "SET", "maxmemory", "1mb")
            for into in (None, "other"):
                with pytest.raises(StorageFull, match="has reached its maxmemory; nothing is lost"):
                    await operations.requeue(Selection(("dead",)), into, time.time(), "", 10)
            with pytest.raises(StorageFull, match="has reached its maxmemory; nothing is lost"):
                await operations.push([url(1)])
            server.cli("CONFIG", "SET", "maxmemory", "0")
            stats = await operations.stats()
            assert (stats.queued, stats.dead) == (0, 1)
            assert (await operations.requeue(Selection(("dead",)), None, time.time(), "", 10)).requeued == 1
            assert await operations.push([url(1)]) == 1
            assert (await operations.stats()).queued == 2

    with redis_server() as server:
        asyncio.run(story())


def test_a_server_that_would_drop_keys_once_it_had_a_limit():
    with redis_server(maxmemory_policy="allkeys-lru") as server:
        with refused(StateError, "maxmemory-policy allkeys-lru .* set it to noeviction"):
            joined(server.url)
        server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        joined(server.url)


def test_every_master_of_a_cluster_is_looked_at(cluster: RedisCluster):
    for node in cluster.nodes[:3]:
        node.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "100mb")
        try:
            with refused(StateError, "maxmemory-policy allkeys-lru .* set it to noeviction"):
                joined(cluster.url)
        finally:
            node.cli("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
    joined(cluster.url)
