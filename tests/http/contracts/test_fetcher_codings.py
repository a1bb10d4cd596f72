"""The contract of the `Fetcher` port for compressed bodies (C8, C10): every coding, wrong labels, damage, bombs."""

from __future__ import annotations

import gzip
import time
import zlib
from base64 import b64decode

import pytest

from lycosa.core.errors import BadResponse, BodyTooLarge
from lycosa.http.core.request import Request
from tests.servers.sins import SINS

PAGE = b"<p>hello</p>" * 200
GZIPPED = gzip.compress(PAGE, mtime=1)
BROTLI = bytes.fromhex("1b5f09f81da7c19a9b1f53cdc3f606a75ed0caa72c0e8c05740800606b18")
BOMB_MAX = 1_000_000
BROTLI_BOMB = zlib.decompress(
    b64decode(
        "eNo7//9/PYMKw6ONDkXv///8/5+/gcVBRqzh3V/7////M05g6DjMdGHv/+f//9szCDEURjDs+v7/z///7A5MCnzcDt//zQeqYvBgOJLI+OLe/8///8"
        "szcDZY6DDc/V3/7/9/ZgVGgXbWBdX/z0Mt2cBQMmrJqCVD0RJ7APFnrt4="
    )
)
"""A GiB of zeros in 809 bytes."""


def bare(body: bytes) -> bytes:
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    return stream.compress(body) + stream.flush()


def nested(times: int) -> bytes:
    body = PAGE
    for _ in range(times):
        body = gzip.compress(body)
    return body


def gibibyte() -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, 31)
    start = stream.compress(b"") + stream.flush(zlib.Z_FULL_FLUSH)
    piece = stream.compress(bytes(1 << 20)) + stream.flush(zlib.Z_FULL_FLUSH)  # does not refer to earlier data
    return start + piece * 1024


RIGHT = {
    "gzip": (GZIPPED, "gzip"),
    "x-gzip": (GZIPPED, "x-gzip"),
    "upper case": (GZIPPED, "GZIP"),
    "deflate": (zlib.compress(PAGE), "deflate"),
    "bare deflate": (bare(PAGE), "deflate"),
    "brotli": (BROTLI, "br"),
    "twice": (nested(2), "gzip, gzip"),
    "twice, in two fields": (nested(2), "gzip\r\nContent-Encoding: gzip"),
    "five times": (nested(5), ", ".join(["gzip"] * 5)),
    "brotli within gzip": (gzip.compress(BROTLI), "br, gzip"),
    "identity": (PAGE, "identity"),
    "no value": (PAGE, ""),
}
FORGIVEN = {
    "plain as gzip": (PAGE, "gzip"),
    "plain as deflate": (PAGE, "deflate"),
    "plain as brotli": (PAGE, "br"),
    "plain as zstd": (PAGE, "zstd"),
    "a charset": (PAGE, "utf-8"),
    "a transfer coding": (PAGE, "chunked"),
    "once, said twice": (GZIPPED, "gzip, gzip"),
    "gzip as brotli": (GZIPPED, "br"),
    "gzip as deflate": (GZIPPED, "deflate"),
    "junk behind": (GZIPPED + b"junk" * 10, "gzip"),
    "two members": (gzip.compress(PAGE[:600]) + gzip.compress(PAGE[600:]), "gzip"),
    "a wrong checksum": (GZIPPED[:-8] + bytes(8), "gzip"),
}
LOST = {
    "damaged": (GZIPPED[:10] + b"\xff" * 50, "gzip"),
    "zstd": (b"\x28\xb5\x2f\xfd\x24\x05\x29\x00\x00hello", "zstd"),
    "six times": (nested(6), ", ".join(["gzip"] * 6)),
    "brotli as gzip": (BROTLI, "gzip"),
}
BOMBS = {
    "gzip": (gibibyte(), "gzip"),
    "gzip twice": (gzip.compress(gibibyte(), 1), "gzip, gzip"),
    "brotli": (BROTLI_BOMB, "br"),
    "gzip, wrongly labelled": (gibibyte(), "br"),
}


@pytest.fixture
def fetch_coded(run, monkeypatch):
    """Return a function that fetches a body with a coding, and returns the response and the number of requests."""

    def fetched(body: bytes, coding: str, **more):
        async def answer(x):
            await x.answer(200, body, Content_Encoding=coding)

        async def fetch(fetcher, server):
            options = {name: more[name] for name in ("max_body", "cut") if name in more}
            request = Request(server.url("/coded"), method=more.get("method", "GET"))
            return await fetcher.fetch(request, **options), len(server.hits)

        monkeypatch.setitem(SINS, "/coded", answer)
        return run(fetch, max_body_bytes=BOMB_MAX)

    return fetched


@pytest.mark.parametrize("name", RIGHT)
def test_every_coding_is_decompressed(fetch_coded, name):
    response, requests = fetch_coded(*RIGHT[name])
    assert (response.body, requests) == (PAGE, 1)


@pytest.mark.parametrize("name", FORGIVEN)
def test_page_with_a_wrong_label_is_returned(fetch_coded, name):
    response, requests = fetch_coded(*FORGIVEN[name])
    assert (response.body, requests) == (PAGE, 2)


@pytest.mark.parametrize("name", LOST)
def test_undecodable_body_is_an_error(fetch_coded, name):
    with pytest.raises(BadResponse, match=r"^cannot be decompressed$") as caught:
        fetch_coded(*LOST[name])
    assert not caught.value.retry


def test_post_is_not_repeated(fetch_coded):
    with pytest.raises(BadResponse):
        fetch_coded(PAGE, "gzip", method="POST")


def test_truncated_stream_is_decompressed_up_to_its_end(fetch_coded):
    response, requests = fetch_coded(GZIPPED[:-4], "gzip")
    assert (response.body, requests) == (PAGE, 1)
    response, _ = fetch_coded(gzip.compress(PAGE, 0)[:500], "gzip")
    assert PAGE.startswith(response.body)


def test_max_body_is_checked_after_decompression(fetch_coded):
    assert fetch_coded(GZIPPED, "gzip", max_body=len(PAGE))[0].body == PAGE
    with pytest.raises(BodyTooLarge, match=f"^body over {len(PAGE) - 1} bytes$"):
        fetch_coded(GZIPPED, "gzip", max_body=len(PAGE) - 1)
    with pytest.raises(BodyTooLarge, match=f"^body over {len(PAGE) - 1} bytes$"):
        fetch_coded(GZIPPED, "br", max_body=len(PAGE) - 1)
    assert fetch_coded(GZIPPED, "br", max_body=100, cut=True)[0].body == PAGE[:100]


@pytest.mark.parametrize("name", BOMBS)
def test_decompression_bomb_costs_little(fetch_coded, name):
    body, coding = BOMBS[name]
    started = time.process_time()
    with pytest.raises(BodyTooLarge, match=f"^body over {BOMB_MAX} bytes$"):
        fetch_coded(body, coding)
    assert time.process_time() - started < 2.0  # decompressing the whole GiB takes several seconds


def test_handle_decompresses_again_after_an_undecoded_transfer(run):
    async def fetch(fetcher, server):
        for _ in range(2):
            assert b"Not compressed" in (await fetcher.fetch(Request(server.url("/not-gzip")))).body
            assert b"squeezed" in (await fetcher.fetch(Request(server.url("/gzip")))).body
        return [hit.headers["accept-encoding"] for hit in server.hits]

    usual, second, *_ = requests = run(fetch)
    assert second == "identity"
    assert requests == [usual, second, usual] * 2
