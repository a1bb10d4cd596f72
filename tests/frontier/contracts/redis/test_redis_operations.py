"""Operations on Redis: faults that `verify` finds and repairs, interrupted drops, and which fields of done URLs are not
stored (C4, C8, F2, F7). What all back ends have in common is in `test_operations`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.frontier.core.description import Description
from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin import verify
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.scripts import WORKER_SCRIPT
from lycosa.frontier.redis.worker.session import key_of
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_operations import HOST, OTHER, PLAIN, all_rows, brief, url
from tests.frontier.simulated import simulated_frontier
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

CHANGE_HOST = """
local fields = { cmsgpack.unpack(redis.call('GET', KEYS[1])) }
fields[tonumber(ARGV[1])] = tonumber(ARGV[2]) or ARGV[2]
redis.call('SET', KEYS[1], cmsgpack.pack(unpack(fields)))
"""
(HOST_FIELDS,) = re.findall(r"cmsgpack\.pack\((it\.queued,.*?)\)", WORKER_SCRIPT.text.decode(), re.DOTALL)
"""The fields of a host, in the order in which they are packed."""


class Crawl:
    """A crawl of one partition, and direct access to its keys."""

    def __init__(self, server: str, *, keep_done: bool = False, policy: Policy = PLAIN) -> None:
        self.server = server
        self.name = token_hex(8)
        self.policy = policy
        self.keep_done = keep_done
        self.raw = redis_client(server)

    async def join(self, worker: str) -> Any:
        """Return the frontier of one more worker."""
        client = LooplessClient(self.server)
        return await simulated_frontier(client, self.name, self.policy, 0.0, worker=worker, keep_done=self.keep_done)

    def key(self, name: str) -> str:
        """Return the full name of a key."""
        return key_of(self.name, 0) + name

    def change(self, host: str, field: str, value: object) -> None:
        """Change a stored field of a host, as a bug might."""
        number = 1 + re.findall(r"\w+", HOST_FIELDS.replace("it.", "")).index(field)
        self.raw.eval(CHANGE_HOST, 1, self.key(Key.HOST + host), number, str(value))


@pytest.fixture
def run_scenario(redis) -> Callable[..., None]:
    """A function that runs a scenario with a new crawl."""

    def run_(scenario: Callable[[Crawl], Awaitable[None]], **options: Any) -> None:
        asyncio.run(scenario(Crawl(redis.url, **options)))  # type: ignore[arg-type]

    return run_


FAULTS: dict[str, tuple[Callable[[Crawl], object], str]] = {
    "a host in no set": (lambda crawl: crawl.raw.delete(crawl.key(Key.READY)), "was not scheduled"),
    "transfers that are over": (
        lambda crawl: crawl.change(HOST, "in_flight", 1000),
        "0 transfers are in flight, but the count is 1000",
    ),
    "an unleased prerequisite": (lambda crawl: crawl.change(HOST, "preparing", 1), "but no worker has leased either"),
    "an unknown start": (
        lambda crawl: crawl.change(HOST, "unconfirmed", "77"),
        "is waiting for a transfer that has ended",
    ),
    "records of a host": (lambda crawl: crawl.change(HOST, "queued", 9), "3 URLs are queued, but the count is 9"),
    "queued": (
        lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "queued|", 5),
        "4 URLs are queued, but the count is 9",
    ),
    "leased": (
        lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "leased|", 5),
        "0 URLs are leased, but the count is 5",
    ),
    "dead": (lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "dead|", 5), "0 URLs are dead, but the count is 5"),
    "done": (lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "done|", 5), "0 URLs are done, but the count is 5"),
    "outboxes": (
        lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "outgoing|", 5),
        "are in outboxes, but the count is 5",
    ),
    "delayed": (lambda crawl: crawl.raw.delete(crawl.key(Key.DELAYED)), "0 URLs are delayed, but the count is 1"),
    "lost": (
        lambda crawl: crawl.raw.hincrby(crawl.key(Key.COUNTS), "delayed|", -1),
        "1 URLs are delayed, but the count is 0",
    ),
    "seen": (
        lambda crawl: crawl.raw.hincrby(crawl.key(Key.SEEN_COUNTS), "count|", 2),
        "5 fingerprints are known, but the count is 7",
    ),
}


NOT_REPAIRED = ("delayed", "lost", "seen")


@pytest.mark.parametrize("fault", FAULTS)
def test_inconsistent_state_is_found(run_scenario: Callable[..., None], fault: str) -> None:
    damage, message = FAULTS[fault]

    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        await frontier.push([url(number) for number in range(3)] + [url(1, OTHER), url(4, not_before=50.0)])
        operations = RedisOperations(frontier.session)
        assert await operations.verify(lambda _: None) == []
        damage(crawl)
        found = await operations.verify(lambda _: None)
        assert message in " ".join(found)
        assert all(line.endswith(": repaired") for line in found) == (fault not in NOT_REPAIRED)
        if fault not in NOT_REPAIRED:
            assert await operations.verify(lambda _: None) == [], "everything is repaired"
            assert len(await frontier.lease(9, 10.0)) == 4

    run_scenario(scenario)


def test_a_wrong_count_is_found_in_several_steps(run_scenario: Callable[..., None], monkeypatch) -> None:
    monkeypatch.setattr(verify, "HOSTS_AT_ONCE", 2)

    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        await frontier.push([url(number, f"http://h{number}.example:80") for number in range(7)])
        operations = RedisOperations(frontier.session)
        assert await operations.verify(lambda _: None) == []
        crawl.raw.hincrby(crawl.key(Key.COUNTS), "queued|", 1)
        assert await operations.verify(lambda _: None) == ["segment '': 7 URLs are queued, but the count is 8"]

    run_scenario(scenario)


def test_the_rest_of_an_interrupted_drop_blocks_nothing(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        await frontier.push([url(number, segment="monday") for number in range(5)] + [url(9)])
        await frontier.push([url(8, segment="monday", not_before=5.0)])
        assert await frontier.session.operate(frontier.session.partitions[0], "drop", "monday") == 6
        (lease,) = await frontier.lease(9, 10.0)
        assert lease.record.segment == ""
        assert await frontier.ack(lease, "200", (), 10.0)
        await frontier.commit({})
        assert await frontier.is_finished()
        assert await frontier.lease(9, 20.0) == []
        assert crawl.raw.keys(crawl.key(Key.QUEUE + "*")) == []
        assert crawl.raw.zcard(crawl.key(Key.DELAYED)) == 0
        assert await RedisOperations(frontier.session).verify(lambda _: None) == []

    run_scenario(scenario)


def test_only_the_name_of_a_dropped_segment_remains(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        await frontier.push([url(number, segment="monday") for number in range(2000)])
        await frontier.push([url(3000, segment="monday", not_before=5.0)])
        (lease,) = await frontier.lease(1, 1.0)
        await frontier.nack(lease, "500", None, 1.0)
        assert await RedisOperations(frontier.session).drop("monday") == 2001
        remaining = {key.decode().removeprefix(crawl.key("")) for key in crawl.raw.keys(crawl.key("*"))}
        assert remaining <= {
            Key.META, Key.SEGMENTS, Key.WORKERS, Key.WORKER_LIMITS, Key.SERIALS, Key.HOSTS, Key.READY, Key.HOST + HOST
        }  # fmt: skip
        assert (await RedisOperations(frontier.session).host(HOST)).queued == 0  # type: ignore[union-attr]

    run_scenario(scenario)


def test_a_worker_that_does_not_know_of_a_drop_continues(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        first, second = await crawl.join("one"), await crawl.join("other")
        await first.push([url(number, segment="monday") for number in range(4)])
        done, dead, released, acked = await first.lease(4, 1.0)
        await first.ack(acked, "200", (), 1.0)
        await first.session.send()
        assert await RedisOperations(second.session).drop("monday") == 4
        assert await first.ack(done, "200", [url(50)], 1.0)
        assert await first.nack(dead, "500", None, 1.0)
        assert await first.release(released, 1.0)
        await first.commit({})
        stats = await RedisOperations(second.session).stats()
        assert (stats.unfinished, stats.done, stats.dead) == (0, 0, 0), "links of a dropped page are not followed"
        assert await first.is_finished()
        assert (await RedisOperations(second.session).host(HOST)).in_flight == 0  # type: ignore[union-attr]

    run_scenario(scenario)


def test_records_of_operations_count_as_arrivals(run_scenario: Callable[..., None]) -> None:
    """Otherwise termination detection could miss them."""

    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        operations = RedisOperations(frontier.session)
        partition = frontier.session.partitions[0]
        await operations.push([url(1)])
        await operations.stats()
        first = partition.arrived
        assert first > 0
        (lease,) = await frontier.lease(1, 1.0)
        await frontier.nack(lease, "500", None, 1.0)
        assert (await operations.requeue(Selection(states=("dead",)), None, 2.0, "", 10)).requeued == 1
        await operations.stats()
        assert partition.arrived == first + 1

    run_scenario(scenario)


def test_only_the_state_of_a_done_url_is_stored(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        operations = RedisOperations(frontier.session)
        await frontier.push([url(1), url(2)])
        first, _ = await frontier.lease(2, 1.0)
        await frontier.ack(first, "200", (), 1.0)
        (row,) = await operations.find(first.record.fingerprint, HOST)
        assert (row.state, row.reason, row.record.url) == ("done", "200", first.record.url), (
            "until the commit everything is stored"
        )
        await frontier.commit({})
        for host in (HOST, ""):
            (row,) = await operations.find(first.record.fingerprint, host)
            assert (row.state, row.reason, row.record.url) == ("done", "", "")
        assert await operations.find(first.record.fingerprint, HOST, ("dead",)) == []
        assert list(brief(await all_rows(operations)).values()) == ["leased"]
        for states in (("done",), ("done", "dead"), ("archived",)):
            with pytest.raises(UsageError, match="keep_done=true"):
                await operations.requeue(Selection(states=states), None, 1.0, "", 10)

    run_scenario(scenario)


def test_a_url_is_found_among_many(run_scenario: Callable[..., None]) -> None:
    """One step examines 5000 records."""

    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        operations = RedisOperations(frontier.session)
        records = [UrlRecord(1, number << 40, f"{HOST}/{number}", HOST) for number in range(12_000)]
        assert await operations.push(records) == 12_000
        await operations.push([url(number, OTHER, not_before=1e9) for number in range(1500)])
        for number in (0, 4_999, 5_000, 11_999):
            for host in (HOST, ""):
                assert [row.state for row in await operations.find(number << 40, host)] == ["queued"]
        (row,) = await operations.find(url(1499, OTHER).fingerprint)
        assert (row.state, row.record.host) == ("delayed", OTHER)
        assert len(await all_rows(operations, limit=1000)) == 13_500

    run_scenario(scenario)


def test_operations_do_not_join_the_crawl(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        frontier = await crawl.join("one")
        await frontier.push([url(1)])
        before = (
            crawl.raw.hgetall(crawl.key(Key.META)),
            crawl.raw.zrange(crawl.key(Key.WORKERS), 0, -1, withscores=True),
        )
        frontier.session.now = 100.0
        operations = RedisOperations(frontier.session)
        await operations.stats()
        await operations.segments()
        await operations.hosts("", 10)
        assert len((await operations.rows(Selection(), "", 10)).rows) == 1
        assert await operations.next_due(100.0) == 0.0
        after = crawl.raw.hgetall(crawl.key(Key.META)), crawl.raw.zrange(crawl.key(Key.WORKERS), 0, -1, withscores=True)
        assert before == after

    run_scenario(scenario)


def test_describing_a_new_crawl_keeps_what_a_worker_wrote_in_the_meantime(run_scenario: Callable[..., None]) -> None:
    async def scenario(crawl: Crawl) -> None:
        shared = (await crawl.join("joined in between")).crawl
        await shared.describe(Description(name="shop", seeds=["http://a.example/"]))
        await shared.describe(Description(seeds=["http://b.example/"]), keep_existing=True)
        assert (await shared.description()).name == "shop"
        assert crawl.raw.zrange(crawl.key(Key.SEEDS), 0, -1) == [b"http://a.example/", b"http://b.example/"]
        await shared.describe(Description(name="shop", key=["k"]))
        seeds = ["http://a.example/", "http://b.example/"]
        assert await shared.description() == Description(name="shop", key=["k"], seeds=seeds)

    run_scenario(scenario)
