"""The contract of the `Sink` port: exactly once through position and rewind, and what each sink adds to it (C8).

Every sink is written to and read back; `read` of a harness returns the items as a reader of the output finds them.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import resource
import threading
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import attrs
import msgspec
import pydantic
import pytest
import redis

from lycosa.core.errors import BadItem, StorageError, StorageFull
from lycosa.crawl.items.page_item import PageItem
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.ports import Sink
from lycosa.storage.sinks import jsonl, stdout
from lycosa.storage.sinks.jsonl import JsonlSink
from lycosa.storage.sinks.memory import MemorySink
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from lycosa.storage.sinks.stdout import StdoutSink
from tests.servers.redis import RedisServer

KEY = ItemKey("http://a/", 1)


class Harness(NamedTuple):
    """One output, which is opened again and again as a crawl does that starts again."""

    make: Callable[[], Sink]
    read: Callable[[], list[Any]]


def lines(path: Path) -> list[Any]:
    return [msgspec.json.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]


STREAMS = ["stream on redis", "stream on valkey"]


def stream(server: RedisServer) -> Harness:
    """A stream of its own."""
    name = token_hex(4)

    def read() -> list[Any]:
        with redis.Redis.from_url(server.url) as client:
            return [msgspec.json.decode(fields[b"item"]) for _, fields in client.xrange(name)]

    return Harness(lambda: RedisStreamSink(f"{server.url}?stream={name}", "crawl", print), read)


@pytest.fixture(params=["memory", "jsonl", "jsonl --sync", *STREAMS])
def rewindable(request, tmp_path) -> Harness:
    if request.param in STREAMS:
        return stream(request.getfixturevalue(request.param.partition(" on ")[2]))
    if request.param == "memory":
        sink = MemorySink()
        return Harness(lambda: sink, lambda: sink.items)
    path = tmp_path / "items.jsonl"
    return Harness(lambda: JsonlSink(path, sync="sync" in request.param), lambda: lines(path))


@pytest.fixture(params=["memory", "jsonl", "stdout", *STREAMS])
def harness(request, tmp_path):
    if request.param in STREAMS:
        yield stream(request.getfixturevalue(request.param.partition(" on ")[2]))
    elif request.param == "memory":
        sink = MemorySink()
        yield Harness(lambda: sink, lambda: sink.items)
    elif request.param == "jsonl":
        path = tmp_path / "items.jsonl"
        yield Harness(lambda: JsonlSink(path), lambda: lines(path))
    else:
        with (tmp_path / "stdout").open("ab") as file:
            yield Harness(lambda: StdoutSink(file.fileno()), lambda: lines(tmp_path / "stdout"))


def put(sink: Any, item: Any) -> None:
    sink.write(sink.prepare(item), KEY)


async def run(sink: Sink, position: int | None, *items: Any, flush: bool = True) -> int:
    """One run of a crawl: open, write, flush, close. Return the position to commit."""
    at = await sink.open(position)
    for item in items:
        put(sink, item)
    at = await sink.flush() if flush else at
    await sink.close()
    return at


# ------------------------------------------------------------------------------------------------- every sink


def test_items_come_out_as_they_went_in(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}, {"n": 2, "text": "ä\n\u2028😀"}))
    assert harness.read() == [{"n": 1}, {"n": 2, "text": "ä\n\u2028😀"}]


def test_what_was_not_flushed_is_dropped_by_close(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}, flush=False))
    assert harness.read() == []


def test_a_check_changes_nothing(harness, tmp_path):
    there = sorted(tmp_path.iterdir())
    asyncio.run(harness.make().check())
    assert sorted(tmp_path.iterdir()) == there
    sink = harness.make()
    at = asyncio.run(run(sink, None, {"n": 1}))
    asyncio.run(harness.make().check())
    asyncio.run(run(harness.make(), at, {"n": 2}))
    assert harness.read() == [{"n": 1}, {"n": 2}]


def test_a_second_run_appends(harness):
    asyncio.run(run(harness.make(), None, {"n": 1}))
    asyncio.run(run(harness.make(), None, {"n": 2}))
    assert harness.read() == [{"n": 1}, {"n": 2}]


def test_a_flush_of_nothing_changes_nothing(harness):
    async def twice() -> None:
        sink = harness.make()
        start = await sink.open(None)
        assert await sink.flush() == start
        put(sink, {"n": 1})
        assert await sink.flush() == await sink.flush()
        await sink.close()

    asyncio.run(twice())
    assert harness.read() == [{"n": 1}]


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("written", [False, True])
def test_what_is_not_open_has_no_position(harness, closed, written):
    """A position of 0 would cut off, with the next run, everything there is."""
    asyncio.run(run(harness.make(), None, {"n": 1}))

    async def flushed() -> None:
        sink = harness.make()
        if closed:
            await sink.open(None)
            await sink.close()
        if written:
            put(sink, {"n": 2})
        with pytest.raises(StorageError, match="not open"):
            await sink.flush()
        await sink.close()

    asyncio.run(flushed())
    assert harness.read() == [{"n": 1}]


@pytest.mark.parametrize("module", [jsonl, stdout])
def test_more_than_memory_may_hold_has_nowhere_to_go_when_it_is_not_open(tmp_path, monkeypatch, module):
    monkeypatch.setattr(module, "BUFFER_MAX", 10)
    with (tmp_path / "items.jsonl").open("ab") as file:
        sink = JsonlSink(file.name) if module is jsonl else StdoutSink(file.fileno())
        with pytest.raises(StorageError, match="not open"):
            put(sink, {"text": "x" * 20})
    assert (tmp_path / "items.jsonl").read_bytes() == b""


def test_it_has_a_name_that_stays(harness):
    assert harness.make().name == harness.make().name != ""


# ------------------------------------------------------------------------------------------ sinks that rewind


def test_what_is_behind_the_committed_position_is_cut_off(rewindable):
    committed = asyncio.run(run(rewindable.make(), None, {"n": 1}, {"n": 2}))
    asyncio.run(run(rewindable.make(), committed, {"lost": 1}, {"lost": 2}))
    assert asyncio.run(run(rewindable.make(), committed, {"n": 3})) > committed
    assert rewindable.read() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_position_zero_starts_the_output_over(rewindable):
    asyncio.run(run(rewindable.make(), None, {"n": 1}))
    asyncio.run(run(rewindable.make(), 0, {"n": 2}))
    assert rewindable.read() == [{"n": 2}]


def test_every_flush_is_a_position_one_can_return_to(rewindable):
    async def many() -> list[int]:
        sink = rewindable.make()
        positions = [await sink.open(None)]
        for n in range(5):
            put(sink, {"n": n})
            positions.append(await sink.flush())
        await sink.close()
        return positions

    positions = asyncio.run(many())
    assert positions == sorted(set(positions))
    for kept in reversed(range(6)):
        assert asyncio.run(run(rewindable.make(), positions[kept])) == positions[kept]
        assert rewindable.read() == [{"n": n} for n in range(kept)]


# ----------------------------------------------------------------------------------------- what an item may be


@dataclass
class Book:
    title: str
    price: Decimal


@attrs.define
class Film:
    title: str
    year: int


class Song(pydantic.BaseModel):
    title: str
    released: date


class Colour(Enum):
    RED = "red"


class Whole:
    """A number of another library."""


def page(text: str = "text") -> PageItem:
    return PageItem(
        "http://a/", "http://a/", 200, "text/html", "T", ["h"], text, "en", 3, "2026-01-01T00:00:00Z", 0, "f"
    )


@pytest.mark.parametrize(
    ("item", "line"),
    [
        (Book("b", Decimal("1.10")), '{"title":"b","price":"1.10"}'),
        (Film("f", 1979), '{"title":"f","year":1979}'),
        (Song(title="s", released=date(2026, 1, 2)), '{"title":"s","released":"2026-01-02"}'),
        ({"song": [Song(title="s", released=date(2026, 1, 2))]}, '{"song":[{"title":"s","released":"2026-01-02"}]}'),
        (
            {"at": datetime(2026, 1, 2, tzinfo=UTC), "n": 2**70},
            '{"at":"2026-01-02T00:00:00Z","n":1180591620717411303424}',
        ),
        ({"b": b"ab", "s": {1}, "t": (1, 2), "c": Colour.RED}, '{"b":"YWI=","s":[1],"t":[1,2],"c":"red"}'),
        ({"nan": float("nan"), "none": None, 1: True}, '{"nan":null,"none":null,"1":true}'),
        ({"half": "a\ud83d", "pair": "\ud83d\ude00"}, '{"half":"a\ufffd","pair":"😀"}'),
        ({"path": Path("a/b"), "range": range(3)}, '{"path":"a/b","range":[0,1,2]}'),
    ],
)
def test_what_an_item_may_be(tmp_path, item, line):
    asyncio.run(run(JsonlSink(tmp_path / "i.jsonl"), None, item))
    assert (tmp_path / "i.jsonl").read_text() == line + "\n"


def circle() -> dict[str, Any]:
    item: dict[str, Any] = {}
    item["self"] = item
    return item


@pytest.mark.parametrize(
    ("item", "says"),
    [
        (
            {"a": 1, "price": Whole()},
            "price: a 'Whole' cannot be written, only text, numbers, dates, bytes, lists, dicts and items (dict)",
        ),
        ({"a": [{"b": 1}, {"b": Whole()}]}, "a[1].b: "),
        (Film("t", Whole()), "year: "),  # type: ignore[arg-type]
        (Book("t", Whole()), "price: "),  # type: ignore[arg-type]
        (page(Whole()), "text: "),  # type: ignore[arg-type]
        ({"a": {(1, 2): 3}}, "a: cannot be written, the keys of a dict must be text or numbers (dict)"),
        ({"a": "\ud800", "b": Whole()}, "b: "),
        (Whole(), "a 'Whole' cannot be written, only"),
        (circle(), "cannot be written"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_item_that_cannot_be_written_names_the_field_and_leaves_no_trace(tmp_path, item, says):
    async def write() -> None:
        sink = JsonlSink(tmp_path / "i.jsonl")
        await sink.open(None)
        with pytest.raises(BadItem) as caught:
            put(sink, item)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        put(sink, {"next": 1})
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"next": 1}]


def test_an_item_is_written_as_it_was_when_it_was_written(tmp_path):
    async def write() -> None:
        sink = JsonlSink(tmp_path / "i.jsonl")
        await sink.open(None)
        item = {"n": 1}
        put(sink, item)
        item["n"] = 2
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"n": 1}]


# ---------------------------------------------------------------------------------------- files and their ills


def opening(sink: Sink, position: int | None = None) -> str:
    """Return why it cannot be opened, which a check has told before unless it is about the position."""
    if position is None:
        with pytest.raises(StorageError) as told:
            asyncio.run(sink.check())
        assert str(told.value) == refusal(sink, None)
    return refusal(sink, position)


def refusal(sink: Sink, position: int | None) -> str:
    with pytest.raises(StorageError) as caught:
        asyncio.run(run(sink, position))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_last_line_without_its_end_gets_one(tmp_path):
    path = tmp_path / "i.jsonl"
    path.write_text('{"other": 1}\n{"half')
    asyncio.run(run(JsonlSink(path), None, {"n": 1}))
    assert path.read_text() == '{"other": 1}\n{"half\n{"n":1}\n'


def test_the_name_is_the_file_whatever_the_way_to_it(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {JsonlSink(path).name for path in ("i.jsonl", "./i.jsonl", tmp_path / "link" / "i.jsonl")}
    assert names == {f"jsonl:{tmp_path.resolve()}/i.jsonl"}


def test_a_file_that_was_cut_edited_or_moved_is_refused(tmp_path):
    path = tmp_path / "i.jsonl"
    committed = asyncio.run(run(JsonlSink(path), None, {"n": 1}, {"n": 2}))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert f"holds {committed - 3} bytes, but the crawl wrote {committed}" in opening(JsonlSink(path), committed)
    assert path.read_bytes() == whole[:-3], "refused, and changed all the same"
    path.write_bytes(b"x" * 100)
    assert "other content" in opening(JsonlSink(path), committed)
    path.unlink()
    assert "does not exist any more" in opening(JsonlSink(path), committed)
    assert not path.exists()


def test_places_where_no_file_can_be(tmp_path):
    assert "there is no folder" in opening(JsonlSink(tmp_path / "no" / "i.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    assert "Is a directory" in opening(JsonlSink(tmp_path / "folder.jsonl"))
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in opening(JsonlSink(tmp_path / "pipe.jsonl"))
    assert "File name too long" in opening(JsonlSink(tmp_path / ("n" * 300 + ".jsonl")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_no_permission(tmp_path):
    (tmp_path / "i.jsonl").touch(mode=0o400)
    assert "Permission denied" in opening(JsonlSink(tmp_path / "i.jsonl"))
    (tmp_path / "folder").mkdir(mode=0o500)
    assert "Permission denied" in opening(JsonlSink(tmp_path / "folder" / "i.jsonl"))


def test_two_crawls_cannot_write_one_file(tmp_path):
    async def both() -> None:
        first = JsonlSink(tmp_path / "i.jsonl")
        await first.open(None)
        put(first, {"n": 1})
        at = await first.flush()
        with pytest.raises(StorageError, match="another process writes to it"):
            await JsonlSink(tmp_path / "i.jsonl").open(0)
        assert (tmp_path / "i.jsonl").stat().st_size == at
        await first.close()
        assert await run(JsonlSink(tmp_path / "i.jsonl"), at) == at

    asyncio.run(both())


@contextmanager
def file_size_limit(size_bytes: int):
    """A real disk that is full at this size: the system call writes what fits, then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_leaves_whole_lines_and_the_next_flush_loses_nothing(tmp_path):
    async def fill() -> None:
        sink = JsonlSink(tmp_path / "i.jsonl")
        await sink.open(None)
        put(sink, {"n": 1})
        committed = await sink.flush()
        for n in range(100):
            put(sink, {"n": n, "text": "x" * 100})
        with file_size_limit(5000), pytest.raises(StorageFull, match=r"i\.jsonl: no space left"):
            await sink.flush()
        assert (tmp_path / "i.jsonl").stat().st_size == committed
        assert await sink.flush() == (tmp_path / "i.jsonl").stat().st_size
        await sink.close()

    asyncio.run(fill())
    assert [item["n"] for item in lines(tmp_path / "i.jsonl")] == [1, *range(100)]


def test_writes_that_take_only_a_part_are_carried_on(tmp_path, monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:7], at))
    asyncio.run(run(JsonlSink(tmp_path / "i.jsonl"), None, *({"n": n} for n in range(20))))
    assert [item["n"] for item in lines(tmp_path / "i.jsonl")] == list(range(20))


def test_sync_reaches_the_disk_and_its_failure_is_told(tmp_path, monkeypatch):
    def fails(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def write() -> None:
        sink = JsonlSink(tmp_path / "i.jsonl", sync=True)
        await sink.open(None)
        put(sink, {"n": 1})
        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(StorageError, match="Input/output error"):
            await sink.flush()
        await sink.close()

    asyncio.run(write())


@pytest.mark.parametrize("module", [jsonl, stdout])
def test_memory_is_bounded(tmp_path, monkeypatch, module):
    """What is written between two flushes goes out before it fills the memory."""

    async def write() -> None:
        with (tmp_path / "out.jsonl").open("ab") as file:
            sink = JsonlSink(file.name) if module is jsonl else StdoutSink(file.fileno())
            await sink.open(None)
            for n in range(100):
                put(sink, {"n": n, "text": "x" * 100})
            assert (tmp_path / "out.jsonl").stat().st_size > 10_000
            await sink.flush()
            await sink.close()

    monkeypatch.setattr(module, "BUFFER_MAX", 1000)
    asyncio.run(write())
    assert [item["n"] for item in lines(tmp_path / "out.jsonl")] == list(range(100))


# --------------------------------------------------------------------------------------------- standard output


def test_a_slow_reader_is_waited_for_while_the_loop_runs_on():
    async def write() -> tuple[bytes, int]:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        sink = StdoutSink(writer)
        await sink.open(None)
        for n in range(1000):
            put(sink, {"n": n, "text": "x" * 100})
        flushing = asyncio.create_task(sink.flush())
        received = b""
        turns = 0
        while not flushing.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 5:
                put(sink, {"n": 1000, "text": ""})
            if turns % 3 == 0 and not flushing.done():
                received += os.read(reader, 4096)
        await flushing
        os.close(writer)
        while more := os.read(reader, 1 << 16):
            received += more
        os.close(reader)
        return received, turns

    received, turns = asyncio.run(write())
    assert turns > 20
    assert [msgspec.json.decode(line)["n"] for line in received.splitlines()] == list(range(1001))


def test_more_than_memory_may_hold_waits_for_the_reader_even_if_others_made_the_pipe_nonblocking(monkeypatch):
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    os.set_blocking(writer, False)
    received = bytearray()

    def read() -> None:
        while more := os.read(reader, 1 << 16):
            received.extend(more)

    async def write() -> None:
        sink = StdoutSink(writer)
        await sink.open(None)
        put(sink, {"text": "x" * 100_000})
        os.close(writer)

    monkeypatch.setattr(stdout, "BUFFER_MAX", 1000)
    thread = threading.Thread(target=read)
    thread.start()
    asyncio.run(write())
    thread.join()
    os.close(reader)
    assert msgspec.json.decode(bytes(received)) == {"text": "x" * 100_000}


def test_a_reader_that_goes_away_ends_it_in_one_line():
    async def write() -> None:
        reader, writer = os.pipe()
        sink = StdoutSink(writer)
        await sink.open(5)
        os.close(reader)
        put(sink, {"n": 1})
        with pytest.raises(StorageError, match="standard output was closed"):
            await sink.flush()
        await sink.close()
        os.close(writer)

    asyncio.run(write())


def test_standard_output_that_is_closed_from_the_start():
    with Path(os.devnull).open("rb") as unwritable:
        assert "standard output is closed" in opening(StdoutSink(unwritable.fileno()))
    assert "standard output is closed" in opening(StdoutSink(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1))
