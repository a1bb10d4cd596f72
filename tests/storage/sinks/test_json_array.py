"""Items as one JSON array, replaced in one step (C8)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from lycosa.core.errors import StorageFull
from lycosa.storage.sinks.json_array import JsonArraySink
from tests.storage.output_files import READERS
from tests.storage.written_sinks import file_harness, file_size_limit, put, run, run_error


def test_an_array_is_replaced_in_one_step_and_the_next_run_repeats_a_failed_end(tmp_path):
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


def test_an_array_of_another_crawl_is_refused_unless_the_output_starts_afresh(tmp_path):
    (tmp_path / "items.json").write_text("[1]")
    harness = file_harness("json", tmp_path)
    assert "cannot be appended to a JSON array" in run_error(harness.make(), None)
    assert (tmp_path / "items.json").read_text() == "[1]"
    asyncio.run(run(harness.make(), 0, {"n": 1}))
    assert harness.read() == [{"n": 1}]


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
