"""What the stream adds to the contract of sinks: keys, several writers, and servers that are unreachable, full or
lose data (C3, C8).

The servers are real; those that are killed or paused belong to the test.
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
    """A stream on a server, and the messages reported about it."""

    server: RedisServer
    name: str = field(default_factory=token_hex)
    options: str = ""
    messages: list[str] = field(default_factory=list)
    reported: threading.Event = field(default_factory=threading.Event)

    def report(self, text: str) -> None:
        self.messages.append(text)
        self.reported.set()

    async def wait_for_report(self) -> None:
        """Wait until something is reported."""
        assert await asyncio.to_thread(self.reported.wait, 60)

    @property
    def address(self) -> str:
        return f"{self.server.url}?stream={self.name}{self.options}"

    def sink(self, **options: Any) -> RedisStreamSink:
        return RedisStreamSink(self.address, "crawl", self.report, **options)

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
def own_stream() -> Iterator[Stream]:
    """A stream on the test's own server, with a durable append-only file."""
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
    position_after = await sink.flush()
    await sink.close()
    return position_after


def refused(sink: RedisStreamSink, position: int | None = None) -> LycosaError:
    with pytest.raises(LycosaError) as caught:
        asyncio.run(run(sink, position))
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    return caught.value


# -------------------------------------------------------------------------------------------------------------- entries


def test_an_entry_has_the_key_segment_and_url_of_its_item(stream):
    async def write() -> None:
        sink = stream.sink()
        await sink.open(None)
        for number in range(2):
            sink.write(sink.prepare({"n": number}), page(0xAB, "day", item=number))
        sink.write(sink.prepare({"n": 2}), page(1 << 63))
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    first, second, third = stream.entries()
    url = "http://a/171"
    key = "crawl/day/00000000000000ab/0"
    assert first == {"key": key, "crawl": "crawl", "segment": "day", "url": url, "item": '{"n":0}'}
    assert (second["key"], third["key"]) == ("crawl/day/00000000000000ab/1", "crawl/8000000000000000/0")


def test_a_repeated_page_has_the_same_key_unless_it_is_repeated_on_purpose(stream):
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
    assert list(keys.values()) == [1, 1, 1, 1], "a consumer that skips known keys would lose items"


def test_an_item_that_is_too_large_is_refused(stream, monkeypatch):
    monkeypatch.setattr(redis_stream, "ITEM_MAX", 10)
    with pytest.raises(BadItem, match="an item of 14 bytes is too large for a stream"):
        stream.sink().prepare({"text": "xxx"})


def test_the_name_contains_neither_secrets_nor_options(stream):
    plain, other = (Stream(stream.server, stream.name, options) for options in ("", "&maxlen=5"))
    assert plain.sink().name == other.sink().name == f"stream:{plain.address}"
    secret = RedisStreamSink("rediss://me:secret@host:1/2?stream=a b", "crawl", print)
    assert secret.name == "stream:rediss://host:1/2?stream=a b"


# ------------------------------------------------------------------------------------------------------ several writers


def test_a_writer_cuts_off_only_its_own_entries(stream):
    async def write_both() -> None:
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

    asyncio.run(write_both())
    assert stream.items() == [1, *range(110, 120), 2, 3]


def test_entries_of_other_writers_stay_when_a_run_continues(stream):
    position = asyncio.run(run(stream.sink(), None, 1))
    asyncio.run(run(stream.sink(), None, 2))
    position = asyncio.run(run(stream.sink(), position, 3, keep=True))
    assert asyncio.run(run(stream.sink(), position)) == position
    assert stream.items() == [1, 2, 3]


def test_position_zero_deletes_the_entries_and_keeps_the_consumer_groups(stream):
    asyncio.run(run(stream.sink(), None, 1))
    stream.cli("XGROUP", "CREATE", stream.name, "group", "0")
    asyncio.run(run(stream.sink(), 0, 2))
    assert stream.items() == [2]
    assert "group" in stream.cli("XINFO", "GROUPS", stream.name)


def test_a_second_writer_with_the_same_state_makes_the_first_one_fail(stream):
    """For example, one of them runs with a copied state, or the first was killed and its last batch arrives late."""

    async def write_both() -> None:
        first = stream.sink()
        await first.open(None)
        put(first, 1)
        committed = await first.flush()
        second = stream.sink()
        await second.open(committed)
        put(first, 2)
        with pytest.raises(StorageError, match="another process has since opened it with a copy of this state"):
            await first.flush()
        put(second, 3)
        await second.flush()
        await first.close()
        await second.close()

    asyncio.run(write_both())
    assert stream.items() == [1, 3]


def test_a_run_without_items_creates_no_keys(stream):
    position = asyncio.run(run(stream.sink(), None))
    assert stream.cli("KEYS", f"*{stream.name}*") == ""
    asyncio.run(run(stream.sink(), position, 1))
    assert stream.items() == [1]


def test_the_stored_positions_are_bounded(stream):
    async def write() -> list[int]:
        sink = stream.sink()
        positions = [await sink.open(None)]
        for number in range(5 * redis_stream.FLUSHES_KEPT):
            put(sink, number)
            positions.append(await sink.flush())
        key = sink._keys()[2]
        assert int(stream.cli("LLEN", key)) <= redis_stream.FLUSHES_KEPT + 1
        await sink.close()
        return positions

    positions = asyncio.run(write())
    message = str(refused(stream.sink(), positions[0]))
    flushes_kept = redis_stream.FLUSHES_KEPT
    assert f"this crawl's state is an old copy that lacks {5 * flushes_kept} items of this stream" in message
    assert len(stream.items()) == 5 * flushes_kept, "refused, but cut nevertheless"
    asyncio.run(run(stream.sink(), positions[-flushes_kept]))
    assert stream.items() == list(range(5 * flushes_kept - flushes_kept + 1))


def test_a_state_that_is_a_few_seconds_old_is_accepted(stream):
    """After a failover the frontier may lack its last five seconds: for that long, outboxes keep delivered links to
    deliver them again.
    """
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
def test_every_item_is_stored_once_after_random_kills(stream, monkeypatch, round_):
    """Three workers share the pages, and each may be killed at any flush."""
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
                break  # killed before or during a flush
            position = await sink.flush()
            if rng.random() < 0.2:
                break  # killed before the commit
            committed, _ = position, done.update(fresh)
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


# ----------------------------------------------------------------------------------------------------- bounds and order


def test_memory_and_batches_are_bounded(stream, monkeypatch):
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


def test_many_items_take_one_round_trip(own_stream):
    async def write() -> None:
        sink = own_stream.sink()
        await sink.open(None)
        put(sink, 0)
        await sink.flush()  # this flush may have to load the script
        calls_before = calls()
        put(sink, *range(1, 201))
        await sink.flush()
        assert calls() - calls_before == 1
        await sink.close()

    def calls() -> int:
        return int(re.findall(r"cmdstat_evalsha:calls=(\d+)", own_stream.cli("INFO", "commandstats"))[0])

    asyncio.run(write())
    assert own_stream.items() == list(range(201))


def test_maxlen_is_approximate(stream):
    stream.options = "&maxlen=1000"
    asyncio.run(run(stream.sink(), None, *range(5000)))
    remaining = stream.items()
    assert 1000 <= len(remaining) <= 1300
    assert remaining == list(range(5000 - len(remaining), 5000)), "the oldest go first"


def test_a_writer_can_cut_off_entries_that_redis_has_already_trimmed(stream):
    stream.options = "&maxlen=1"
    position = asyncio.run(run(stream.sink(), None, 1))
    asyncio.run(run(stream.sink(), position, *range(500)))
    stream.cli("XTRIM", stream.name, "MAXLEN", "0")
    asyncio.run(run(stream.sink(), position, 2))
    assert stream.items() == [2]


# ------------------------------------------------------------------------------------------------------ failing servers


async def write_during_outage(own_stream: Stream, interrupt: Callable[[], None], restore: Callable[[], None]) -> None:
    """Flush an item, interrupt the server, and flush two more; restore the server once the outage was reported."""
    sink = own_stream.sink()
    await sink.open(None)
    put(sink, 1)
    await sink.flush()
    interrupt()
    put(sink, 2, 3)
    flushing = asyncio.create_task(sink.flush())
    await own_stream.wait_for_report()
    restore()
    await flushing
    await sink.close()


def test_writing_waits_for_a_restarted_server(own_stream):
    asyncio.run(write_during_outage(own_stream, own_stream.server.kill, own_stream.server.start))
    assert own_stream.items() == [1, 2, 3]
    outage_message, recovery_message = own_stream.messages
    assert "trying again for at most 60 s" in outage_message
    assert recovery_message == f"{own_stream.address}: the server answers again"


def test_a_batch_whose_reply_was_lost_is_written_once(own_stream, monkeypatch):
    monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 0.2)
    asyncio.run(write_during_outage(own_stream, own_stream.server.pause, own_stream.server.resume))
    assert own_stream.items() == [1, 2, 3]


def test_a_cancelled_flush_is_completed_by_the_next_one(own_stream, monkeypatch):
    monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 0.2)

    async def write() -> None:
        sink = own_stream.sink()
        await sink.open(None)
        own_stream.server.pause()
        put(sink, 1, 2)
        flushing = asyncio.create_task(sink.flush())
        await own_stream.wait_for_report()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        own_stream.server.resume()
        put(sink, 3)
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert own_stream.items() == [1, 2, 3]


def test_closing_after_a_cancelled_flush_does_not_wait_for_the_server(own_stream):
    async def write() -> None:
        sink = own_stream.sink()
        await sink.open(None)
        own_stream.server.kill()
        put(sink, 1)
        flushing = asyncio.create_task(sink.flush())
        await own_stream.wait_for_report()
        flushing.cancel()
        with suppress(asyncio.CancelledError):
            await flushing
        await asyncio.wait_for(sink.close(), limits.BLOCKING_TIMEOUT_S)

    asyncio.run(write())


def test_entries_lost_by_the_server_are_sent_again(own_stream):
    """As after a failover, or a restart of a server that syncs once a second."""

    async def write() -> int:
        sink = own_stream.sink()
        await sink.open(None)
        put(sink, *range(300))
        await sink.flush()
        own_stream.cli("CONFIG", "SET", "appendonly", "no")  # the following entries never reach the disk
        put(sink, *range(300, 1000))
        await sink.flush()
        own_stream.server.kill()
        own_stream.server.start()
        put(sink, 1000)
        position = await sink.flush()
        await sink.close()
        return position

    position = asyncio.run(write())
    assert own_stream.items() == list(range(1001))
    assert "the server has lost its last 700 items; they are sent again" in own_stream.messages[-1]
    assert asyncio.run(run(own_stream.sink(), position)) == position


@pytest.mark.parametrize("kept", [0, 50_000])
def test_lost_entries_that_the_sink_can_no_longer_send_again_end_the_crawl(own_stream, monkeypatch, kept):
    monkeypatch.setattr(redis_stream, "SENT_MAX", kept)

    async def write() -> int:
        sink = own_stream.sink()
        await sink.open(None)
        put(sink, *range(2000))
        position = await sink.flush()
        own_stream.server.kill()
        own_stream.server.start(keep=False)
        put(sink, 0)
        with pytest.raises(StorageError, match=r"the server has lost 2,000 of 2,000 items that this crawl wrote: give"):
            await sink.flush()
        await sink.close()
        return position

    position = asyncio.run(write())
    assert "the server has lost 2,000 of 2,000 items" in str(refused(own_stream.sink(), position))
    own_stream.name = "another"
    asyncio.run(run(own_stream.sink(), None, 1))
    assert own_stream.items() == [1]


def test_writing_waits_for_a_full_server(monkeypatch):
    with redis_server(maxmemory="3mb") as server:
        own_stream = Stream(server)

        async def write() -> tuple[int, int]:
            sink = own_stream.sink()
            committed = await sink.open(None)
            own_stream.cli("SET", "filler", "x" * 60_000)
            own_stream.cli("CONFIG", "SET", "maxmemory", "1mb")
            put(sink, 1, 2)
            flushing = asyncio.create_task(sink.flush())
            await own_stream.wait_for_report()
            own_stream.cli("CONFIG", "SET", "maxmemory", "0")
            position = await flushing
            own_stream.cli("CONFIG", "SET", "maxmemory", "1mb")
            monkeypatch.setattr(limits, "FULL_MAX_S", 0.3)
            put(sink, 3)
            with pytest.raises(StorageFull, match="has reached its maxmemory"):
                await sink.flush()
            await sink.close()
            return committed, position

        committed, position = asyncio.run(write())
        assert "trying again for at most 600 s" in own_stream.messages[0]
        assert own_stream.items() == [1, 2]
        asyncio.run(run(own_stream.sink(), position))
        asyncio.run(run(own_stream.sink(), committed))
        assert own_stream.items() == [], "entries are cut off on a full server, too"


def wait_for_replication(master: RedisServer) -> None:
    """Wait until a replica has all previous writes. WAIT only covers writes of its own connection, so write once
    more.
    """
    with redis.Redis.from_url(master.url) as client, client.pipeline(transaction=False) as pipeline:
        pipeline.set("{s}waits", 1)
        pipeline.execute_command("WAIT", 1, 10_000)
        assert pipeline.execute() == [True, 1]


@contextmanager
def sentinels() -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """Yield the URL of a stream, its master and the replica."""
    with redis_sentinels(count=1) as watched:
        yield f"{watched.url}?stream=s", *watched.nodes


@contextmanager
def masters() -> Iterator[tuple[str, RedisServer, RedisServer]]:
    """Like `sentinels`, on a cluster."""
    with redis_cluster() as cluster:
        master = cluster.owner("s")
        yield f"{cluster.url}?stream=s", master, cluster.replica_of(master)


@pytest.mark.parametrize("failing", [sentinels, pytest.param(masters, marks=pytest.mark.prove)])
def test_entries_that_a_new_master_lacks_are_sent_again(failing):
    async def write(address: str, master: RedisServer, replica: RedisServer) -> list[str]:
        messages: list[str] = []
        sink = RedisStreamSink(address, "crawl", messages.append)
        await sink.open(None)
        put(sink, *range(1000))
        await sink.flush()
        await asyncio.to_thread(wait_for_replication, master)
        with master.losing(replica):
            put(sink, *range(1000, 1600))
            await sink.flush()
        put(sink, *range(1600, 1700))
        position = await sink.flush()
        await sink.close()
        assert await run(RedisStreamSink(address, "crawl", messages.append), position, 1700) == position + 1
        return messages

    with failing() as (address, master, replica):
        messages = asyncio.run(write(address, master, replica))
        assert Stream(replica, "s").items() == list(range(1701))
        assert "trying again for at most 60 s" in messages[0]
        assert f"{address}: the server has lost its last 600 items; they are sent again" in messages


def test_sync_needs_a_server_that_syncs(own_stream, stream):
    asyncio.run(run(own_stream.sink(sync=True), None, 1))
    assert own_stream.items() == [1]
    assert "--sync needs a server with appendonly yes" in str(refused(stream.sink(sync=True)))


def test_a_key_that_is_not_a_stream_is_refused_and_not_changed(stream):
    stream.cli("SET", stream.name, "mine")
    assert "this is a string, not a stream; give another stream=" in str(refused(stream.sink()))
    assert stream.cli("GET", stream.name) == "mine"


@pytest.mark.parametrize(
    ("server", "address", "message"),
    [
        (
            {},
            "redis://127.0.0.1:1/0",
            "redis://127.0.0.1:1/0?stream=s: the connection was refused: is Redis running there?",
        ),
        ({}, "redis://127.0.0.1:{port}/600", "the server has no database with this number"),
        ({}, "rediss://127.0.0.1:{port}/0", "without TLS write redis://"),
        ({"password": "secret"}, "redis://127.0.0.1:{port}/0", "the server rejects this user and password"),
        ({"password": "secret"}, "redis://:secrets@127.0.0.1:{port}/0", "the server rejects this user and password"),
        ({"tls": True}, "redis://127.0.0.1:{port}/0", "if it requires TLS, write rediss://"),
        ({"tls": True}, "rediss://127.0.0.1:{port}/0", "name its authority with ca=FILE"),
        (
            {"maxmemory": "100mb", "policy": "allkeys-lru"},
            "redis://127.0.0.1:{port}/0",
            "allkeys-lru the server would drop parts of a stream",
        ),
    ],
)
def test_an_unusable_server_is_reported_in_one_line(server, address, message, monkeypatch):
    if address.startswith("rediss") and "tls" not in server:
        monkeypatch.setattr(limits, "BLOCKING_TIMEOUT_S", 1.0)  # a server without TLS does not respond
    monkeypatch.setattr(limits, "JOIN_MAX_S", 0.2)
    with redis_server(**server) as running:
        sink = RedisStreamSink(address.format(port=running.port) + "?stream=s", "crawl", print)
        assert message in str(refused(sink))


def test_a_missing_ca_file_is_refused(stream):
    address = f"{stream.address}&ca=/nowhere.pem".replace("redis:", "rediss:")
    assert "ca=/nowhere.pem is not a file" in str(refused(RedisStreamSink(address, "crawl", print)))


def test_password_and_tls():
    with redis_server(tls=True, password="secret") as server:
        secure = Stream(server)
        secure.options = f"&ca={server.ca}"
        asyncio.run(run(secure.sink(), None, 1))
        assert secure.cli("XLEN", secure.name) == "1"
        assert "secret" not in secure.sink().name


def test_missing_packages_are_reported(stream, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    found = refused(stream.sink())
    assert isinstance(found, UsageError)
    assert str(found) == "Redis support needs the packages redis and hiredis: pip install 'lycosa[redis]'"


@pytest.mark.parametrize("form", ["redis://127.0.0.1:{}", "redis+cluster://127.0.0.1:{}"])
def test_a_stream_on_a_cluster(cluster, form):
    name = token_hex(4)
    address = f"{form.format(cluster.nodes[0].port)}?stream={name}"
    committed = asyncio.run(run(RedisStreamSink(address, "crawl", print), None, *range(1000)))
    asyncio.run(run(RedisStreamSink(address, "crawl", print), committed, *range(1000)))
    asyncio.run(run(RedisStreamSink(address, "crawl", print), committed, 1))
    assert cluster.owner(name).cli("XLEN", name) == "1001"
