"""The contract of the `Sink` port: exactly once by position and rewind, and what each sink adds to it (C8).

Items are written to every sink and read back: `read` of a harness returns them as a reader of the output finds them.
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
from itertools import count
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
from lycosa.storage.sinks import file as file_sink
from lycosa.storage.sinks import stdout
from lycosa.storage.sinks.codecs import codec_of
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.formats import Csv
from lycosa.storage.sinks.json_array import JsonArraySink
from lycosa.storage.sinks.memory import MemorySink
from lycosa.storage.sinks.redis_stream import RedisStreamSink
from lycosa.storage.sinks.sqlite import SqliteSink
from lycosa.storage.sinks.stdout import StdoutSink
from tests.servers.redis import RedisServer
from tests.storage.output_files import READERS, lines

KEY = ItemKey("http://a/", 1)
numbers = count()


class Harness(NamedTuple):
    """One output, which can be opened several times, as by a crawl that is resumed."""

    make: Callable[[], Sink]
    read: Callable[[], list[Any]]


FILES: dict[str, Callable[[Path], Sink]] = {
    "jsonl": FileSink,
    "jsonl.gz": lambda path: FileSink(path, codec=codec_of(".gz")),
    "jsonl.zst": lambda path: FileSink(path, codec=codec_of(".zst")),
    "csv": lambda path: FileSink(path, Csv(path.name)),
    "csv.gz": lambda path: FileSink(path, Csv(path.name), codec_of(".gz")),
    "csv.zst": lambda path: FileSink(path, Csv(path.name), codec_of(".zst")),
    "json": lambda path: JsonArraySink(path, path.with_suffix(".spool")),
    "json.gz": lambda path: JsonArraySink(path, path.with_suffix(".spool"), codec_of(".gz")),
    "json.zst": lambda path: JsonArraySink(path, path.with_suffix(".spool"), codec_of(".zst")),
    "sqlite": lambda path: SqliteSink(path, "crawl"),
}


def file_harness(kind: str, folder: Path) -> Harness:
    path = folder / f"items.{kind}"
    return Harness(lambda: FILES[kind](path), lambda: READERS[kind](path))


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


def put(sink: Any, item: Any) -> None:
    sink.write(sink.prepare(item), KEY._replace(number=next(numbers)))


async def run(sink: Sink, position: int | None, *items: Any, flush: bool = True) -> int:
    """One run of a crawl: open, write, flush, close. Return the position to commit."""
    position_after = await sink.open(position)
    for item in items:
        put(sink, item)
    position_after = await sink.flush() if flush else position_after
    await sink.close()
    return position_after


# ----------------------------------------------------------------------------------------------------------- every sink


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


@pytest.mark.parametrize("module", [file_sink, stdout])
def test_a_full_buffer_of_a_sink_that_is_not_open_is_an_error(tmp_path, monkeypatch, module):
    monkeypatch.setattr(module, "BUFFER_MAX", 10)
    with (tmp_path / "items.jsonl").open("ab") as file:
        sink = FileSink(file.name) if module is file_sink else StdoutSink(file.fileno())
        with pytest.raises(StorageError, match="not open"):
            put(sink, {"text": "x" * 20})
    assert (tmp_path / "items.jsonl").read_bytes() == b""


def test_the_name_of_a_sink_is_stable(harness):
    assert harness.make().name == harness.make().name != ""


# ---------------------------------------------------------------------------------------------------- sinks that rewind


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


# ------------------------------------------------------------------------------------------------------- kinds of items


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


class Foreign:
    """A number type of another library."""


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
def test_items_of_many_types_are_written_as_json(tmp_path, item, line):
    asyncio.run(run(FileSink(tmp_path / "i.jsonl"), None, item))
    assert (tmp_path / "i.jsonl").read_text() == line + "\n"


def cyclic_item() -> dict[str, Any]:
    item: dict[str, Any] = {}
    item["self"] = item
    return item


@pytest.mark.parametrize(
    ("item", "message"),
    [
        (
            {"a": 1, "price": Foreign()},
            "price: a 'Foreign' cannot be written, only text, numbers, dates, bytes, lists, dicts and items (dict)",
        ),
        ({"a": [{"b": 1}, {"b": Foreign()}]}, "a[1].b: "),
        (Film("t", Foreign()), "year: "),  # type: ignore[arg-type]
        (Book("t", Foreign()), "price: "),  # type: ignore[arg-type]
        (page(Foreign()), "text: "),  # type: ignore[arg-type]
        ({"a": {(1, 2): 3}}, "a: cannot be written, the keys of a dict must be text or numbers (dict)"),
        ({"a": "\ud800", "b": Foreign()}, "b: "),
        (Foreign(), "a 'Foreign' cannot be written, only"),
        (cyclic_item(), "cannot be written"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_invalid_item_is_refused_with_its_field_and_not_written(tmp_path, item, message):
    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
        await sink.open(None)
        with pytest.raises(BadItem) as caught:
            put(sink, item)
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)
        put(sink, {"next": 1})
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"next": 1}]


def test_later_changes_of_an_item_are_not_written(tmp_path):
    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
        await sink.open(None)
        item = {"n": 1}
        put(sink, item)
        item["n"] = 2
        await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert lines(tmp_path / "i.jsonl") == [{"n": 1}]


# -------------------------------------------------------------------------------------------------------- failing files


def open_error(sink: Sink, position: int | None = None) -> str:
    """Return the error of opening the sink. `check` must raise the same one, unless it is about the position."""
    if position is None:
        with pytest.raises(StorageError) as caught:
            asyncio.run(sink.check())
        assert str(caught.value) == run_error(sink, None)
    return run_error(sink, position)


def run_error(sink: Sink, position: int | None) -> str:
    with pytest.raises(StorageError) as caught:
        asyncio.run(run(sink, position))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_incomplete_last_line_is_ended(tmp_path):
    path = tmp_path / "i.jsonl"
    path.write_text('{"other": 1}\n{"half')
    asyncio.run(run(FileSink(path), None, {"n": 1}))
    assert path.read_text() == '{"other": 1}\n{"half\n{"n":1}\n'


def test_the_name_has_the_resolved_path(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {FileSink(path).name for path in ("i.jsonl", "./i.jsonl", tmp_path / "link" / "i.jsonl")}
    assert names == {f"jsonl:{tmp_path.resolve()}/i.jsonl"}


def test_a_truncated_edited_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "i.jsonl"
    committed = asyncio.run(run(FileSink(path), None, {"n": 1}, {"n": 2}))
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    assert f"holds {committed - 3} bytes, but the crawl wrote {committed}" in open_error(FileSink(path), committed)
    assert path.read_bytes() == content[:-3], "refused, and changed all the same"
    path.write_bytes(b"x" * 100)
    assert "other content" in open_error(FileSink(path), committed)
    path.unlink()
    assert "no longer exists" in open_error(FileSink(path), committed)
    assert not path.exists()


def test_impossible_paths_are_refused(tmp_path):
    assert "there is no folder" in open_error(FileSink(tmp_path / "no" / "i.jsonl"))
    (tmp_path / "folder.jsonl").mkdir()
    assert "Is a directory" in open_error(FileSink(tmp_path / "folder.jsonl"))
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "not a regular file" in open_error(FileSink(tmp_path / "pipe.jsonl"))
    assert "File name too long" in open_error(FileSink(tmp_path / ("n" * 300 + ".jsonl")))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_missing_permissions_are_reported(tmp_path):
    (tmp_path / "i.jsonl").touch(mode=0o400)
    assert "Permission denied" in open_error(FileSink(tmp_path / "i.jsonl"))
    (tmp_path / "folder").mkdir(mode=0o500)
    assert "Permission denied" in open_error(FileSink(tmp_path / "folder" / "i.jsonl"))


def test_two_crawls_cannot_write_to_the_same_file(tmp_path):
    async def both() -> None:
        first = FileSink(tmp_path / "i.jsonl")
        await first.open(None)
        put(first, {"n": 1})
        position = await first.flush()
        with pytest.raises(StorageError, match="another process writes to it"):
            await FileSink(tmp_path / "i.jsonl").open(0)
        assert (tmp_path / "i.jsonl").stat().st_size == position
        await first.close()
        assert await run(FileSink(tmp_path / "i.jsonl"), position) == position

    asyncio.run(both())


@contextmanager
def file_size_limit(size_bytes: int):
    """Emulate a full disk: a system call writes what fits, then fails."""
    old_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old_limit)


def test_a_full_disk_leaves_complete_lines_and_the_next_flush_writes_the_rest(tmp_path):
    async def fill() -> None:
        sink = FileSink(tmp_path / "i.jsonl")
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


def test_partial_writes_are_continued(tmp_path, monkeypatch):
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, bytes(data)[:7], at))
    asyncio.run(run(FileSink(tmp_path / "i.jsonl"), None, *({"n": n} for n in range(20))))
    assert [item["n"] for item in lines(tmp_path / "i.jsonl")] == list(range(20))


def test_sync_calls_fsync_and_reports_its_error(tmp_path, monkeypatch):
    def fail(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async def write() -> None:
        sink = FileSink(tmp_path / "i.jsonl", sync=True)
        await sink.open(None)
        put(sink, {"n": 1})
        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(StorageError, match="Input/output error"):
            await sink.flush()
        await sink.close()

    asyncio.run(write())


@pytest.mark.parametrize("module", [file_sink, stdout])
def test_buffers_are_bounded(tmp_path, monkeypatch, module):
    """Items between two flushes are written before they fill the memory."""

    async def write() -> None:
        with (tmp_path / "out.jsonl").open("ab") as file:
            sink = FileSink(file.name) if module is file_sink else StdoutSink(file.fileno())
            await sink.open(None)
            for n in range(100):
                put(sink, {"n": n, "text": "x" * 100})
            assert (tmp_path / "out.jsonl").stat().st_size > 10_000
            await sink.flush()
            await sink.close()

    monkeypatch.setattr(module, "BUFFER_MAX", 1000)
    asyncio.run(write())
    assert [item["n"] for item in lines(tmp_path / "out.jsonl")] == list(range(100))


# ------------------------------------------------------------------------------------------------------ standard output


def test_flushing_to_a_slow_reader_does_not_block_the_loop():
    async def write() -> tuple[bytes, int]:
        reader, writer = os.pipe()
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
        sink = StdoutSink(writer)
        await sink.open(None)
        for n in range(1000):
            put(sink, {"n": n, "text": "x" * 100})
        flushing = asyncio.create_task(sink.flush())
        received = b""
        iterations = 0
        while not flushing.done():
            await asyncio.sleep(0)
            iterations += 1
            if iterations == 5:
                put(sink, {"n": 1000, "text": ""})
            if iterations % 3 == 0 and not flushing.done():
                received += os.read(reader, 4096)
        await flushing
        os.close(writer)
        while more := os.read(reader, 1 << 16):
            received += more
        os.close(reader)
        return received, iterations

    received, iterations = asyncio.run(write())
    assert iterations > 20
    assert [msgspec.json.decode(line)["n"] for line in received.splitlines()] == list(range(1001))


def test_a_full_buffer_waits_for_the_reader_also_on_a_nonblocking_pipe(monkeypatch):
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


def test_a_closed_reader_is_reported_in_one_line():
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


def test_a_closed_standard_output_is_reported():
    with Path(os.devnull).open("rb") as unwritable:
        assert "standard output is closed" in open_error(StdoutSink(unwritable.fileno()))
    assert "standard output is closed" in open_error(StdoutSink(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1))
