"""The contract of the `Sink` port: exactly once by position and rewind, and what each sink adds to it (C8).

Items are written to every sink and read back: `read` of a harness returns them as a reader of the output finds them.
"""

from __future__ import annotations

import asyncio
import csv
import errno
import fcntl
import os
import re
import resource
import sqlite3
import sys
import threading
import tracemalloc
from collections.abc import Callable
from contextlib import closing, contextmanager
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

from lycosa.core.errors import BadItem, StorageError, StorageFull, UsageError
from lycosa.crawl.items.page_item import PageItem
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.ports import Sink
from lycosa.storage.sinks import file as file_sink
from lycosa.storage.sinks import sqlite, stdout
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


@pytest.mark.parametrize(
    ("mode", "position", "written"),
    [
        ("ab", 0, "a,b\r\n1,2\r\n,3\r\n"),  # >> FILE, resumed
        ("ab", None, "a,b\r\n1,2\r\nb,c\r\n3,4\r\n"),  # >> FILE, another crawl
        ("wb", 0, "b,c\r\n3,4\r\n"),  # > FILE, resumed
    ],
)
def test_csv_on_standard_output_has_one_header_in_a_file_that_a_resumed_crawl_continues(
    tmp_path, mode, position, written
):
    for how, start, item in (("wb", None, {"a": 1, "b": 2}), (mode, position, {"b": 3, "c": 4})):
        with (tmp_path / "out.csv").open(how) as file:
            asyncio.run(run(StdoutSink(file.fileno(), Csv("standard output")), start, item))
    assert (tmp_path / "out.csv").read_bytes().decode() == written


def test_a_closed_standard_output_is_reported():
    with Path(os.devnull).open("rb") as unwritable:
        assert "standard output is closed" in open_error(StdoutSink(unwritable.fileno()))
    assert "standard output is closed" in open_error(StdoutSink(resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1))


# -------------------------------------------------------------------------------- each format: torn writes, power loss

RESUMABLE = [kind for kind in FILES if not kind.startswith("json.") and kind != "json"]
COMPRESSED = [kind for kind in FILES if kind.endswith((".gz", ".zst")) and not kind.startswith("json.")]


@pytest.mark.parametrize("kind", ["jsonl", "csv", *COMPRESSED])
def test_a_torn_last_write_is_cut_off_wherever_it_ends(tmp_path, kind):
    harness, path = file_harness(kind, tmp_path), tmp_path / f"items.{kind}"
    committed = asyncio.run(run(harness.make(), None, {"n": 1}))
    asyncio.run(run(harness.make(), committed, {"n": 2}, {"n": 3}))
    whole = path.read_bytes()
    for end in range(committed, len(whole) + 1):
        path.write_bytes(whole[:end])
        assert asyncio.run(run(harness.make(), committed, {"n": 4})) > committed
        assert harness.read() == [{"n": 1}, {"n": 4}]


def test_a_torn_log_of_a_database_is_cut_off_wherever_it_ends(tmp_path, rng):
    """What a kill or a power loss leaves of the write-ahead log: any part of the transactions after the commit."""
    path, log = tmp_path / "items.sqlite", tmp_path / "items.sqlite-wal"
    saved: list[tuple[bytes, bytes]] = []

    async def write() -> int:
        sink = SqliteSink(path, "crawl", sync=True)
        await sink.open(None)
        put(sink, {"n": 1})
        committed = await sink.flush()
        saved.append((path.read_bytes(), log.read_bytes()))
        put(sink, {"n": 2, "new": "x" * 10_000})
        await sink.flush()
        saved.append((path.read_bytes(), log.read_bytes()))
        await sink.close()
        return committed

    committed = asyncio.run(write())
    (_, before), (database, after) = saved
    assert after.startswith(before), "the log only grows"
    for end in (len(before), len(after), *(rng.randrange(len(before), len(after)) for _ in range(20))):
        for file in tmp_path.iterdir():
            file.unlink()
        path.write_bytes(database)
        log.write_bytes(after[:end])
        asyncio.run(run(SqliteSink(path, "crawl"), committed, {"n": 3}))
        assert READERS["sqlite"](path) == [{"n": 1}, {"n": 3}]


@pytest.mark.parametrize("kind", RESUMABLE)
def test_with_sync_a_flush_is_on_the_disk_before_it_returns(tmp_path, monkeypatch, kind):
    sink = FILES[kind](tmp_path / f"items.{kind}")
    sink._sync = True  # type: ignore[attr-defined]
    synced: list[int] = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (fsync(fd), synced.append(os.fstat(fd).st_ino)))

    async def write() -> None:
        await sink.open(None)
        synced.clear()
        put(sink, {"n": 1})
        await sink.flush()
        if kind == "sqlite":
            (level,) = sink._database.execute("PRAGMA synchronous").fetchone()  # type: ignore[attr-defined]
            assert level == 2, "FULL: SQLite syncs its log at each commit"
        else:
            assert synced == [(tmp_path / f"items.{kind}").stat().st_ino]
        await sink.close()

    asyncio.run(write())


@pytest.mark.parametrize("kind", COMPRESSED)
def test_nothing_is_appended_behind_an_incomplete_frame_of_another_program(tmp_path, kind):
    harness, path = file_harness(kind, tmp_path), tmp_path / f"items.{kind}"
    asyncio.run(run(harness.make(), None, {"n": 1}))
    committed = asyncio.run(run(harness.make(), None, {"n": 2}))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-1])
    assert "is not a complete" in run_error(harness.make(), None)
    assert path.read_bytes() == whole + whole[:-1]
    path.write_bytes(whole[:-1])
    assert "was cut, edited or replaced" in run_error(harness.make(), committed)
    path.write_bytes(b"x" * 2 * len(whole))
    assert "was cut, edited or replaced" in run_error(harness.make(), committed)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_frames_that_unpack_to_much_are_checked_in_little_memory(tmp_path, kind):
    harness, path = file_harness(kind, tmp_path), tmp_path / f"items.{kind}"
    codec = codec_of(path.suffix)
    path.write_bytes(codec.compress(b"n\n" + b"\n" * 50_000_000))
    tracemalloc.start()
    try:
        asyncio.run(run(harness.make(), None))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


# ------------------------------------------------------------------------------------------------------------ databases


def sqlite_run(path: Path, position: int | None, *items: tuple[int, Any], crawl: str = "crawl") -> int:
    """One run that writes items under these numbers of one page. Return the position to commit."""

    async def write() -> int:
        sink = SqliteSink(path, crawl)
        start = await sink.open(position)
        for number, item in items:
            sink.write(sink.prepare(item), KEY._replace(number=number))
        after = await sink.flush() if items else start
        await sink.close()
        return after

    return asyncio.run(write())


def test_an_item_replaces_that_with_its_key_and_an_undone_one_gives_it_back(tmp_path):
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}), (1, {"n": 2}))
    later = sqlite_run(path, committed, (0, {"n": 10, "more": 1}))
    sqlite_run(path, later, (0, {"n": 11}), (2, {"n": 3}))
    assert sorted(row["n"] for row in READERS["sqlite"](path)) == [2, 3, 11]
    sqlite_run(path, later)
    assert READERS["sqlite"](path) == [{"n": 2}, {"n": 10, "more": 1}]
    sqlite_run(path, committed)
    assert sorted(row["n"] for row in READERS["sqlite"](path)) == [1, 2], "a frontier may lose its last commits"


def test_undoing_several_flushes_gives_back_the_oldest_row(tmp_path):
    path = tmp_path / "i.sqlite"

    async def write() -> int:
        sink = SqliteSink(path, "crawl")
        await sink.open(None)
        positions = []
        for n in range(4):
            sink.write(sink.prepare({"n": n}), KEY)
            positions.append(await sink.flush())
        await sink.close()
        return positions[0]

    sqlite_run(path, asyncio.run(write()))
    assert READERS["sqlite"](path) == [{"n": 0}]


def test_replaced_rows_are_forgotten_after_many_flushes(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "FLUSHES_KEPT", 3)

    async def write() -> None:
        sink = SqliteSink(tmp_path / "i.sqlite", "crawl")
        await sink.open(None)
        for n in range(10):
            sink.write(sink.prepare({"n": n}), KEY)
            await sink.flush()
        await sink.close()

    asyncio.run(write())
    with closing(sqlite3.connect(tmp_path / "i.sqlite")) as database:
        assert database.execute("SELECT n FROM _replaced ORDER BY n").fetchall() == [(6,), (7,), (8,)]


def test_a_crawl_undoes_only_its_own_rows(tmp_path):
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}))
    sqlite_run(path, committed, (1, {"lost": 1}))
    sqlite_run(path, None, (0, {"other": 1}), crawl="crawl2")
    sqlite_run(path, committed, (2, {"n": 2}))
    assert READERS["sqlite"](path) == [{"n": 1}, {"n": 2}, {"other": 1}]
    sqlite_run(path, 0, (0, {"n": 3}))
    assert READERS["sqlite"](path) == [{"n": 3}]


def test_items_of_a_repeatable_page_have_keys_of_their_own(tmp_path):
    async def write() -> None:
        sink = SqliteSink(tmp_path / "i.sqlite", "crawl")
        await sink.open(None)
        for n in range(4):
            sink.write(sink.prepare({"n": n}), KEY._replace(repeatable=True))
            if n % 2:
                await sink.flush()
        await sink.close()

    asyncio.run(write())
    assert [row["n"] for row in READERS["sqlite"](tmp_path / "i.sqlite")] == [0, 1, 2, 3]


def test_fields_that_cannot_be_columns_get_another_name(tmp_path):
    path = tmp_path / "i.sqlite"
    item = {"Title": "a", "title": "b", "_key": "c", "_position": 5, 'x"y\0; drop': [1, {"a": 2}], "big": 2**70, "": 1}
    sqlite_run(path, None, (0, item), (1, {"title": "d"}))
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        first, second = [dict(row) for row in database.execute("SELECT * FROM items ORDER BY _key")]
    assert {name: first[name] for name in ("Title", "title_", "_key_", "_position_", 'x"y; drop', "big", "")} == {
        "Title": "a",
        "title_": "b",
        "_key_": "c",
        "_position_": 5,
        'x"y; drop': '[1,{"a":2}]',
        "big": str(2**70),
        "": 1,
    }
    assert (second["title_"], second["Title"]) == ("d", None)


def test_too_many_columns_foreign_and_replaced_databases_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sqlite, "COLUMNS_MAX", 30)
    path = tmp_path / "i.sqlite"
    committed = sqlite_run(path, None, (0, {"n": 1}))
    with pytest.raises(StorageError, match=r"more than 30 fields; -o FILE\.jsonl takes any"):
        sqlite_run(path, committed, (1, {f"f{n}": n for n in range(31)}))
    assert READERS["sqlite"](path) == [{"n": 1}]
    path.unlink()
    assert "no longer exists" in open_error(SqliteSink(path, "crawl"), committed)
    asyncio.run(run(SqliteSink(path, "crawl"), None))
    assert "was replaced" in open_error(SqliteSink(path, "crawl"), committed)
    with closing(sqlite3.connect(tmp_path / "foreign.sqlite")) as database:
        database.execute("CREATE TABLE t (a)")
    assert "is a database of another program" in open_error(SqliteSink(tmp_path / "foreign.sqlite", "crawl"))


def test_two_crawls_cannot_write_to_the_same_database_or_array(tmp_path):
    async def both(kind: str) -> None:
        first, second = (FILES[kind](tmp_path / f"items.{kind}") for _ in range(2))
        await first.open(None)
        with pytest.raises(StorageError, match="another process writes to it"):
            await second.open(None)
        put(first, {"n": 1})
        await first.flush()
        await first.close()

    for kind in ("sqlite", "json"):
        asyncio.run(both(kind))
        assert READERS[kind](tmp_path / f"items.{kind}") == [{"n": 1}]


# --------------------------------------------------------------------------------------------------------------- arrays


def test_an_array_is_replaced_in_one_step_and_a_failed_end_is_made_up_for(tmp_path):
    harness, path = file_harness("json", tmp_path), tmp_path / "items.json"
    committed = asyncio.run(run(harness.make(), None, {"n": 1}))
    before = path.read_bytes()

    async def fill() -> int:
        sink = harness.make()
        await sink.open(committed)
        put(sink, {"n": 2, "text": "x" * 100_000})
        position = await sink.flush()
        assert path.read_bytes() == before, "committed items are in the spool until the end"
        with file_size_limit(50_000), pytest.raises(StorageFull, match=r"items\.json: no space left"):
            await sink.close()
        return position

    position = asyncio.run(fill())
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if "draft" in file.name] == []
    asyncio.run(run(harness.make(), position))
    assert [item["n"] for item in harness.read()] == [1, 2]


def test_an_array_of_another_crawl_is_refused_and_replaced_only_afresh(tmp_path):
    (tmp_path / "items.json").write_text("[1]")
    harness = file_harness("json", tmp_path)
    assert "cannot be appended to a JSON array" in run_error(harness.make(), None)
    assert (tmp_path / "items.json").read_text() == "[1]"
    asyncio.run(run(harness.make(), 0, {"n": 1}))
    assert harness.read() == [{"n": 1}]


# ------------------------------------------------------------------------------------------------------------------ CSV


def csv_text(tmp_path: Path, *batches: list[Any], fields: tuple[str, ...] = ()) -> str:
    async def write() -> None:
        sink = FileSink(tmp_path / "i.csv", Csv("i.csv", fields))
        await sink.open(None)
        for batch in batches:
            for item in batch:
                put(sink, item)
            await sink.flush()
        await sink.close()

    asyncio.run(write())
    return (tmp_path / "i.csv").read_bytes().decode()


def test_cells_of_a_csv_file_are_read_back(tmp_path):
    texts = ['a"b', "a,b", "a\nb", "a\rb", "a\r\nb", " a ", "", "=1+1", "ä\u2028😀", "a\0b"]
    csv_text(tmp_path, [{"n": n, "text": text} for n, text in enumerate(texts)])
    with (tmp_path / "i.csv").open(newline="", encoding="utf-8") as file:
        assert [row["text"] for row in csv.DictReader(file, strict=True)] == texts


def test_values_of_a_csv_file(tmp_path):
    item = {"b": True, "none": None, "l": ["x", 1, False], "d": {"a": 1}, "ll": [[1], None], "f": 1.5, "i": 2**70}
    assert csv_text(tmp_path, [item]).splitlines() == [
        "b,none,l,d,ll,f,i",
        f'true,,"x,1,false","{{""a"":1}}","[[1],null]",1.5,{2**70}',
    ]


def test_columns_are_those_of_the_first_batch_with_fields_and_later_ones_are_counted(tmp_path, caplog):
    written = csv_text(tmp_path, [{}], [{"a": 1}, {"b": 2}], [{"c": 3, "a": 4}, {"c": 5}, {"d": 6}])
    assert written.split() == ["a,b", "1,", ",2", "4,", ",", ","]
    assert "fields that are no columns were left out: c (2), d (1); name the columns with --fields" in caplog.text


def test_chosen_columns_come_in_their_order_and_without_a_warning(tmp_path, caplog):
    assert csv_text(tmp_path, [{"a": 1, "b": 2, "c": 3}], fields=("c", "x", "a")).split() == ["c,x,a", "3,,1"]
    assert caplog.text == ""


def test_the_columns_of_a_file_are_kept_and_others_refused(tmp_path):
    csv_text(tmp_path, [{"a": 1, "b": 2}])
    assert csv_text(tmp_path, [{"b": 3, "c": 4}]).split() == ["a,b", "1,2", ",3"]
    assert csv_text(tmp_path, [{"b": 5}], fields=("a", "b")).split()[-1] == ",5"
    message = run_error(FileSink(tmp_path / "i.csv", Csv("i.csv", ["b", "a"])), None)
    assert "i.csv has the columns a,b, not b,a: continue without --fields" in message


def test_a_header_can_always_be_read_again(tmp_path):
    item = {f"{'n' * 100}{number}": number for number in range(20_000)}
    csv_text(tmp_path, [item])
    before = (tmp_path / "i.csv").read_text().splitlines()[0]
    assert len(before) < 1_000_000
    csv_text(tmp_path, [item])
    header, *rows = (tmp_path / "i.csv").read_text().splitlines()
    assert header == before
    assert [len(row.split(",")) for row in rows] == [len(header.split(","))] * 2


@pytest.mark.parametrize("kind", ["csv", "sqlite"])
def test_only_items_with_fields_are_rows(tmp_path, kind):
    with pytest.raises(BadItem, match="cannot be a row of a table, only items with fields"):
        FILES[kind](tmp_path / f"i.{kind}").prepare(["a"])


def test_zstd_without_its_package_is_one_line(monkeypatch):
    for name in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError, match=re.escape("pip install 'lycosa[zstd]'")):
        codec_of(".zst")


def test_with_sync_an_array_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    steps: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def spy_fsync(fd: int) -> None:
        steps.append(Path(f"/proc/self/fd/{fd}").readlink().name)
        fsync(fd)

    def spy_replace(draft: Path, path: Path) -> Path:
        steps.append("replace")
        return replace(draft, path)

    path = tmp_path / "items.json"
    sink = JsonArraySink(path, tmp_path / "spool", sync=True)
    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(Path, "replace", spy_replace)
    asyncio.run(run(sink, None, {"n": 1}))
    assert steps[-3:] == [".items.json.draft", "replace", tmp_path.name]
    assert "spool" in steps
    assert READERS["json"](path) == [{"n": 1}]
