"""The metrics page over HTTP: responses and bounds (F8)."""

from __future__ import annotations

import asyncio
import http.client
from contextlib import suppress

import pytest

from lycosa.core.errors import StateError, UsageError
from lycosa.infra.web.metrics_page import parse_address, serve_metrics
from lycosa.infra.web.small_site import CONNECTIONS_MAX, HEAD_MAX


async def exchange(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    answer = b""
    with suppress(ConnectionResetError):  # the server closed the connection before it read the request
        answer = await reader.read()
    await close(writer)
    return answer


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


async def page() -> bytes:
    return b"x 1\n"


def response_to(request: bytes, page_=page) -> bytes:
    async def scenario() -> bytes:
        async with serve_metrics("0", page_) as url:
            return await exchange(int(url.rpartition(":")[2].partition("/")[0]), request)

    return asyncio.run(scenario())


def test_the_page_can_be_read_with_the_standard_library():
    async def scenario() -> tuple[int, str | None, bytes]:
        async with serve_metrics("127.0.0.1:0", page) as url:
            return await asyncio.to_thread(get, url.removeprefix("http://").partition("/")[0])

    def get(host: str) -> tuple[int, str | None, bytes]:
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", "/metrics?x=1")
        answer = connection.getresponse()
        found = answer.status, answer.getheader("content-type"), answer.read()
        connection.close()
        return found

    assert asyncio.run(scenario()) == (200, "text/plain; version=0.0.4; charset=utf-8", b"x 1\n")


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (b"GET /metrics HTTP/1.1\r\n\r\n", b"200 OK", b"x 1\n"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200 OK", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found", b"no such page: see /metrics\n"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed", b"GET only\n"),
        (b"GET /metrics\r\n\r\n", b"400 Bad Request", b"bad request\n"),
        (b"\x16\x03\x01\x02\r\n\r\n", b"400 Bad Request", b"bad request\n"),
        (b"GET /" + b"x" * HEAD_MAX + b" HTTP/1.1\r\n\r\n", b"400 Bad Request", b"bad request\n"),
    ],
)
def test_each_kind_of_request_gets_its_status_and_body(request_, status, body):
    head, _, found = response_to(request_).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert found == body


def test_an_error_of_the_page_is_a_503():
    async def failing_page() -> bytes:
        raise StateError("no answer for 60 s")

    assert response_to(b"GET /metrics HTTP/1.1\r\n\r\n", failing_page).startswith(
        b"HTTP/1.1 503 Service Unavailable\r\n"
    )


def test_silent_clients_are_disconnected_after_a_while_and_their_number_is_limited(monkeypatch):
    def wait_at_most(seconds: float) -> None:
        monkeypatch.setattr("lycosa.infra.web.http_server.REQUEST_MAX_S", seconds)

    async def scenario() -> tuple[bytes, bytes]:
        async with serve_metrics("0", page) as url:
            port = int(url.rpartition(":")[2].partition("/")[0])
            wait_at_most(0.2)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            await close(writer)
            wait_at_most(60.0)
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX)]
            refused = await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            for reader, writer in silent:
                writer.write_eof()
                await reader.read()
            answered = await exchange(port, b"GET /metrics HTTP/1.1\r\n\r\n")
            for _, writer in silent:
                await close(writer)
            return refused, answered

    refused, answered = asyncio.run(scenario())
    assert refused == b""
    assert answered.endswith(b"x 1\n")


@pytest.mark.parametrize("address", ["", "x", "127.0.0.1", "70000", "127.0.0.1:-1", "٣"])
def test_an_invalid_address_is_a_usage_error(address):
    with pytest.raises(UsageError, match="write a port such as 9464"):
        parse_address(address)


def test_addresses_are_parsed():
    assert parse_address("9464") == ("127.0.0.1", 9464)
    assert parse_address("0.0.0.0:9464") == ("0.0.0.0", 9464)
    assert parse_address("[::1]:9464") == ("::1", 9464)


def test_an_address_open_to_other_machines_needs_allow_remote():
    async def url(*, allow_remote: bool) -> str:
        async with serve_metrics("0.0.0.0:0", page, allow_remote=allow_remote) as found:
            return found

    with pytest.raises(UsageError, match=r"^--metrics 0\.0\.0\.0:0 would be open to other machines: add "):
        asyncio.run(url(allow_remote=False))
    assert asyncio.run(url(allow_remote=True)).endswith("/metrics (open to other machines, without a password)")


def test_an_address_that_cannot_be_resolved_is_an_error():
    async def scenario() -> None:
        async with serve_metrics("..:9464", page):
            pass

    with pytest.raises(UsageError, match=r"--metrics \.\.:9464: "):
        asyncio.run(scenario())


def test_an_address_in_use_is_an_error():
    async def scenario() -> None:
        async with serve_metrics("0", page) as url, serve_metrics(url.split("/")[2], page):
            pass

    with pytest.raises(StateError, match=r"^--metrics \S+: cannot listen there: address already in use$"):
        asyncio.run(scenario())
