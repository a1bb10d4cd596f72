"""The contract of the `Sink` port: each item is stored exactly once, by rewinding to the committed position (C8).

Items are written to every sink and read back: `read` of a harness returns them as a reader of the output finds them.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import Any

import msgspec
import pytest
import redis

from lycosa.core.errors import StorageError
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.memory import MemorySink
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from lycosa.storage.sinks.stdout import StdoutSink
from tests.servers.redis import RedisServer
from tests.storage.output_files import lines
from tests.storage.written_sinks import FILES, Harness, file_harness, put, run

STREAMS = ["stream on redis", "stream on valkey"]


def stream(server: RedisServer) -> Harness:
    """Return a harness with a stream of its own."""
    name = token_hex(4)

    def read() -> list[Any]:
        with redis.Redis.from_url(server.url) as client:
            return [msgspec.json.decode(fields[b"item"]) for _, fields in client.xrange(name)]

    return Harness(lambda: RedisStreamSink(f"{server.url}?stream={name}", "crawl", print), read)


@pytest.fixture(params=["memory", *FILES, "jsonl --sync", *STREAMS])
def rewindable(request, tmp_path) -> Harness:
    if request.param in STREAMS:
        return stream(request.getfixturevalue(request.param.partition(" on ")[2]))
    if request.param == "memory":
        sink = MemorySink()
        return Harness(lambda: sink, lambda: sink.items)
    if request.param in FILES:
        return file_harness(request.param, tmp_path)
    path = tmp_path / "items.jsonl"
    return Harness(lambda: FileSink(path, sync=True), lambda: lines(path))


@pytest.fixture(params=["memory", *FILES, "stdout", *STREAMS])
def harness(request, tmp_path):
    if request.param in STREAMS:
        yield stream(request.getfixturevalue(request.param.partition(" on ")[2]))
    elif request.param == "memory":
        sink = MemorySink()
        yield Harness(lambda: sink, lambda: sink.items)
    elif request.param in FILES:
        yield file_harness(request.param, tmp_path)
    else:
        with (tmp_path / "stdout").open("ab") as file:
            yield Harness(lambda: StdoutSink(file.fileno()), lambda: lines(tmp_path / "stdout"))


def test_items_are_read_back_unchanged(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}, {"n": 2, "text": "ä\n\u2028😀"}))
    assert harness.read() == [{"n": 1}, {"n": 2, "text": "ä\n\u2028😀"}]


def test_closing_drops_unflushed_items(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}, flush=False))
    assert harness.read() == []


def test_a_check_changes_nothing(harness, tmp_path):
    files = sorted(tmp_path.iterdir())
    asyncio.run(harness.make().check())
    assert sorted(tmp_path.iterdir()) == files
    sink = harness.make()
    position = asyncio.run(run(sink, None, {"n": 1}))
    asyncio.run(harness.make().check())
    asyncio.run(run(harness.make(), position, {"n": 2}))
    assert harness.read() == [{"n": 1}, {"n": 2}]


def test_a_second_run_appends(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}))
    asyncio.run(run(harness.make(), None, {"n": 2}))
    assert harness.read() == [{"n": 1}, {"n": 2}]


def test_a_flush_without_new_items_keeps_the_position(harness):
    async def flush_twice() -> None:
        sink = harness.make()
        start = await sink.open(None)
        assert await sink.flush() == start
        put(sink, {"n": 1})
        assert await sink.flush() == await sink.flush()
        await sink.close()

    asyncio.run(flush_twice())
    assert harness.read() == [{"n": 1}]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_a_sink_that_is_not_open_has_no_position(harness, closed, written):
    """If it returned 0, the next run would delete all items."""
    asyncio.run(run(harness.make(), None, {"n": 1}))

    async def flush_unopened() -> None:
        sink = harness.make()
        if closed:
            await sink.open(None)
            await sink.close()
        if written:
            put(sink, {"n": 2})
        with pytest.raises(StorageError, match="not open"):
            await sink.flush()
        await sink.close()

    asyncio.run(flush_unopened())
    assert harness.read() == [{"n": 1}]


def test_the_name_of_a_sink_is_stable(harness):
    assert harness.make().name == harness.make().name != ""


def test_items_after_the_committed_position_are_removed(rewindable):
    committed = asyncio.run(run(rewindable.make(), None, {"n": 1}, {"n": 2}))
    asyncio.run(run(rewindable.make(), committed, {"lost": 1}, {"lost": 2}))
    assert asyncio.run(run(rewindable.make(), committed, {"n": 3})) > committed
    assert rewindable.read() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_position_zero_deletes_all_items(rewindable):
    asyncio.run(run(rewindable.make(), None, {"n": 1}))
    asyncio.run(run(rewindable.make(), 0, {"n": 2}))
    assert rewindable.read() == [{"n": 2}]


def test_every_flushed_position_can_be_resumed(rewindable):
    async def write_several() -> list[int]:
        sink = rewindable.make()
        positions = [await sink.open(None)]
        for n in range(5):
            put(sink, {"n": n})
            positions.append(await sink.flush())
        await sink.close()
        return positions

    positions = asyncio.run(write_several())
    assert positions == sorted(set(positions))
    for kept in reversed(range(6)):
        assert asyncio.run(run(rewindable.make(), positions[kept])) == positions[kept]
        assert rewindable.read() == [{"n": n} for n in range(kept)]
