"""Frames of zstd: read with the context of a thread, and without one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from backports import zstd

from lycosa.storage.records import frames
from lycosa.storage.records.frames import REUSED_BYTES, compress, decompress

TEXTS = [b"", b"the quiet river s01e01 1080p", b"x" * REUSED_BYTES, bytes(range(256)) * 1000]


@pytest.fixture(params=["kept", "none"])
def _context(request, monkeypatch):
    if request.param == "none":
        monkeypatch.setattr(frames._kept, "context", None)
    else:
        assert frames._kept.context is not None


@pytest.mark.usefixtures("_context")
def test_texts_are_read_together_and_alone():
    compressed = [compress(text) for text in TEXTS] * 50
    assert decompress(compressed) == TEXTS * 50
    assert [decompress([frame]) for frame in compressed] == [[text] for text in TEXTS] * 50
    assert decompress([]) == []


@pytest.mark.usefixtures("_context")
def test_a_damaged_frame_is_refused():
    frame = compress(TEXTS[3])
    for damaged in (b"", frame[:-1], frame[:5], b"\xff" * 20, b"\xff" * 20 + frame):
        for frames_read in ([damaged], [compress(b"whole"), damaged]):
            with pytest.raises((ValueError, zstd.ZstdError)):
                decompress(frames_read)


def test_each_thread_reads_on_its_own():
    with ThreadPoolExecutor(4) as pool:
        read = pool.map(lambda number: decompress([compress(b"%d" % number * 50)])[0], range(400))
        assert list(read) == [b"%d" % number * 50 for number in range(400)]
