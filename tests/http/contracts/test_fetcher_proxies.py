"""Failures of real proxies as the fetcher reports them (P1, P2): reason, latency, blame."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lycosa.core.errors import ConnectionLost, FetchError
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.proxies.core.outcomes.outcome import Blame, judge, judge_error
from tests.http.contracts.test_fetcher_tls import certificates, trusted  # noqa: F401
from tests.servers.banning import Banning, BanResponse, banning
from tests.servers.ports import closed_port
from tests.servers.proxies import Dante, Microsocks, RealProxy, Squid, Tinyproxy, running
from tests.servers.proxy import proxying

KINDS = [Tinyproxy, Squid, Microsocks, Dante]
LOGIN = {"user": "ann", "password": "secret"}


async def fetched(url: str, proxy: str, **settings: Any) -> HttpResponse | FetchError:
    fetcher = CurlFetcher(FetchSettings(**{"timeout_s": 10, "connect_timeout_s": 5, **settings}))
    try:
        return await fetcher.fetch(Request(url, meta={"proxy": proxy}))
    except FetchError as error:
        return error
    finally:
        await fetcher.close()


def blame_of(found: HttpResponse | FetchError) -> tuple[str, Blame]:
    outcome = judge_error(found) if isinstance(found, FetchError) else judge(found.status, {}, found.body)
    return outcome.reason, outcome.blame


def run_scenario(scenario: Callable[[Banning], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), banning(**options) as server:
            await scenario(server)

    asyncio.run(main())


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Yield the address of a server that never answers, and may not even accept connections."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as listening:
        yield "{}:{}".format(*listening.getsockname())


@pytest.mark.proxies
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_latency_of_a_new_connection(kind, scheme, certificates):  # noqa: F811
    """A kept connection has no latency, and the time of the response does not count."""

    async def scenario(server: Banning) -> None:
        with running(kind()) as [real]:
            fetcher = CurlFetcher(FetchSettings())
            try:
                request = Request(server.url(), meta={"proxy": real.url})
                first, second = [await fetcher.fetch(request) for _ in range(2)]
                direct = await fetcher.fetch(Request(server.url()))
            finally:
                await fetcher.close()
        assert direct.latency_s is None
        assert first.latency_s is not None
        assert 0 < first.latency_s < first.timings.first_byte_s
        assert first.timings.first_byte_s - first.latency_s >= 0.2
        reuses_connection = kind is not Tinyproxy or scheme == "https"  # Tinyproxy keeps no connection for plain HTTP
        assert (second.latency_s is None) == reuses_connection

    tls = certificates.context("good") if scheme == "https" else None
    run_scenario(scenario, delay_s=0.25, tls=tls, address="127.0.0.1")


@pytest.mark.usefixtures("trusted")
def test_latency_includes_the_time_through_a_slow_proxy(certificates):  # noqa: F811
    async def scenario(server: Banning) -> None:
        async with proxying() as proxy:
            proxy.delay_s = 0.3
            found = await fetched(server.url(), proxy.url)
            assert isinstance(found, HttpResponse)
            assert found.latency_s is not None
            assert 0.3 <= found.latency_s <= found.timings.first_byte_s

    run_scenario(scenario, tls=certificates.context("good"), address="127.0.0.1")


@pytest.mark.proxies
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
def test_site_that_is_down_is_not_blamed_on_the_proxy(kind, scheme):
    async def scenario(_server: Banning) -> None:
        with running(kind()) as [real]:
            for address in (f"127.0.0.1:{closed_port()}", "no-such-host.invalid"):
                found = await fetched(f"{scheme}://{address}/", real.url)
                assert blame_of(found)[1] in {Blame.NOBODY, Blame.MISS}, blame_of(found)
            if isinstance(real, Dante):
                found = await fetched(f"{scheme}://127.0.0.1:{closed_port()}/", real.url_socks4)
                assert blame_of(found) == ("proxy could not connect (failed)", Blame.MISS)
                found = await fetched(f"{scheme}://no-such-host.invalid/", real.url_socks4)
                assert blame_of(found) == ("host not found", Blame.NOBODY)
            if real.scheme == "socks5h":
                found = await fetched(f"{scheme}://127.0.0.1:{closed_port()}/", real.url)
                assert blame_of(found) == ("proxy could not connect (connection refused)", Blame.MISS)

    run_scenario(scenario)


@pytest.mark.proxies
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
def test_site_that_never_answers_is_not_blamed_on_the_proxy(kind, scheme, silent_server):
    async def scenario(_server: Banning) -> None:
        with running(kind()) as [real]:
            found = await fetched(f"{scheme}://{silent_server}/", real.url, timeout_s=0.8, connect_timeout_s=0.5)
            assert blame_of(found)[1] is Blame.MISS, blame_of(found)

    run_scenario(scenario)


@pytest.mark.parametrize("scheme", ["http", "https", "socks4", "socks5h"])
def test_proxy_that_never_answers(scheme, silent_server):
    """It accepts the connection, so it is unknown whether the proxy or the site fails."""

    async def scenario(server: Banning) -> None:
        found = await fetched(server.url(), f"{scheme}://{silent_server}", timeout_s=0.8, connect_timeout_s=0.5)
        assert blame_of(found)[1] is Blame.MISS, blame_of(found)

    run_scenario(scenario)


@pytest.mark.proxies
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", KINDS)
def test_unreachable_proxy_is_blamed(kind, scheme):
    async def scenario(server: Banning) -> None:
        with running(kind()) as [real]:
            real.kill()
            found = await fetched(f"{scheme}://{server.addresses[0]}:{server.ports[0]}/", real.url)
        assert blame_of(found) == ("proxy refused the connection", Blame.PROXY)

    run_scenario(scenario)


@pytest.mark.proxies
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("kind", [Tinyproxy, Squid, Microsocks])
def test_refused_login_is_blamed_on_the_proxy(kind, scheme):
    """For plain HTTP tinyproxy answers a wrong login with 401, which looks like the 401 of a site."""

    async def scenario(server: Banning) -> None:
        real: RealProxy
        with running(kind(**LOGIN)) as [real]:
            url = f"{scheme}://{server.addresses[0]}:{server.ports[0]}/"
            for proxy in (real.url_without_login, real.url.replace("secret", "wrong")):
                found = await fetched(url, proxy)
                if kind is Tinyproxy and scheme == "http" and "wrong" in proxy:
                    assert blame_of(found) == ("401", Blame.NOBODY)
                else:
                    assert blame_of(found)[1] is Blame.PROXY, blame_of(found)

    run_scenario(scenario)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", [Tinyproxy, Squid])
def test_proxy_that_refuses_a_site(kind):
    async def scenario(server: Banning) -> None:
        with running(kind(refuses=server.addresses)) as [real]:
            assert blame_of(await fetched(server.url(), real.url)) == ("403", Blame.SITE)
            tunnel = await fetched(server.url().replace("http:", "https:"), real.url)
            assert blame_of(tunnel) == ("proxy answered 403", Blame.MISS)

    run_scenario(scenario)


def test_other_failures_of_a_proxy():
    async def scenario(server: Banning) -> None:
        async with proxying(exit="127.0.4.4") as proxy:
            proxy.drops = 1
            assert blame_of(await fetched(server.url(), proxy.url)) == ("connection lost within the body", Blame.MISS)
            server.ban("127.0.4.4", BanResponse.CLOSED)
            assert blame_of(await fetched(server.url(), proxy.url))[1] in {Blame.MISS, Blame.NOBODY}
            found = await fetched(server.url(), proxy.url.replace("http", "socks5h"), timeout_s=1)
            assert blame_of(found)[1] is Blame.MISS
            assert blame_of(await fetched(server.url(), "http://no-such-proxy.invalid:1")) == (
                "proxy not found",
                Blame.PROXY,
            )

    run_scenario(scenario)


@pytest.mark.parametrize("cut", ["HTTP/1.1 200 OK\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"])
def test_truncated_head_is_a_lost_connection(cut):
    """Libcurl takes it for a response without a body."""

    async def main() -> Any:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(cut.encode())
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        async with server:
            return await fetched("http://{}:{}/".format(*server.sockets[0].getsockname()), "")

    found = asyncio.run(main())
    assert isinstance(found, ConnectionLost)
    assert str(found) == "connection lost within the head"
