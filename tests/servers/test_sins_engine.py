"""The misbehaving server behaves as its docstrings say: middlewares, forms, feeds and pipelines (C2, C7)."""

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


class TextResponse(NamedTuple):
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
def reset_state(server):
    server.memory.clear()
    server.tries.clear()


@pytest.fixture
def send(server):
    def send_request(target, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(server.address, timeout=60)
        try:
            connection.request(method, target, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return TextResponse(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    return send_request


def test_every_sin_has_a_docstring():
    sins = [each for each in SINS.values() if each.__module__ == sins_engine.__name__]
    assert len(sins) > 25
    for each in sins:
        assert each.__doc__, each


def test_each_cookie_jar_gets_its_own_identity(send):
    first, second = send("/identity"), send("/identity")
    assert (first.status, first.headers["Location"], first.cookies) == (302, "/identity", ["who=1"])
    assert second.cookies == ["who=2"]
    assert "You are 2" in send("/identity/a", cookie="who=2").text
    assert send("/identity/a", cookie="who=1").status == 200


def test_an_identity_expires_after_its_uses(send):
    send("/identity?uses=1")
    assert send("/identity?uses=1", cookie="who=1").status == 200
    assert send("/identity?uses=1", cookie="who=1").cookies == ["who=2"]


def test_cookie_lines_are_sent_unchanged(send):
    lines = ["a=1; Max-Age=0", "b=2; Domain=.example.com"]
    response = send("/set-cookies?" + urlencode({"line": lines}, doseq=True))
    assert response.headers.get_all("Set-Cookie") == lines
    assert json.loads(send("/show-cookies", cookie="a=1; b=x").body) == {"a": "1", "b": "x"}


def log_in(send, session="1", **changes):
    fields = {
        "csrf": f"token-1&<{session}>",
        "name": sins_engine.USER,
        "password": sins_engine.PASSWORD,
        "do": "log in",
    }
    return send("/login", "POST", urlencode(fields | changes), cookie=f"session={session}")


def test_the_login_requires_the_session_and_its_token(send):
    first = send("/login")
    assert first.cookies == ["session=1"]
    assert 'value="token-1&amp;&lt;1&gt;"' in first.text
    assert send("/account", cookie="session=1").headers["Location"] == "/login"
    assert log_in(send, session="2").status == 403
    assert (response := log_in(send)).status == 303
    assert response.headers["Location"] == "/account"
    assert "Welcome" in send("/account", cookie="session=1").text
    assert log_in(send).status == 403  # the token is used up


@pytest.mark.parametrize("wrong", [{"password": "guess"}, {"name": "eve"}, {"do": "cancel"}])
def test_the_login_requires_the_right_fields(send, wrong):
    send("/login")
    assert log_in(send, **wrong).headers["Location"] == "/login?wrong=1"
    assert send("/account", cookie="session=1").status == 302


def test_basic_authentication(send):
    assert (response := send("/basic/deeper")).status == 401
    assert response.headers["WWW-Authenticate"].startswith('Basic realm="engine room"')
    assert send("/basic", authorization="Basic YWRhOmNvdW50JmNvbXB1dGU=").status == 200
    assert send("/basic", authorization="Basic YTpi").status == 401


def test_redirects_lead_through_the_given_statuses_to_a_page(send):
    response = send("/redirects/307-303", "POST", "a=1")
    assert (response.status, response.headers["Location"]) == (307, "/redirects/303")
    assert (response := send("/redirects/303")).status == 303
    assert json.loads(send(response.headers["Location"], "POST", "a=1").body)["method"] == "POST"


def test_redirects_to_any_url(send):
    url = "http://127.0.0.2:1/x?y=1"
    response = send(f"/redirect-to?status=308&url={quote(url)}")
    assert (response.status, response.headers["Location"]) == (308, url)


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
def test_meta_refresh(send, target, tag):
    assert tag in send("/meta-refresh" + target).text


def test_temporary_failures(send):
    target = "/fails?status=429&times=2&after=7"
    responses = [send(target) for _ in range(3)]
    assert [each.status for each in responses] == [429, 429, 200]
    assert [each.headers["Retry-After"] for each in responses] == ["7", "7", None]
    assert "Retry-After" not in send("/fails").headers


def test_temporarily_dropped_connections(send):
    for _ in range(2):
        with pytest.raises(http.client.RemoteDisconnected):
            send("/drops/2")
    assert send("/drops/2").status == 200


def test_a_missing_page_has_a_body(send):
    assert (response := send("/missing")).status == 404
    assert "/good" in response.text


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


def test_latency_grows_with_concurrent_requests():
    (_, alone), *_ = asyncio.run(latencies("/congested?ms=100", 1))
    crowd = max(latency for _, latency in asyncio.run(latencies("/congested?ms=100", 4)))
    assert alone >= 0.1
    assert crowd >= 0.4


def test_too_many_concurrent_requests_are_refused():
    statuses = [status for status, _ in asyncio.run(latencies("/overloaded?most=2&until=5", 5))]
    assert sorted(statuses) == [200, 200, 429, 429, 429]


@pytest.mark.parametrize(
    ("path", "coding", "decode"),
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
def test_codings(send, path, coding, decode):
    response = send(f"/coded/{path}")
    assert response.headers["Content-Encoding"] == coding
    assert b"squeezed squeezed" in decode(response.body)


def test_brotli_and_a_truncated_gzip(send):
    brotli = pytest.importorskip("brotli")
    assert b"squeezed" in brotli.decompress(send("/coded/br").body)
    with pytest.raises(EOFError):
        gzip.decompress(send("/coded/cut").body)


def test_a_cached_page_counts_its_generations(send):
    target = "/cached?etag=v1&modified=1&control=max-age%3D60&vary=Accept-Language&age=5&expires=60"
    first = send(target, accept_language="de")
    assert "Made 1" in first.text
    assert "<p>de" in first.text
    names = ("ETag", "Cache-Control", "Vary", "Age", "Last-Modified")
    assert [first.headers[name] for name in names] == [
        '"v1"', "max-age=60", "Accept-Language", "5", "Tue, 14 Nov 2023 22:13:20 GMT",
    ]  # fmt: skip
    assert first.headers["Expires"] > ""
    unchanged = send(target, if_none_match='"v1"')
    assert (unchanged.status, unchanged.body) == (304, b"")
    assert send(target, if_modified_since=first.headers["Last-Modified"]).status == 304
    assert "Made 2" in send(target, if_none_match='"v0"', if_modified_since=first.headers["Last-Modified"]).text
    assert "Made 1" in send("/cached", if_none_match='"v1"', if_modified_since=first.headers["Last-Modified"]).text


SITEMAP = "{http://www.sitemaps.org/schemas/sitemap/0.9}"


def test_sitemaps(send, server):
    index = ET.fromstring(send("/sitemap-index.xml").body)
    names = [urlsplit(each.text).path for each in index.iter(f"{SITEMAP}loc")]
    assert names[:2] == ["/sitemap-1.xml", "/sitemap-2.xml.gz"]
    plain, packed = send(names[0]).body, gzip.decompress(send(names[1]).body)
    pages = [each.text.strip() for body in (plain, packed) for each in ET.fromstring(body).iter(f"{SITEMAP}loc")]
    assert pages == [server.url(f"/shop/10/product/{number}") for number in range(10)]
    assert "<lastmod>2026-01-10</lastmod>" in packed.decode()
    assert all(send(urlsplit(each).path).status == 200 for each in pages)
    assert send("/sitemap.txt").body.startswith(b"\xef\xbb\xbfhttp://")


def test_robots_with_sitemaps(send, server):
    server.robots = "sitemaps"
    try:
        assert f"Sitemap: {server.url('/sitemap-index.xml')}\nsitemap:/sitemap.txt" in send("/robots.txt").text
    finally:
        server.robots = "404"


def test_feeds(send):
    feed = ET.fromstring(send("/feed.rss").body)
    assert [each.text for each in feed.iter("title")] == ["News", "Item 0", "Item 1", "Item 2"]
    assert [each.text for each in feed.iter("{http://purl.org/dc/elements/1.1/}creator")] == ["Ada 0", "Ada 1", "Ada 2"]
    assert "Ännchen" in send("/table.csv").body.decode("latin-1")
    with pytest.raises(ET.ParseError):
        ET.fromstring(send("/products.xml").body)
    assert send("/products.xml").text.count("</p:product>") == 3
    assert "SYSTEM" in send("/entities.xml").text


def test_images(send):
    image = pytest.importorskip("PIL.Image")
    for kind in ("png", "jpg"):
        picture = image.open(io.BytesIO(send(f"/image/70000.{kind}").body))
        picture.load()
        assert picture.size == (32, 32)
    assert image.open(io.BytesIO(send("/image/70000.png").body)).getpixel((5, 5)) == (112, 17, 1)
    with pytest.raises(OSError, match="runcated"):
        image.open(io.BytesIO(send("/image/cut.png").body)).load()
    with pytest.raises(image.UnidentifiedImageError):
        image.open(io.BytesIO(send("/image/fake.png").body))
    assert send("/image/fake.png").headers["Content-Type"] == "image/png"
    assert send("/image/missing.png").status == 404
    bomb = send("/image/bomb.png").body
    assert len(bomb) < 200_000
    with pytest.raises(image.DecompressionBombError):
        image.open(io.BytesIO(bomb))


def test_a_shop_can_be_crawled_completely(send):
    visited, todo = set(), ["/shop/45"]
    while todo:
        target = todo.pop()
        if target in visited:
            continue
        visited.add(target)
        text = send(target).text
        todo += [each.split('"')[0] for each in text.split('href="')[1:]]
    products = {each for each in visited if "/product/" in each}
    assert products == {f"/shop/45/product/{number}" for number in range(45)}
    assert "/image/44.png" in send("/shop/45/product/44").text
    assert send("/shop/45/product/45").status == send("/shop/45/page/4").status == 404


def test_private_and_huge_links(send):
    private = send("/private-links").text
    assert all(f'href="http://{host}:' in private for host in ("127.1", "[::1]", "169.254.169.254", "10.0.0.1"))
    lengths = [len(each.split('"')[0]) for each in send("/huge-links").text.split('href="')[1:]]
    assert lengths == [2000, 2083, 2084, 8192, 8193, 100_000]


def test_forms(send):
    assert send("/forms").text.count("<form") == 3
