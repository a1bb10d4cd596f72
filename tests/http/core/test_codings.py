"""Bodies with a wrong Content-Encoding (C8): readable content is not lost, and the size is bounded."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib

import pytest

from lycosa.http.core.codings import decode_body

LIMIT = 1 << 20


def gzipped(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)  # part of test ids, so all processes must create the same bytes


PAGE = b"<!doctype html><p>hello</p>" * 100
GZIPPED = gzipped(PAGE)


def deflated(body: bytes) -> bytes:
    bare = zlib.compressobj(6, zlib.DEFLATED, -15)
    return bare.compress(body) + bare.flush()


@pytest.mark.parametrize(
    ("body", "values", "expected"),
    [
        (PAGE, ["gzip"], PAGE),
        (PAGE, ["deflate"], PAGE),
        (PAGE, ["br"], PAGE),
        (PAGE, ["utf-8"], PAGE),
        (PAGE, [], PAGE),
        (PAGE, ["", " , "], PAGE),
        (GZIPPED, ["GZIP"], PAGE),
        (GZIPPED, ["x-gzip"], PAGE),
        (GZIPPED, ["br"], PAGE),
        (GZIPPED, ["deflate"], PAGE),
        (GZIPPED, ["gzip, gzip"], PAGE),
        (gzipped(GZIPPED), ["gzip, gzip"], PAGE),
        (gzipped(GZIPPED), ["gzip", "gzip"], PAGE),
        (gzipped(zlib.compress(PAGE)), ["deflate, gzip"], PAGE),
        (GZIPPED + b"junk" * 10, ["gzip"], PAGE),
        (GZIPPED + gzipped(b"more"), ["gzip"], PAGE + b"more"),
        (GZIPPED + GZIPPED[:10] + b"damaged", ["gzip"], PAGE),
        (GZIPPED[:-8] + bytes(8), ["gzip"], PAGE),
        (gzipped(b""), ["gzip"], b""),
        (zlib.compress(PAGE), ["deflate"], PAGE),
        (deflated(PAGE), ["deflate"], PAGE),
        (PAGE, ["gzip, " * 1000 + "gzip"], PAGE),
        (b"", ["gzip"], b""),
    ],
)
def test_wrong_labels_and_junk_are_tolerated(body, values, expected):
    assert decode_body(body, values, LIMIT, text=True) == expected


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (GZIPPED[:10] + b"\xff" * 50, ["gzip"]),
        (gzipped(b"") * 20_000, ["gzip"]),
        (b"\x1f\x8b\x08\x00", ["zstd", "br"]),
        (b"\x28\xb5\x2f\xfd\x00\x01\x02", ["zstd"]),
        (b"\x1b\x00\x00\x01\x02", ["br"]),
        (b"\x1b\x00\x00\x01\x02", ["gzip"]),
        (b"\xff\x00\xff\x00\xff", ["deflate"]),
        (gzipped(b"\x00\x01"), ["gzip"]),
    ],
)
def test_body_with_a_damaged_or_unknown_coding_is_decoded_to_none(body, values):
    assert decode_body(body, values, LIMIT, text=True) is None


def test_body_that_is_not_labelled_text_may_be_binary():
    assert decode_body(b"\x89PNG\x00", ["gzip"], LIMIT, text=False) == b"\x89PNG\x00"
    assert decode_body(b"\x89PNG\x00", ["gzip"], LIMIT, text=True) is None


@pytest.mark.parametrize("bomb", ["one", "nested", "members"])
def test_decompression_bomb_is_cut(bomb):
    inner = gzipped(bytes(10_000_000))
    body = {"one": inner, "nested": gzipped(inner), "members": gzipped(bytes(5000)) * 30}[bomb]
    tracemalloc.start()
    found = decode_body(body, ["gzip, gzip"], 100_000, text=False)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == 100_001
    assert most < 1_000_000


def test_random_bytes_never_raise():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choose = random.Random(seed)
    for _ in range(2000):
        body = bytearray(choose.choice([GZIPPED, zlib.compress(PAGE), deflated(PAGE), PAGE, gzipped(GZIPPED)]))
        for _ in range(choose.randrange(4)):
            body[choose.randrange(len(body))] = choose.randrange(256)
        values = [choose.choice(["gzip", "deflate", "br", "gzip, deflate", "x", "gzip, gzip"])]
        found = decode_body(bytes(body[: choose.randrange(len(body) + 1)]), values, 5000, text=choose.random() < 0.5)
        assert found is None or len(found) <= 5001
