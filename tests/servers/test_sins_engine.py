"""The misbehaving server does what its docstrings say: sins for middlewares, forms, feeds and pipelines (C2, C7)."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import io
import json
import zlib
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.servers import sins_engine
from tests.servers.misbehaving import running, serving
from tests.servers.sins import SINS


class Said(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    @property
    def cookies(self):
        return [line.partition(";")[0] for line in self.headers.get_all("Set-Cookie", [])]


@pytest.fixture(scope="module")
def server():
    with running() as server:
        yield server


@pytest.fixture(autouse=True)
def forgetful(server):
    server.memory.clear()
    server.tries.clear()


@pytest.fixture
def ask(server):
    def asked(target, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(server.address, timeout=60)
        try:
            connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Said(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    return asked


def test_every_sin_has_a_docstring_that_says_whether_it_is_one():
    mine = [each for each in SINS.values() if each.__module__ == sins_engine.__name__]
    assert len(mine) > 25
    for each in mine:
        assert each.__doc__, each


def test_an_identity_for_each_jar(ask):
    one, two = ask("/identity"), ask("/identity")
    assert (one.status, one.headers["Location"], one.cookies) == (302, "/identity", ["who=1"])
    assert two.cookies == ["who=2"]
    assert "You are 2" in ask("/identity/a", cookie="who=2").text
    assert ask("/identity/a", cookie="who=1").status == 200


def test_an_identity_wears_out(ask):
    ask("/identity?uses=1")
    assert ask("/identity?uses=1", cookie="who=1").status == 200
    assert ask("/identity?uses=1", cookie="who=1").cookies == ["who=2"]


def test_cookies_as_they_are_written(ask):
    lines = ["a=1; Max-Age=0", "b=2; Domain=.example.com"]
    said = ask("/set-cookies?" + urlencode({"line": lines}, doseq=True))
    assert said.headers.get_all("Set-Cookie") == lines
    assert json.loads(ask("/show-cookies", cookie="a=1; b=x").body) == {"a": "1", "b": "x"}


def log_in(ask, session="1", **changes):
    fields = {
        "csrf": f"token-1&<{session}>",
        "name": sins_engine.USER,
        "password": sins_engine.PASSWORD,
        "do": "log in",
    }
    return ask("/login", "POST", urlencode(fields | changes), cookie=f"session={session}")


def test_the_login_wants_session_and_token(ask):
    first = ask("/login")
    assert first.cookies == ["session=1"]
    assert 'value="token-1&amp;&lt;1&gt;"' in first.text
    assert ask("/account", cookie="session=1").headers["Location"] == "/login"
    assert log_in(ask, session="2").status == 403
    assert (said := log_in(ask)).status == 303
    assert said.headers["Location"] == "/account"
    assert "Welcome" in ask("/account", cookie="session=1").text
    assert log_in(ask).status == 403  # the token is used up


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"name": "eve"}, {"do": "cancel"}])
def test_the_login_wants_the_right_fields(ask, wrong):
    ask("/login")
    assert log_in(ask, **wrong).headers["Location"] == "/login?wrong=1"
    assert ask("/account", cookie="session=1").status == 302


def test_basic_authentication(ask):
    assert (said := ask("/basic/deeper")).status == 401
    assert said.headers["WWW-Authenticate"].startswith('Basic realm="engine room"')
    assert ask("/basic", authorization="Basic YWRhOmNvdW50JmNvbXB1dGU=").status == 200
    assert ask("/basic", authorization="Basic YTpi").status == 401


def test_redirects_one_after_the_other(ask):
    said = ask("/redirects/307-303", "POST", "a=1")
    assert (said.status, said.headers["Location"]) == (307, "/redirects/303")
    assert (said := ask("/redirects/303")).status == 303
    assert json.loads(ask(said.headers["Location"], "POST", "a=1").body)["method"] == "POST"


def test_redirects_to_anywhere(ask):
    url = "http://127.0.0.2:1/x?y=1"
    said = ask(f"/redirect-to?status=308&url={quote(url)}")
    assert (said.status, said.headers["Location"]) == (308, url)


@pytest.mark.parametrize(
    ("target", "tag"),
    [
        ("", '<head><meta http-equiv="Refresh" content="0; URL=\'/good\'">'),
        ("?after=9&url=/x%26y", "content=\"9; URL='/x&amp;y'\""),
        ("/loop", "URL='/meta-refresh/loop'"),
        ("/noscript", "<noscript><meta"),
        ("/comment", "<!-- <meta"),
    ],
)
def test_meta_refresh(ask, target, tag):
    assert tag in ask("/meta-refresh" + target).text


def test_failures_that_pass(ask):
    target = "/fails?status=429&times=2&after=7"
    said = [ask(target) for _ in range(3)]
    assert [each.status for each in said] == [429, 429, 200]
    assert [each.headers["Retry-After"] for each in said] == ["7", "7", None]
    assert "Retry-After" not in ask("/fails").headers


def test_connections_dropped_that_pass(ask):
    for _ in range(2):
        with pytest.raises(http.client.RemoteDisconnected):
            ask("/drops/2")
    assert ask("/drops/2").status == 200


def test_a_missing_page_has_a_body(ask):
    assert (said := ask("/missing")).status == 404
    assert "/good" in said.text


async def latencies(target, count):
    async with serving() as server:

        async def one():
            loop = asyncio.get_running_loop()
            started = loop.time()
            reader, writer = await asyncio.open_connection(*server.address.split(":"))
            writer.write(f"GET {target} HTTP/1.1\r\n\r\n".encode())
            status = int((await reader.readline()).split()[1])
            writer.close()
            return status, loop.time() - started

        return await asyncio.gather(*(one() for _ in range(count)))


def test_congestion_grows_with_the_requests():
    (_, alone), *_ = asyncio.run(latencies("/congested?ms=100", 1))
    crowd = max(latency for _, latency in asyncio.run(latencies("/congested?ms=100", 4)))
    assert alone >= 0.1
    assert crowd >= 0.4


def test_too_many_at_once_are_refused():
    statuses = [status for status, _ in asyncio.run(latencies("/overloaded?most=2&ms=300", 5))]
    assert sorted(statuses) == [200, 200, 429, 429, 429]


@pytest.mark.parametrize(
    ("way", "coding", "decode"),
    [
        ("gzip", "gzip", gzip.decompress),
        ("deflate", "deflate", zlib.decompress),
        ("raw-deflate", "deflate", lambda data: zlib.decompress(data, -15)),
        ("twice", "gzip, gzip", lambda data: gzip.decompress(gzip.decompress(data))),
        ("wrong", "br", gzip.decompress),
        ("none", "gzip", bytes),
        ("unknown", "klingon", bytes),
    ],
)
def test_codings(ask, way, coding, decode):
    said = ask(f"/coded/{way}")
    assert said.headers["Content-Encoding"] == coding
    assert b"squeezed squeezed" in decode(said.body)


def test_brotli_and_half_a_gzip(ask):
    brotli = pytest.importorskip("brotli")
    assert b"squeezed" in brotli.decompress(ask("/coded/br").body)
    with pytest.raises(EOFError):
        gzip.decompress(ask("/coded/cut").body)


def test_a_cached_page_counts_how_often_it_was_made(ask):
    target = "/cached?etag=v1&modified=1&control=max-age%3D60&vary=Accept-Language&age=5&expires=60"
    first = ask(target, accept_language="de")
    assert "Made 1" in first.text
    assert "<p>de" in first.text
    names = ("ETag", "Cache-Control", "Vary", "Age", "Last-Modified")
    assert [first.headers[name] for name in names] == [
        '"v1"', "max-age=60", "Accept-Language", "5", "Tue, 14 Nov 2023 22:13:20 GMT",
    ]  # fmt: skip
    assert first.headers["Expires"] > ""
    same = ask(target, if_none_match='"v1"')
    assert (same.status, same.body) == (304, b"")
    assert ask(target, if_modified_since=first.headers["Last-Modified"]).status == 304
    assert "Made 2" in ask(target, if_none_match='"v0"', if_modified_since=first.headers["Last-Modified"]).text
    assert "Made 1" in ask("/cached", if_none_match='"v1"', if_modified_since=first.headers["Last-Modified"]).text


SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


def test_sitemaps(ask, server):
    index = ET.fromstring(ask("/sitemap-index.xml").body)
    names = [urlsplit(each.text).path for each in index.iter(f"{SITEMAP}loc")]
    assert names[:2] == ["/sitemap-1.xml", "/sitemap-2.xml.gz"]
    plain, packed = ask(names[0]).body, gzip.decompress(ask(names[1]).body)
    pages = [each.text.strip() for body in (plain, packed) for each in ET.fromstring(body).iter(f"{SITEMAP}loc")]
    assert pages == [server.url(f"/shop/10/product/{number}") for number in range(10)]
    assert "<lastmod>2026-01-10</lastmod>" in packed.decode()
    assert all(ask(urlsplit(each).path).status == 200 for each in pages)
    assert ask("/sitemap.txt").body.startswith(b"\xef\xbb\xbfhttp://")


def test_robots_with_sitemaps(ask, server):
    server.robots = "sitemaps"
    try:
        assert f"Sitemap: {server.url('/sitemap-index.xml')}\nsitemap:/sitemap.txt" in ask("/robots.txt").text
    finally:
        server.robots = "404"


def test_feeds(ask):
    feed = ET.fromstring(ask("/feed.rss").body)
    assert [each.text for each in feed.iter("title")] == ["News", "Item 0", "Item 1", "Item 2"]
    assert [each.text for each in feed.iter("{http://purl.org/dc/elements/1.1/}creator")] == ["Ada 0", "Ada 1", "Ada 2"]
    assert "Ännchen" in ask("/table.csv").body.decode("latin-1")
    with pytest.raises(ET.ParseError):
        ET.fromstring(ask("/products.xml").body)
    assert ask("/products.xml").text.count("</p:product>") == 3
    assert "SYSTEM" in ask("/entities.xml").text


def test_images(ask):
    image = pytest.importorskip("PIL.Image")
    for kind in ("png", "jpg"):
        picture = image.open(io.BytesIO(ask(f"/image/70000.{kind}").body))
        picture.load()
        assert picture.size == (32, 32)
    assert image.open(io.BytesIO(ask("/image/70000.png").body)).getpixel((5, 5)) == (112, 17, 1)
    with pytest.raises(OSError, match="runcated"):
        image.open(io.BytesIO(ask("/image/cut.png").body)).load()
    with pytest.raises(image.UnidentifiedImageError):
        image.open(io.BytesIO(ask("/image/fake.png").body))
    assert ask("/image/fake.png").headers["Content-Type"] == "image/png"
    assert ask("/image/missing.png").status == 404
    bomb = ask("/image/bomb.png").body
    assert len(bomb) < 200_000
    with pytest.raises(image.DecompressionBombError):
        image.open(io.BytesIO(bomb))


def test_a_shop_can_be_crawled_whole(ask):
    seen, todo = set(), ["/shop/45"]
    while todo:
        target = todo.pop()
        if target in seen:
            continue
        seen.add(target)
        text = ask(target).text
        todo += [each.split('"')[0] for each in text.split('href="')[1:]]
    products = {each for each in seen if "/product/" in each}
    assert products == {f"/shop/45/product/{number}" for number in range(45)}
    assert "/image/44.png" in ask("/shop/45/product/44").text
    assert ask("/shop/45/product/45").status == ask("/shop/45/page/4").status == 404


def test_links_that_lead_astray(ask):
    private = ask("/private-links").text
    assert all(f'href="http://{host}:' in private for host in ("127.1", "[::1]", "169.254.169.254", "10.0.0.1"))
    lengths = [len(each.split('"')[0]) for each in ask("/huge-links").text.split('href="')[1:]]
    assert lengths == [2000, 2083, 2084, 8192, 8193, 100_000]


def test_forms(ask):
    assert ask("/forms").text.count("<form") == 3
