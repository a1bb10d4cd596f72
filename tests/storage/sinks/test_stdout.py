"""Standard output: slow and closed readers, one CSV header (C8)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import threading
from pathlib import Path

import msgspec
import pytest

from lycosa.core.errors import StorageError
from lycosa.storage.sinks import stdout
from lycosa.storage.sinks.formats import Csv
from lycosa.storage.sinks.stdout import StdoutSink
from tests.storage.written_sinks import open_error, put, run


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
