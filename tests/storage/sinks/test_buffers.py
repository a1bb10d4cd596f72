"""Items between two flushes take little memory (C8)."""

from __future__ import annotations

import asyncio

import pytest

from lycosa.core.errors import StorageError
from lycosa.storage.sinks import file as file_sink
from lycosa.storage.sinks import stdout
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.stdout import StdoutSink
from tests.storage.output_files import lines
from tests.storage.written_sinks import put


@pytest.mark.parametrize("module", [file_sink, stdout])
def test_a_full_buffer_of_a_sink_that_is_not_open_is_an_error(tmp_path, monkeypatch, module):
    monkeypatch.setattr(module, "BUFFER_MAX", 10)
    with (tmp_path / "items.jsonl").open("ab") as file:
        sink = FileSink(file.name) if module is file_sink else StdoutSink(file.fileno())
        with pytest.raises(StorageError, match="not open"):
            put(sink, {"text": "x" * 20})
    assert (tmp_path / "items.jsonl").read_bytes() == b""


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
