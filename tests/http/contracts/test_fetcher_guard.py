"""The contract of the `Fetcher` port: `public_only` transfers never reach a private address (C2).

All servers of these tests are on loopback addresses, so a predicate decides which of them count as public.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from lycosa.core.errors import ConnectFailed, FetchError, PrivateAddress
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher
from tests.conftest import need
from tests.http.contracts.fetching import fetching, wait_until
from tests.http.contracts.test_fetcher import _has_ipv6, neighbours
from tests.servers.misbehaving import Server, serving

PUBLIC = frozenset({"127.0.0.2", "127.0.0.3"})


async def refused(fetcher: CurlFetcher, url: str, address: str, **more: Any) -> None:
    """Check that the transfer fails with a final error that names the address."""
    with pytest.raises(PrivateAddress, match=address.replace(".", r"\.")) as caught:
        await fetcher.fetch(Request(url, **more), public_only=True)
    assert not caught.value.retry
    assert isinstance(caught.value, FetchError)


def test_loopback_is_refused(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        await refused(fetcher, server.url("/good"), "127.0.0.1")
        await refused(fetcher, server.url("/good").replace("127.0.0.1", "localhost"), "public address")
        await refused(fetcher, server.url("/echo"), "127.0.0.1", method="POST", body=b"x")
        assert (server.connections, server.hits) == (0, [])
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200

    run(scenario)


def test_allowed_address_is_fetched_and_its_connection_reused(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> int:
        for _ in range(5):
            response = await fetcher.fetch(Request(server.url("/good")), public_only=True)
            assert (response.status, response.ip) == (200, "127.0.0.1")
        return server.connections

    assert run(scenario, may_connect=lambda ip: ip == "127.0.0.1") == 1


def test_kept_connection_to_a_private_address_is_not_reused(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        for _ in range(3):
            assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
            await refused(fetcher, server.url("/secret"), "127.0.0.1")
        assert server.paths() == ["/good"] * 3

    run(scenario)


def test_dns_rebinding_is_refused(run):
    """The name is public at the first look-up, but the address of the connection is checked."""

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with neighbours(server) as (base, servers), fetching(may_connect=PUBLIC.__contains__) as guarded:
            url = f"{base}/good"
            assert (await guarded.fetch(Request(url), address="127.0.0.2", public_only=True)).ip == "127.0.0.2"
            await refused(guarded, url, "public address")  # the name localhost leads to a private address
            with pytest.raises(PrivateAddress):
                await guarded.fetch(Request(url), address="127.0.0.1", public_only=True)
            assert (await guarded.fetch(Request(url))).ip == "127.0.0.1"
            await refused(guarded, url, "public address")
            assert (await guarded.fetch(Request(url), address="127.0.0.2", public_only=True)).ip == "127.0.0.2"
            assert [len(each.hits) for each in servers.values()] == [1, 2, 0]

    run(scenario)


def test_public_one_of_several_addresses_is_used(run):
    """Libcurl knows both addresses of localhost."""
    need("IPv6 on the loopback device", _has_ipv6())

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        port = int(server.address.rpartition(":")[2])
        async with serving(host="::1", port=port) as sixth:
            for public in ("127.0.0.1", "::1"):
                async with fetching(may_connect=public.__eq__) as guarded:
                    assert (await guarded.fetch(Request(f"http://localhost:{port}/"), public_only=True)).ip == public
            assert (len(server.hits), len(sixth.hits)) == (1, 1)

    run(scenario)


def test_public_address_that_does_not_answer_is_not_reported_as_private(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(ConnectFailed, match=r"^connection refused$"):
            await fetcher.fetch(Request("http://127.0.0.9:1/"), public_only=True)

    run(scenario, may_connect=lambda ip: True)


@pytest.mark.parametrize(
    "url",
    [
        "http://localhost:{port}/",
        "http://127.0.0.1:{port}/",
        "http://[::1]:{port}/",
        "http://0x7f.1:{port}/",
        "http://me:secret@printer.local/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:10.0.0.1]/",
    ],
)
def test_private_host_in_the_url_is_refused_through_a_proxy(run, url):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        proxy, target = server.url(), url.replace("{port}", server.address.rpartition(":")[2])
        with pytest.raises(PrivateAddress) as caught:
            await fetcher.fetch(Request(target, meta={"proxy": proxy}), public_only=True)
        assert "secret" not in str(caught.value)
        async with fetching(proxy=proxy) as guarded:
            with pytest.raises(PrivateAddress):
                await guarded.fetch(Request(target), public_only=True)
            await guarded.fetch(Request("http://page.example/good"), public_only=True)
        assert server.paths() == ["http://page.example/good"]

    run(scenario)


def test_allowed_address_is_fetched_through_a_proxy(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        await fetcher.fetch(Request("http://10.1.2.3/good", meta={"proxy": server.url()}), public_only=True)
        return server.paths()

    assert run(scenario, may_connect=lambda ip: ip == "10.1.2.3") == ["http://10.1.2.3/good"]


def test_predicate_that_raises_refuses_the_transfer(run):
    def broken(ip: str) -> bool:
        raise ZeroDivisionError

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        with pytest.raises(ZeroDivisionError):
            await fetcher.fetch(Request(server.url("/good")), public_only=True)
        assert server.connections == 0
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
        with pytest.raises(ZeroDivisionError):
            await fetcher.fetch(Request(server.url("/good")), public_only=True)
        assert len(server.hits) == 1

    run(scenario, may_connect=broken)


def test_guarded_and_unguarded_transfers_do_not_mix(run):
    """With few connections no guarded transfer reaches the private server."""

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        rng = random.Random(7)
        async with neighbours(server) as (base, servers):
            async with fetching(connections_max=8, may_connect=PUBLIC.__contains__) as fetcher_:

                async def fetch_one() -> None:
                    guarded, address = rng.random() < 0.5, rng.choice(["127.0.0.1", "127.0.0.2", "127.0.0.3"])
                    kind = "guarded" if guarded else "free"
                    method = rng.choice(["GET", "GET", "POST"])
                    request = Request(f"{base}/slow?ms=1&{kind}", method=method)
                    try:
                        response = await fetcher_.fetch(request, address=address, public_only=guarded)
                        assert response.ip == address
                    except PrivateAddress:
                        assert guarded
                        assert address == "127.0.0.1"

                async def worker() -> None:
                    for _ in range(50):
                        await fetch_one()

                await asyncio.gather(*(worker() for _ in range(8)))
            private = [path for path in server.paths() if "guarded" in path]
            assert private == []
            assert all(len(each.hits) > 50 for each in servers.values())
            await wait_until(lambda: server.open_connections == 0)

    run(scenario)


def test_predicate_is_cached_by_address(run):
    """For kept connections the cache has one entry per address."""
    addresses: list[str] = []

    def may(ip: str) -> bool:
        addresses.append(ip)
        return True

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        for _ in range(20):
            await fetcher.fetch(Request(server.url("/good")), public_only=True)

    run(scenario, may_connect=may)
    assert addresses == ["127.0.0.1"]
