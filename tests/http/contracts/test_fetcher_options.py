"""The contract of the `Fetcher` port: options in the meta of a request, and bodies in pieces (C2)."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from lycosa.core.errors import BodyTooLarge, ConnectionLost, FetchError, StopDownload
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher
from tests.http.contracts.fetching import fetching, get
from tests.servers.misbehaving import Server

# ----------------------------------------------------------------------------------------------------------------- meta


def test_download_maxsize_bounds_the_body(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        url = server.url("/many-links")
        for limit in (1, 1000):
            with pytest.raises(BodyTooLarge):
                await fetcher.fetch(Request(url, meta={"download_maxsize": limit}))
        with pytest.raises(BodyTooLarge):
            await fetcher.fetch(Request(url))
        for limit in (10_000_000, 0):
            assert len((await fetcher.fetch(Request(url, meta={"download_maxsize": limit}))).body) > 100_000
        with pytest.raises(BodyTooLarge):
            await fetcher.fetch(Request(url, meta={"download_maxsize": 0}), max_body=50)

    run(scenario, max_body_bytes=50_000)


@asynccontextmanager
async def address_echo() -> AsyncIterator[str]:
    """A server that answers with the client's address. Yields its URL."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            client = writer.get_extra_info("peername")[0].encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(client), client)
            )
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def test_bindaddress_is_the_local_address(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        async with address_echo() as url:
            metas = [{"bindaddress": each} for each in ("127.0.0.5", ("127.0.0.6", 0), ["127.0.0.5", 0])]
            return [(await fetcher.fetch(Request(url, meta=meta))).body.decode() for meta in [*metas, {}]]

    assert run(scenario) == ["127.0.0.5", "127.0.0.6", "127.0.0.5", "127.0.0.1"]


@pytest.mark.parametrize(
    "meta",
    [
        {"bindaddress": "eth0"},
        {"bindaddress": "if!lo"},
        {"bindaddress": ("127.0.0.1", -1)},
        {"bindaddress": ("127.0.0.1", "x")},
        {"bindaddress": "192.0.2.1"},
        {"download_maxsize": "many"},
        {"download_maxsize": -1},
        {"download_maxsize": True},
        {"download_timeout": "soon"},
    ],
    ids=str,
)
def test_invalid_options_are_refused(run, meta):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(Request(server.url("/echo"), meta=meta))
        assert not caught.value.retry
        assert "\n" not in str(caught.value)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
        return server.paths()

    assert run(scenario) == ["/good"]


def test_login_of_a_proxy_is_sent_to_that_proxy_only(run, caplog):
    caplog.set_level(logging.DEBUG)

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        proxy = server.url("").replace("http://", "http://me%40home:pass%3Aword@").rstrip("/")
        await fetcher.fetch(Request("http://page.example/echo", meta={"proxy": proxy}))
        sent = server.hits[-1].headers["proxy-authorization"]
        assert sent == "Basic " + b64encode(b"me@home:pass:word").decode()
        await fetcher.fetch(Request(server.url("/echo")))
        assert "proxy-authorization" not in server.hits[-1].headers
        for bad in (proxy.replace("http:", "ftp:"), proxy.replace("127.0.0.1", "no-such-host.invalid"), "http://a b@c"):
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(Request("http://page.example/", meta={"proxy": bad}))
            assert "word" not in str(caught.value)
            assert "a b" not in str(caught.value)

    run(scenario)
    assert "word" not in caplog.text


def test_proxy_authorization_is_not_sent_to_the_host(run):
    secret = {"Proxy-Authorization": "Basic c2VjcmV0", "X-Mine": "1"}

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        await fetcher.fetch(Request("http://page.example/", headers=secret, meta={"proxy": server.url()}))
        assert server.hits[-1].headers["proxy-authorization"] == "Basic c2VjcmV0"
        async with fetching(proxy=server.url()) as through_proxy:
            await through_proxy.fetch(Request("http://page.example/", headers=secret))
            assert server.hits[-1].headers["proxy-authorization"] == "Basic c2VjcmV0"
            await through_proxy.fetch(Request("http://page.example/"))
            assert "proxy-authorization" not in server.hits[-1].headers
        await fetcher.fetch(Request(server.url("/echo"), headers=secret))
        assert "proxy-authorization" not in server.hits[-1].headers
        assert server.hits[-1].headers["x-mine"] == "1"

    run(scenario)


def test_proxy_authorization_of_the_settings_is_sent_to_their_proxy_only(run):
    secret, other = "Basic c2VjcmV0", "Basic b3RoZXI="

    async def scenario(_: CurlFetcher, server: Server) -> None:
        headers = {"Proxy-Authorization": secret, "X-Mine": "1"}
        host, page = Request(server.url("/echo")), "http://page.example/"
        async with fetching(headers=headers) as direct, fetching(proxy=server.url(), headers=headers) as proxied:
            for fetcher, request, sent in (
                (direct, host, None),
                (proxied, Request(page), secret),
                (proxied, Request(page, headers={"X-Own": "2"}), secret),
                (proxied, Request(page, headers={"proxy-authorization": other}), other),
                (proxied, Request(page, meta={"download_timeout": 5}), secret),
                (proxied, Request(page, meta={"proxy": server.url().replace("127.0.0.1", "localhost")}), None),
                (proxied, Request(host.url, meta={"proxy": None}), None),
                (proxied, Request(page), secret),
            ):
                await fetcher.fetch(request)
                assert server.hits[-1].headers.get("proxy-authorization") == sent, request
                assert server.hits[-1].headers["x-mine"] == "1"

    run(scenario)


def test_header_fields_of_a_request_are_not_sent_with_the_next(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[dict[str, str]]:
        for headers in ({"X-Once": "1"}, {}, {"X-Twice": "2"}, None):
            await fetcher.fetch(Request(server.url("/echo"), headers=headers))
        return [hit.headers for hit in server.hits]

    first, second, third, fourth = run(scenario, headers={"X-Always": "0"})
    assert (first["x-once"], third["x-twice"]) == ("1", "2")
    assert all(headers["x-always"] == "0" for headers in (first, second, third, fourth))
    assert not {"x-once", "x-twice"} & (second.keys() | fourth.keys())


@pytest.mark.parametrize("usual", ["", "http://usual.example/"])
def test_referer_of_a_request_is_not_sent_with_the_next(run, usual):
    fields = [{"Referer": "http://a.example/"}, {"Referer": "http://b.example/", "X": "1"}, {}, {"X": "1"}]

    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        for headers in fields:
            for _ in range(2):
                await fetcher.fetch(Request(server.url("/echo"), headers=headers))
        await fetcher.fetch(Request(server.url("/echo"), headers=fields[0]))
        await fetcher.fetch(Request(server.url("/echo")))
        return [hit.headers.get("referer", "") for hit in server.hits]

    received = run(scenario, headers={"Referer": usual} if usual else {})
    a, b = "http://a.example/", "http://b.example/"
    assert received == [a, a, b, b, usual, usual, usual, usual, a, usual]


@pytest.mark.parametrize(("path", "begins"), [("/short", b"only this"), ("/cut-chunks", b"")])
def test_truncated_body_is_a_response_without_download_fail_on_dataloss(run, path, begins):
    async def scenario(fetcher: CurlFetcher, server: Server) -> HttpResponse:
        url = server.url(path)
        with pytest.raises(FetchError):
            await fetcher.fetch(Request(url))
        response = await fetcher.fetch(Request(url, meta={"download_fail_on_dataloss": False}))
        async with fetching(fail_on_dataloss=False) as tolerant:
            assert (await tolerant.fetch(Request(url))).body == response.body
            with pytest.raises(FetchError):
                await tolerant.fetch(Request(url, meta={"download_fail_on_dataloss": True}))
            assert not (await tolerant.fetch(Request(server.url("/good")))).partial
        return response

    response = run(scenario)
    assert (response.status, response.partial) == (200, True)
    assert response.body.startswith(begins)


def test_lost_connection_without_a_head_is_an_error(run):
    for path in ("/drop", "/reset"):
        with pytest.raises(ConnectionLost):
            run(get(path, meta={"download_fail_on_dataloss": False}))


# ----------------------------------------------------------------------------------------------------- bodies in pieces


def into(path: str, take: Any, **fields: Any) -> Any:
    async def scenario(fetcher: CurlFetcher, server: Server) -> HttpResponse:
        response = await fetcher.fetch(Request(server.url(path)), into=take, **fields)
        assert (await fetcher.fetch(Request(server.url("/good")))).body
        return response

    return scenario


@pytest.mark.parametrize("path", ["/many-links", "/gzip/gzip", "/good"])
def test_body_is_passed_to_into_in_pieces(run, path):
    chunks: list[bytes] = []
    response = run(into(path, chunks.append))
    assert (response.status, response.body) == (200, b"")
    assert b"".join(chunks) == run(get(path)).body
    assert max(map(len, chunks)) <= 1 << 20


def test_pieces_are_bounded_in_total(run):
    for cut in (False, True):
        chunks: list[bytes] = []
        if cut:
            assert run(into("/endless", chunks.append, max_body=100_001, cut=True)).status == 200
            assert sum(map(len, chunks)) == 100_001
        else:
            with pytest.raises(BodyTooLarge):
                run(into("/endless", chunks.append, max_body=100_001))
            assert sum(map(len, chunks)) <= 100_001


def test_into_may_stop_the_download(run):
    chunks: list[bytes] = []

    def enough(fail: bool) -> Any:
        def take(chunk: bytes) -> None:
            chunks.append(chunk)
            raise StopDownload(fail=fail)

        return take

    response = run(into("/endless", enough(False)))
    assert (response.status, response.body, len(chunks)) == (200, b"", 1)
    with pytest.raises(StopDownload):
        run(into("/endless", enough(True)))
    assert len(chunks) == 2


def test_accept_may_stop_the_download(run):
    def enough(fail: bool) -> Any:
        def accept(*_: Any) -> bool:
            raise StopDownload(fail=fail)

        return accept

    response = run(get("/endless", accept=enough(False)))
    assert (response.status, response.body, response.skipped) == (200, b"", True)
    with pytest.raises(StopDownload):
        run(get("/endless", accept=enough(True)))


def test_error_of_into_is_raised_by_fetch(run):
    with pytest.raises(ZeroDivisionError):
        run(into("/endless", lambda chunk: 1 / 0))


def test_refused_body_is_not_passed_to_into(run):
    chunks: list[bytes] = []
    assert run(into("/good", chunks.append, accept=lambda status, headers: False)).skipped
    assert chunks == []


def test_into_of_a_transfer_gets_no_pieces_of_the_next(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        chunks: list[bytes] = []
        await fetcher.fetch(Request(server.url("/good")), into=chunks.append)
        count = len(chunks)
        echo = await fetcher.fetch(Request(server.url("/echo")))
        assert json.loads(echo.body)["method"] == "GET"
        assert len(chunks) == count

    run(scenario)


def test_body_with_a_wrong_coding_is_passed_to_into_once(run):
    """The page is fetched again, but no piece is passed twice."""
    chunks: list[bytes] = []
    body = run(get("/not-gzip")).body
    assert run(into("/not-gzip", chunks.append)).body == b""
    assert b"".join(chunks) == body
    assert b"Not compressed" in body
