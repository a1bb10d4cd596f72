"""The contract of the `Fetcher` port: what is sent, received and refused (C2).

Each test runs on uvloop and on asyncio's own loop; with `filterwarnings = error` a leaked socket is a failure.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from lycosa.core.errors import BadSetting, ConnectFailed, FetchError
from lycosa.core.headers import Headers
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher
from tests.conftest import need
from tests.http.contracts.fetching import fetching, get
from tests.servers.misbehaving import Server, serving

# --------------------------------------------------------------------------------------------------- successful fetches


def test_page_is_fetched(run):
    response = run(get("/good"))
    assert (response.status, response.http_version, response.ip, response.skipped) == (200, "1.1", "127.0.0.1", False)
    assert response.headers.get("Content-Type") == "text/html; charset=utf-8"
    assert b"All is well." in response.body
    assert response.size_bytes == len(response.body)
    assert response.url.endswith("/good")


def test_timings_are_in_order(run):
    timings = run(get("/slow?ms=50")).timings
    assert 0 < timings.connect_s < timings.first_byte_s <= timings.total_s < 10
    assert timings.first_byte_s >= 0.04
    assert timings.tls_s == 0


@pytest.mark.parametrize("status", [204, 304, 401, 403, 404, 410, 500, 503])
def test_every_status_is_a_response(run, status):
    assert run(get(f"/{status}")).status == status


def test_redirects_are_not_followed(run):
    response = run(get("/redirect-good"))
    assert (response.status, response.headers.get("location")) == (302, "/good")


def test_empty_body(run):
    response = run(get("/empty"))
    assert (response.status, response.body) == (200, b"")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_bodies_are_decompressed_and_the_transferred_bytes_counted(run, coding):
    response = run(get(f"/gzip/{coding}"))
    assert b"squeezed squeezed" in response.body
    assert response.size_bytes < len(response.body) / 10


def test_head_is_that_of_the_final_response(run):
    headers = run(get("/1xx")).headers
    assert headers.getlist("content-type") == ["text/html; charset=utf-8"]
    assert headers.get("x-final") == "yes"
    assert "link" not in headers


def test_trailers_do_not_count_as_headers(run):
    response = run(get("/trailers"))
    assert (response.body, response.headers.getlist("content-type")) == (b"hello", ["text/html; charset=utf-8"])
    assert "x-sum" not in response.headers


def test_connections_are_reused(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> int:
        for _ in range(20):
            await fetcher.fetch(Request(server.url("/good")))
        return server.connections

    assert run(scenario) == 1


def test_connection_closed_between_two_requests_is_replaced(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[int]:
        return [(await fetcher.fetch(Request(server.url("/early-close-keepalive")))).status for _ in range(10)]

    assert run(scenario) == [200] * 10


def test_concurrent_transfers_get_their_own_responses(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[HttpResponse]:
        paths = [f"/tree/2000/{number}" for number in range(500)]
        return await asyncio.gather(*(fetcher.fetch(Request(server.url(path))) for path in paths))

    responses = run(scenario, connections_max=50)
    for number, response in enumerate(responses):
        assert f"<h1>Page {number}</h1>".encode() in response.body


def test_connections_per_host_are_limited(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> int:
        await asyncio.gather(*(fetcher.fetch(Request(server.url("/slow?ms=10"))) for _ in range(20)))
        return server.connections

    assert run(scenario, connections_per_host_max=3) == 3


# ------------------------------------------------------------------------------------------------------------- requests


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "REPORT"])
@pytest.mark.parametrize("body", [b"", b"a=1\r\n\0\xff"])
def test_methods_and_bodies_are_sent(run, method, body):
    echo = json.loads(run(get("/echo", method=method, body=body)).body)
    assert (echo["method"], bytes.fromhex(echo["body"])) == (method, body)
    assert "expect" not in echo["headers"]
    assert "content-type" not in echo["headers"]


def test_head_response_has_headers_and_no_body(run):
    response = run(get("/good", method="HEAD"))
    assert (response.status, response.body) == (200, b"")
    assert int(response.headers["content-length"]) > 0


def test_headers_of_the_request_override_those_of_the_settings(run):
    scenario = get("/echo", headers={"X-One": "1", "Accept": "text/plain", "X-Empty": ""})
    headers = json.loads(run(scenario, user_agent="spider/1", headers={"x-one": "0", "X-Two": "2"}).body)["headers"]
    assert (headers["x-one"], headers["x-two"], headers["accept"], headers["x-empty"]) == ("1", "2", "text/plain", "")
    assert headers["user-agent"] == "spider/1"
    assert "gzip" in headers["accept-encoding"]


def test_options_of_a_request_do_not_apply_to_the_next(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> dict[str, Any]:
        special = Request(server.url("/echo"), method="PUT", body=b"x", headers={"X-Once": "1"})
        await fetcher.fetch(special.replace(meta={"download_timeout": 9}))
        return json.loads((await fetcher.fetch(Request(server.url("/echo")))).body)

    echo = run(scenario)
    assert (echo["method"], echo["body"]) == ("GET", "")
    assert "x-once" not in echo["headers"]


def test_params_are_merged_into_the_url(run):
    echo = json.loads(run(get("/echo?a=1#part", params={"b": "ü &"})).body)
    assert echo["target"] == "/echo?a=1&b=%C3%BC+%26"


def test_url_that_is_not_ascii(run):
    assert json.loads(run(get("/echo?ü")).body)["target"] == "/echo?%C3%BC"


def test_path_is_sent_unchanged(run):
    assert json.loads(run(get("/echo/../echo/./x")).body)["target"] == "/echo/../echo/./x"


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-A": "1\r\nX-B: 2"}},
        {"headers": {"X-A: 1\r\nX-B": "2"}},
        {"headers": {"X-A": "1\nX-B: 2"}},
        {"headers": {"": "2"}},
        {"method": "GET / HTTP/1.1\r\nX-B: 2\r\n\r\nGET"},
        {"method": ""},
        {"meta": {"download_timeout": "soon"}},
        {"meta": {"download_timeout": -1}},
        {"meta": {"proxy": "ftp://127.0.0.1:1"}},
    ],
    ids=str,
)
def test_invalid_request_is_refused(run, fields):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(Request(server.url("/echo"), **fields))
        assert not caught.value.retry
        assert "\n" not in str(caught.value)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
        return server.paths()

    assert run(scenario) == ["/good"]


@pytest.mark.parametrize(
    "url", ["ftp://127.0.0.1/", "file:///etc/passwd", "gopher://127.0.0.1:1/", "http://", "", "\0"]
)
def test_only_http_is_fetched(run, url):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(FetchError) as caught:
            await fetcher.fetch(Request(url))
        assert not caught.value.retry

    run(scenario)


def test_invalid_settings_are_refused_at_once(run):
    with pytest.raises(BadSetting, match="X-A"):
        run(get("/good"), headers={"X-A": "1\r\nX-B: 2"})


def test_page_through_a_proxy(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        proxied = Request("http://no-such-host.invalid/good")
        assert (await fetcher.fetch(proxied)).status == 200
        assert (await fetcher.fetch(Request(server.url("/echo"), meta={"proxy": ""}))).status == 200
        return server.paths()

    async def main(_: CurlFetcher, server: Server) -> list[str]:
        async with fetching(proxy=server.url()) as fetcher:
            return await scenario(fetcher, server)

    assert run(main) == ["http://no-such-host.invalid/good", "/echo"]


def test_proxy_in_the_meta_of_a_request(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        await fetcher.fetch(Request("http://no-such-host.invalid/good", meta={"proxy": server.url()}))
        return server.paths()

    assert run(scenario) == ["http://no-such-host.invalid/good"]


def test_proxy_that_refuses_the_connection(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(ConnectFailed, match=r"^proxy answered 403$"):
            await fetcher.fetch(Request("https://no-such-host.invalid/", meta={"proxy": server.url()}))

    run(scenario)


def test_proxies_of_the_environment_are_not_used(run, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert run(get("/good")).status == 200


# -------------------------------------------------------------------------------------------------------------- address


@asynccontextmanager
async def neighbours(server: Server) -> AsyncIterator[tuple[str, dict[str, Server]]]:
    """Two more servers on the port of `server`. Yield `localhost` with that port, and all three by address."""
    port = int(server.address.rpartition(":")[2])
    async with serving(host="127.0.0.2", port=port) as second, serving(host="127.0.0.3", port=port) as third:
        yield f"http://localhost:{port}", {"": server, "127.0.0.2": second, "127.0.0.3": third}


def test_fetcher_connects_to_the_given_address_and_sends_the_name(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        url = server.url("/echo").replace("127.0.0.1", "no-such-host.invalid")
        response = await fetcher.fetch(Request(url), address="127.0.0.1")
        echo = json.loads(response.body)
        assert (response.url, response.ip, echo["target"]) == (url, "127.0.0.1", "/echo")
        assert echo["headers"]["host"] == url.split("/")[2]
        with pytest.raises(ConnectFailed, match=r"^host not found$"):  # an address applies to its own request only
            await fetcher.fetch(Request(url))

    run(scenario)


def test_one_name_at_several_addresses(run):
    order = ["127.0.0.2", "127.0.0.2", "127.0.0.3", "", "127.0.0.2", "127.0.0.3", "", "", "127.0.0.3", "127.0.0.2"]

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with neighbours(server) as (base, servers), fetching() as fetcher_:
            for number, address in enumerate(order):
                response = await fetcher_.fetch(Request(f"{base}/echo?{number}"), address=address)
                assert response.ip == (address or "127.0.0.1")
            for address, each in servers.items():
                assert each.paths() == [
                    f"/echo?{number}" for number, selected in enumerate(order) if selected == address
                ]
                assert each.connections == 1

    run(scenario)


def test_one_name_at_several_addresses_concurrently(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with neighbours(server) as (base, servers), fetching(connections_max=20) as fetcher_:

            async def fetch_number(number: int) -> None:
                address = list(servers)[number % 3]
                more = {"method": "POST", "body": b"x"} if number % 5 == 0 else {}
                response = await fetcher_.fetch(Request(f"{base}/slow?ms=1&{number}", **more), address=address)
                assert response.ip == (address or "127.0.0.1")

            await asyncio.gather(*map(fetch_number, range(300)))
            assert [len(each.hits) for each in servers.values()] == [100, 100, 100]

    run(scenario)


def test_connection_is_not_reused_for_another_address(run):
    """Nothing listens at 127.0.0.9: only a kept connection or a cached name could lead to a response."""

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with neighbours(server) as (base, _):
            for address in ("", "127.0.0.2", "127.0.0.9", "127.0.0.2", "", "127.0.0.9"):
                request = fetcher.fetch(Request(f"{base}/good"), address=address)
                if address != "127.0.0.9":
                    assert (await request).status == 200
                    continue
                with pytest.raises(ConnectFailed, match=r"^connection refused$"):
                    await request

    run(scenario)


def test_address_is_reset_on_a_handle_with_special_options(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with neighbours(server) as (base, servers), fetching() as fetcher_:
            for address in ("127.0.0.2", ""):
                for method in ("PUT", "GET"):
                    await fetcher_.fetch(Request(f"{base}/echo", method=method), address=address)
            assert [len(each.hits) for each in servers.values()] == [2, 2, 0]

    run(scenario)


@pytest.mark.parametrize("name", ["no-such-host.invalid", "[::1]"])
def test_ipv6_address(run, name):
    need("IPv6 on the loopback device", _has_ipv6())

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with serving(host="::1") as ipv6_server, fetching() as fetcher_:
            port = ipv6_server.address.rpartition(":")[2]
            response = await fetcher_.fetch(Request(f"http://{name}:{port}/echo"), address="::1")
            assert (response.ip, json.loads(response.body)["headers"]["host"]) == ("::1", f"{name}:{port}")

    run(scenario)


def _has_ipv6() -> bool:
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.parametrize(
    "address", ["localhost", "127.1", "127.0.0.1:80", "[::1]", "::1::", "\0", " ", "127.0.0.1\r\n"]
)
def test_invalid_address_is_refused(run, address):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(FetchError, match="is not an IP address to connect to") as caught:
            await fetcher.fetch(Request(server.url("/good")), address=address)
        assert not caught.value.retry
        assert "\n" not in str(caught.value)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200

    run(scenario)


def test_address_is_ignored_through_a_proxy(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        url, proxied = "http://no-such-host.invalid/good", {"proxy": server.url()}
        await fetcher.fetch(Request(url, meta=proxied), address="127.0.0.9")
        async with fetching(proxy=server.url()) as fetcher_:
            await fetcher_.fetch(Request(url), address="127.0.0.9")
            await fetcher_.fetch(Request(server.url("/direct").replace("127.0.0.1", "localhost"), meta={"proxy": ""}))
            with pytest.raises(ConnectFailed):
                await fetcher_.fetch(Request(server.url("/direct"), meta={"proxy": ""}), address="127.0.0.9")
        return server.paths()

    assert run(scenario) == ["http://no-such-host.invalid/good"] * 2 + ["/direct"]


# --------------------------------------------------------------------------------------------------------------- accept


def test_accept_is_called_once_with_status_and_headers(run):
    calls: list[tuple[int, str]] = []

    def accept(status: int, headers: Headers) -> bool:
        calls.append((status, headers.get("content-type")))
        return True

    response = run(get("/many-links", accept=accept))
    assert len(response.body) > 100_000
    assert calls == [(200, "text/html; charset=utf-8")]


@pytest.mark.parametrize("path", ["/good", "/empty", "/204", "/video", "/endless", "/gzip-bomb", "/1xx", "/trailers"])
def test_refused_body_is_not_read(run, path):
    response = run(get(path, accept=lambda status, headers: False))
    assert (response.skipped, response.body) == (True, b"")
    assert response.status in {200, 204}
    assert response.size_bytes < 4 * 2**20


def test_connection_survives_a_small_refused_body(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> int:
        for _ in range(3):
            assert (await fetcher.fetch(Request(server.url("/good")), accept=lambda *_: False)).skipped
        return server.connections

    assert run(scenario) == 1


@pytest.mark.parametrize("path", ["/good", "/empty"])
def test_error_of_accept_is_raised_by_fetch(run, path):
    def accept(status: int, headers: Headers) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(get(path, accept=accept))
