"""Compressed files consist of complete frames, and are checked in little memory (C8)."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from lycosa.storage.sinks.codecs import codec_of
from tests.storage.written_sinks import COMPRESSED, file_harness, run, run_error


@pytest.mark.parametrize("kind", COMPRESSED)
def test_nothing_is_appended_after_an_incomplete_frame_of_another_program(tmp_path, kind):
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
def test_highly_compressed_frames_are_checked_in_little_memory(tmp_path, kind):
    harness, path = file_harness(kind, tmp_path), tmp_path / f"items.{kind}"
    codec = codec_of(path.suffix)
    path.write_bytes(codec.compress(b"n\n" + b"\n" * 50_000_000))
    tracemalloc.start()
    try:
        asyncio.run(run(harness.make(), None))
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
