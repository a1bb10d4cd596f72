"""What the stream adds to the contract of sinks: keys, several writers, a server that is away, full or forgetful
(C3, C8).

Real servers; those that are ended or paused are the test's own.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

import pytest
import redis

from lycosa.config import Settings
from lycosa.core.errors import BadItem, LycosaError, StorageError, StorageFull, UsageError
from lycosa.infra.redis import server as limits
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks import redis_stream
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from tests.servers.redis import RedisServer, redis_cluster, redis_sentinels, redis_server

pytestmark = pytest.mark.redis


@dataclass
class Stream:
    """A stream on a server, and what was said about it."""

    server: RedisServer
    name: str = field(default_factory=token_hex)
    options: str = ""
    said: list[str] = field(default_factory=list)
    heard: threading.Event = field(default_factory=threading.Event)

    def say(self, text: str) -> None:
        self.said.append(text)
        self.heard.set()

    async def is_told(self) -> None:
        """Wait until something was said."""
        assert await asyncio.to_thread(self.heard.wait, 20)

    @property
    def address(self) -> str:
        return f"{self.server.url}?stream={self.name}{self.options}"

    def sink(self, **options: Any) -> RedisStreamSink:
        return RedisStreamSink(self.address, "crawl", self.say, **options)

    def entries(self) -> list[dict[str, str]]:
        with redis.Redis.from_url(self.server.url, decode_responses=True) as client:
            return [fields for _, fields in client.xrange(self.name)]

    def items(self) -> list[int]:
        return [json.loads(entry["item"])["n"] for entry in self.entries()]

    def cli(self, *words: str) -> str:
        return self.server.cli("-n", "0", *words)


@pytest.fixture
def stream(redis) -> Stream:
    return Stream(redis)


@pytest.fixture
def own() -> Iterator[Stream]:
    """On a server that the test may end; it keeps what it answered for."""
    with redis_server(append="always") as server:
        yield Stream(server)


def page(number: int, segment: str = "", *, item: int = 0, repeatable: bool = False) -> ItemKey:
    return ItemKey(f"http://a/{number}", number, item, segment, repeatable)


def put(sink: RedisStreamSink, *numbers: int) -> None:
    for number in numbers:
        sink.write(sink.prepare({"n": number}), page(number))


async def run(sink: RedisStreamSink, position: int | None, *numbers: int, keep: bool = False) -> int:
    await sink.open(position, keep=keep)
    put(sink, *numbers)
    at = await sink.flush()
    await sink.close()
    return at


def refused(sink: RedisStreamSink, position: int | None = None) -> LycosaError:
    with pytest.raises(LycosaError) as caught:
        asyncio.run(run(sink, position))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return caught.value


# ------------------------------------------------------------------------------------------------ what is in it


def test_an_entry_says_whose_item_it_is(stream):
    async def write() -> None:
        sink = stream.sink()
        await sink.open(None)
        for number in range(2):
            sink.write(sink.prepare({"n": number}), page(0xAB, "day", item=number))
        sink.write(sink.prepare({"n": 2}), page(1 << 63))
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    one, two, three = stream.entries()
    url = "http://a/171"
    key = "crawl/day/00000000000000ab/0"
    assert one == {"key": key, "crawl": "crawl", "segment": "day", "url": url, "item": '{"n":0}'}
    assert (two["key"], three["key"]) == ("crawl/day/00000000000000ab/1", "crawl/8000000000000000/0")


def test_a_page_that_is_fetched_again_has_the_same_keys_unless_that_is_meant(stream):
    async def write() -> None:
        sink = stream.sink()
        await sink.open(None)
        for number in range(3):
            sink.write(sink.prepare({"n": number}), page(1, repeatable=number > 0))
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    asyncio.run(write())
    keys = Counter(entry["key"] for entry in stream.entries())
    assert keys.pop("crawl/0000000000000001/0") == 2
    assert list(keys.values()) == [1, 1, 1, 1], "what is asked for twice would be lost to who takes it for a repetition"


def test_an_item_that_no_server_takes_is_refused(stream, monkeypatch):
    monkeypatch.setattr(redis_stream, "ITEM_MAX", 10)
    with pytest.raises(BadItem, match="an item of 14 bytes is too large for a stream"):
        stream.sink().prepare({"text": "xxx"})


def test_the_name_has_no_secrets_and_no_options(stream):
    plain, other = (Stream(stream.server, stream.name, options) for options in ("", "&maxlen=5"))
    assert plain.sink().name == other.sink().name == f"stream:{plain.address}"
    secret = RedisStreamSink("rediss://me:secret@host:1/2?stream=a b", "crawl", print)
    assert secret.name == "stream:rediss://host:1/2?stream=a b"


# ---------------------------------------------------------------------------------------------- several writers


def test_each_writer_cuts_off_its_own(stream):
    async def both() -> None:
        first, second = stream.sink(), stream.sink()
        await first.open(None)
        await second.open(None)
        put(first, 1)
        committed = await first.flush()
        for number in range(10, 20):
            put(first, number)
            await first.flush()
            put(second, number + 100)
            await second.flush()
        await first.close()
        assert await run(stream.sink(), committed, 2) > committed
        put(second, 3)
        await second.flush()
        await second.close()

    asyncio.run(both())
    assert stream.items() == [1, *range(110, 120), 2, 3]


def test_what_others_wrote_after_a_clean_end_stays(stream):
    at = asyncio.run(run(stream.sink(), None, 1))
    asyncio.run(run(stream.sink(), None, 2))
    at = asyncio.run(run(stream.sink(), at, 3, keep=True))
    assert asyncio.run(run(stream.sink(), at)) == at
    assert stream.items() == [1, 2, 3]


def test_position_zero_empties_it_and_keeps_the_groups_of_consumers(stream):
    asyncio.run(run(stream.sink(), None, 1))
    stream.cli("XGROUP", "CREATE", stream.name, "group", "0")
    asyncio.run(run(stream.sink(), 0, 2))
    assert stream.items() == [2]
    assert "group" in stream.cli("XINFO", "GROUPS", stream.name)


def test_one_writer_at_a_time(stream):
    """A copied state, or a batch of a killed process that was still on its way, is refused."""

    async def both() -> None:
        first = stream.sink()
        await first.open(None)
        put(first, 1)
        committed = await first.flush()
        second = stream.sink()
        await second.open(committed)
        put(first, 2)
        with pytest.raises(StorageError, match="another process has opened it since with a copy of this state"):
            await first.flush()
        put(second, 3)
        await second.flush()
        await first.close()
        await second.close()

    asyncio.run(both())
    assert stream.items() == [1, 3]


def test_who_wrote_nothing_leaves_nothing(stream):
    at = asyncio.run(run(stream.sink(), None))
    assert stream.cli("KEYS", f"*{stream.name}*") == ""
    asyncio.run(run(stream.sink(), at, 1))
    assert stream.items() == [1]


def test_what_is_remembered_to_be_cut_off_is_bounded(stream):
    async def write() -> list[int]:
        sink = stream.sink()
        positions = [await sink.open(None)]
        for number in range(5 * redis_stream.FLUSHES_KEPT):
            put(sink, number)
            positions.append(await sink.flush())
        ours = sink._keys()[2]
        assert int(stream.cli("LLEN", ours)) <= redis_stream.FLUSHES_KEPT + 1
        await sink.close()
        return positions

    positions = asyncio.run(write())
    said = str(refused(stream.sink(), positions[0]))
    kept = redis_stream.FLUSHES_KEPT
    assert f"has {5 * kept} items that the state of this crawl does not know, an old copy" in said
    assert len(stream.items()) == 5 * kept, "refused, and cut all the same"
    asyncio.run(run(stream.sink(), positions[-kept]))
    assert stream.items() == list(range(5 * kept - kept + 1))


def test_a_frontier_that_has_lost_some_seconds_is_followed(stream):
    """Its replica may have been as far behind as links between partitions are kept for: five seconds."""
    commits = round(5.0 / Settings().commit_every)

    async def write() -> int:
        sink = stream.sink()
        first = await sink.open(None)
        for number in range(commits):
            put(sink, number)
            await sink.flush()
        await sink.close()
        return first

    asyncio.run(run(stream.sink(), asyncio.run(write()), 1))
    assert stream.items() == [1]


@pytest.mark.parametrize("round_", range(3))
def test_random_histories(stream, monkeypatch, round_):
    """Three workers that share pages; each may die at any flush. In the end each page is there once."""
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    monkeypatch.setattr(redis_stream, "BATCH_ITEMS", 7)
    done: set[int] = set()

    async def work(worker: int, committed: int | None) -> int | None:
        sink = stream.sink()
        committed = await sink.open(committed)
        for _ in range(rng.randrange(1, 5)):
            pages = rng.sample(range(worker, 300, 3), 15)
            fresh = [number for number in pages if number not in done]
            put(sink, *fresh)
            if rng.random() < 0.1:
                break  # killed before, or in the middle of a flush
            at = await sink.flush()
            if rng.random() < 0.2:
                break  # killed before the commit
            committed, _ = at, done.update(fresh)
        await asyncio.to_thread(sink._server.close)
        return committed

    async def history() -> None:
        positions: list[int | None] = [None] * 3
        for _ in range(40):
            worker = rng.randrange(3)
            positions[worker] = await work(worker, positions[worker])
        for position in positions:
            await run(stream.sink(), position)

    asyncio.run(history())
    assert Counter(stream.items()) == Counter(done)
    assert len({entry["key"] for entry in stream.entries()}) == len(done) > 50


# --------------------------------------------------------------------------------------------- bounds and order


def test_memory_is_bounded_and_batches_are_too(stream, monkeypatch):
    monkeypatch.setattr(redis_stream, "BUFFER_MAX", 10_000)
    monkeypatch.setattr(redis_stream, "BATCH_BYTES", 1_000)

    async def write() -> None:
        sink = stream.sink()
        committed = await sink.open(None)
        for number in range(100):
            sink.write(sink.prepare({"n": number, "text": "x" * 200}), page(number))
        assert len(stream.items()) > 50
        await sink.close()
        await run(stream.sink(), committed)

    asyncio.run(write())
    assert stream.items() == []


def test_one_round_trip_for_many_items(own):
    async def write() -> None:
        sink = own.sink()
        await sink.open(None)
        put(sink, 0)
        await sink.flush()  # which may have to bring the script
        before = calls()
        put(sink, *range(1, 201))
        await sink.flush()
        assert calls() - before == 1
        await sink.close()

    def calls() -> int:
        return int(re.findall(r"cmdstat_evalsha:calls=(\d+)", own.cli("INFO", "commandstats"))[0])

    asyncio.run(write())
    assert own.items() == list(range(201))


def test_maxlen_is_kept_nearly(stream):
    stream.options = "&maxlen=1000"
    asyncio.run(run(stream.sink(), None, *range(5000)))
    left = stream.items()
    assert 1000 <= len(left) <= 1300
    assert left == list(range(5000 - len(left), 5000)), "the oldest go first"


def test_what_was_trimmed_needs_not_be_cut_off(stream):
    stream.options = "&maxlen=1"
    at = asyncio.run(run(stream.sink(), None, 1))
    asyncio.run(run(stream.sink(), at, *range(500)))
    stream.cli("XTRIM", stream.name, "MAXLEN", "0")
    asyncio.run(run(stream.sink(), at, 2))
    assert stream.items() == [2]


# ------------------------------------------------------------------------------------ servers and their ills


async def write_while(own: Stream, away: Callable[[], None], back: Callable[[], None]) -> None:
    """Flush an item, then two more while the server is away, which is back when that was told."""
    sink = own.sink()
    await sink.open(None)
    put(sink, 1)
    await sink.flush()
    away()
    put(sink, 2, 3)
    flushing = asyncio.create_task(sink.flush())
    await own.is_told()
    back()
    await flushing
    await sink.close()


def test_a_server_that_is_restarted_is_waited_for(own):
    asyncio.run(write_while(own, own.server.kill, own.server.start))
    assert own.items() == [1, 2, 3]
    waits, goes_on = own.said
    assert "trying again for at most 60 s" in waits
    assert goes_on == f"{own.address}: the server answers again"


def test_a_batch_whose_answer_was_lost_is_taken_once(own, monkeypatch):
    monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 0.2)
    asyncio.run(write_while(own, own.server.pause, own.server.resume))
    assert own.items() == [1, 2, 3]


def test_a_flush_that_is_given_up_is_taken_up_by_the_next(own, monkeypatch):
    monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 0.2)

    async def write() -> None:
        sink = own.sink()
        await sink.open(None)
        own.server.pause()
        put(sink, 1, 2)
        flushing = asyncio.create_task(sink.flush())
        await own.is_told()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        own.server.resume()
        put(sink, 3)
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert own.items() == [1, 2, 3]


def test_who_gives_up_on_a_server_needs_not_wait_for_it(own):
    async def write() -> None:
        sink = own.sink()
        await sink.open(None)
        own.server.kill()
        put(sink, 1)
        flushing = asyncio.create_task(sink.flush())
        await own.is_told()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await asyncio.wait_for(sink.close(), limits.BLOCKING_TIMEOUT_S)

    asyncio.run(write())


def test_what_the_server_lost_is_sent_again(own):
    """As after a failover, or a restart of one that writes once a second."""

    async def write() -> int:
        sink = own.sink()
        await sink.open(None)
        put(sink, *range(300))
        await sink.flush()
        own.cli("CONFIG", "SET", "appendonly", "no")  # the rest is never on the disk
        put(sink, *range(300, 1000))
        await sink.flush()
        own.server.kill()
        own.server.start()
        put(sink, 1000)
        at = await sink.flush()
        await sink.close()
        return at

    at = asyncio.run(write())
    assert own.items() == list(range(1001))
    assert "the server has lost its last 700 items; they are sent again" in own.said[-1]
    assert asyncio.run(run(own.sink(), at)) == at


@pytest.mark.parametrize("kept", [0, 50_000])
def test_what_the_server_lost_and_is_not_kept_ends_the_crawl(own, monkeypatch, kept):
    monkeypatch.setattr(redis_stream, "SENT_MAX", kept)

    async def write() -> int:
        sink = own.sink()
        await sink.open(None)
        put(sink, *range(2000))
        at = await sink.flush()
        own.server.kill()
        own.server.start(keep=False)
        put(sink, 0)
        with pytest.raises(StorageError, match=r"the server has lost 2,000 of 2,000 items that this crawl wrote: give"):
            await sink.flush()
        await sink.close()
        return at

    at = asyncio.run(write())
    assert "the server has lost 2,000 of 2,000 items" in str(refused(own.sink(), at))
    own.name = "another"
    asyncio.run(run(own.sink(), None, 1))
    assert own.items() == [1]


def test_a_server_that_is_full_is_waited_for(monkeypatch):
    with redis_server(maxmemory="3mb") as server:
        own = Stream(server)

        async def write() -> tuple[int, int]:
            sink = own.sink()
            committed = await sink.open(None)
            own.cli("SET", "filler", "x" * 60_000)
            own.cli("CONFIG", "SET", "maxmemory", "1mb")
            put(sink, 1, 2)
            flushing = asyncio.create_task(sink.flush())
            await own.is_told()
            own.cli("CONFIG", "SET", "maxmemory", "0")
            at = await flushing
            own.cli("CONFIG", "SET", "maxmemory", "1mb")
            monkeypatch.setattr(limits, "FULL_MAX_S", 0.3)
            put(sink, 3)
            with pytest.raises(StorageFull, match="has reached its maxmemory"):
                await sink.flush()
            await sink.close()
            return committed, at

        committed, at = asyncio.run(write())
        assert "trying again for at most 600 s" in own.said[0]
        assert own.items() == [1, 2]
        asyncio.run(run(own.sink(), at))
        asyncio.run(run(own.sink(), committed))
        assert own.items() == [], "a full server is no reason not to cut off"


def heard_by_replica(master: RedisServer) -> None:
    """Wait until a replica has all that was written so far: WAIT means what the same connection wrote."""
    with redis.Redis.from_url(master.url) as client, client.pipeline(transaction=False) as asked:
        asked.set("{s}waits", 1)
        asked.execute_command("WAIT", 1, 10_000)
        assert asked.execute() == [True, 1]


@contextmanager
def sentinels() -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """Give the address of a stream, its master and the replica."""
    with redis_sentinels(count=1) as watched:
        yield f"{watched.url}?stream=s", *watched.nodes


@contextmanager
def masters() -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """The same on a cluster."""
    with redis_cluster() as cluster:
        master = cluster.owner("s")
        yield f"{cluster.url}?stream=s", master, cluster.replica_of(master)


@pytest.mark.parametrize("failing", [sentinels, pytest.param(masters, marks=pytest.mark.prove)])
def test_what_a_replica_that_takes_over_has_not_heard_of_is_sent_again(failing):
    async def write(address: str, master: RedisServer, replica: RedisServer) -> list[str]:
        said: list[str] = []
        sink = RedisStreamSink(address, "crawl", said.append)
        await sink.open(None)
        put(sink, *range(1000))
        await sink.flush()
        await asyncio.to_thread(heard_by_replica, master)
        with master.losing(replica):
            put(sink, *range(1000, 1600))
            await sink.flush()
        put(sink, *range(1600, 1700))
        at = await sink.flush()
        await sink.close()
        assert await run(RedisStreamSink(address, "crawl", said.append), at, 1700) == at + 1
        return said

    with failing() as (address, master, replica):
        said = asyncio.run(write(address, master, replica))
        assert Stream(replica, "s").items() == list(range(1701))
        assert "trying again for at most 60 s" in said[0]
        assert f"{address}: the server has lost its last 600 items; they are sent again" in said


def test_sync_wants_a_server_that_writes_at_once(own, stream):
    asyncio.run(run(own.sink(sync=True), None, 1))
    assert own.items() == [1]
    assert "--sync needs a server with appendonly yes" in str(refused(stream.sink(sync=True)))


def test_what_is_no_stream_is_left_alone(stream):
    stream.cli("SET", stream.name, "mine")
    assert "a string has this name, no stream; give another stream=" in str(refused(stream.sink()))
    assert stream.cli("GET", stream.name) == "mine"


@pytest.mark.parametrize(
    ("server", "address", "says"),
    [
        (
            {},
            "redis://127.0.0.1:1/0",
            "redis://127.0.0.1:1/0?stream=s: the connection was refused: is Redis running there?",
        ),
        ({}, "redis://127.0.0.1:{port}/600", "the server has no database of this number"),
        ({}, "rediss://127.0.0.1:{port}/0", "without TLS write redis://"),
        ({"password": "secret"}, "redis://127.0.0.1:{port}/0", "the server refuses this user and password, or none"),
        ({"password": "secret"}, "redis://:secrets@127.0.0.1:{port}/0", "the server refuses this user and password"),
        ({"tls": True}, "redis://127.0.0.1:{port}/0", "does it want TLS, rediss://?"),
        ({"tls": True}, "rediss://127.0.0.1:{port}/0", "name its authority with ca=FILE"),
        (
            {"maxmemory": "100mb", "policy": "allkeys-lru"},
            "redis://127.0.0.1:{port}/0",
            "allkeys-lru the server would drop parts of a stream",
        ),
    ],
)
def test_what_cannot_be_used_is_told_in_one_line(server, address, says, monkeypatch):
    monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 1.0)  # what is no TLS does not answer
    monkeypatch.setattr(limits, "JOIN_MAX_S", 0.2)
    with redis_server(**server) as running:
        sink = RedisStreamSink(address.format(port=running.port) + "?stream=s", "crawl", print)
        assert says in str(refused(sink))


def test_an_authority_that_is_no_file(stream):
    address = f"{stream.address}&ca=/nowhere.pem".replace("redis:", "rediss:")
    assert "ca=/nowhere.pem is no file" in str(refused(RedisStreamSink(address, "crawl", print)))


def test_password_and_tls():
    with redis_server(tls=True, password="secret") as server:
        secure = Stream(server)
        secure.options = f"&ca={server.ca}"
        asyncio.run(run(secure.sink(), None, 1))
        assert secure.cli("XLEN", secure.name) == "1"
        assert "secret" not in secure.sink().name


def test_without_the_package(stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    found = refused(stream.sink())
    assert isinstance(found, UsageError)
    assert str(found) == "a Redis needs the packages redis and hiredis: pip install 'lycosa[redis]'"


@pytest.mark.parametrize("form", ["redis://127.0.0.1:{}", "redis+cluster://127.0.0.1:{}"])
def test_a_cluster(cluster, form):
    name = token_hex(4)
    address = f"{form.format(cluster.nodes[0].port)}?stream={name}"
    committed = asyncio.run(run(RedisStreamSink(address, "crawl", print), None, *range(1000)))
    asyncio.run(run(RedisStreamSink(address, "crawl", print), committed, *range(1000)))
    asyncio.run(run(RedisStreamSink(address, "crawl", print), committed, 1))
    assert cluster.owner(name).cli("XLEN", name) == "1001"
