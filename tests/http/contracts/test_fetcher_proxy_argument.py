"""The contract of the `Fetcher` port: the argument `proxy` of `fetch` (C2, P2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from lycosa.core.errors import FetchError, PrivateAddress
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher
from tests.http.contracts.fetching import fetching
from tests.servers.misbehaving import Server, serving

DIRECT, OF_SETTINGS, OF_META, OF_ARGUMENT = "direct", "settings", "meta", "argument"


class Servers(NamedTuple):
    """A server, and three servers used as proxies, which answer requests for absolute URLs themselves."""

    host: Server
    settings: Server
    meta: Server
    argument: Server

    def take_routes(self) -> list[str]:
        """Return by which server each request was answered, and forget the requests."""
        hits = [(hit.at, name) for name, server in zip(NAMES, self, strict=True) for hit in server.hits]
        for server in self:
            server.hits.clear()
        return [name for _, name in sorted(hits)]


NAMES = (DIRECT, OF_SETTINGS, OF_META, OF_ARGUMENT)


@asynccontextmanager
async def ways(host: Server) -> AsyncIterator[Servers]:
    async with serving() as settings, serving() as meta, serving() as argument:
        yield Servers(host, settings, meta, argument)


@pytest.mark.parametrize(
    ("argument", "meta", "settings", "way"),
    [
        (None, "not set", "", DIRECT),
        (None, "not set", OF_SETTINGS, OF_SETTINGS),
        (None, OF_META, "", OF_META),
        (None, OF_META, OF_SETTINGS, OF_META),
        (None, "", OF_SETTINGS, DIRECT),
        (None, None, OF_SETTINGS, DIRECT),
        (OF_ARGUMENT, "not set", "", OF_ARGUMENT),
        (OF_ARGUMENT, "not set", OF_SETTINGS, OF_ARGUMENT),
        (OF_ARGUMENT, OF_META, OF_SETTINGS, OF_ARGUMENT),
        (OF_ARGUMENT, "", OF_SETTINGS, OF_ARGUMENT),
        (OF_ARGUMENT, None, "", OF_ARGUMENT),
        ("", "not set", OF_SETTINGS, DIRECT),
        ("", OF_META, "", DIRECT),
        ("", OF_META, OF_SETTINGS, DIRECT),
        (OF_SETTINGS, OF_META, OF_SETTINGS, OF_SETTINGS),
    ],
)
def test_argument_overrides_meta_which_overrides_settings(run, argument, meta, settings, way):
    async def scenario(_: CurlFetcher, server: Server) -> None:
        async with ways(server) as servers:
            urls = {name: each.url("") for name, each in zip(NAMES, servers, strict=True)}
            proxies = {"": "", None: None, **urls}
            request = Request(server.url("/good"))
            if meta != "not set":
                request.meta["proxy"] = proxies[meta]
            base = dict(request.meta)
            async with fetching(proxy=proxies[settings]) as fetcher_:
                assert (await fetcher_.fetch(request, proxy=proxies[argument])).status == 200
            assert servers.take_routes() == [way]
            assert request.meta == base

    run(scenario)


def test_argument_applies_to_one_transfer(run):
    """The transfers before and after this one do not use the proxy, whatever options their requests have."""
    referer = {"Referer": "http://a.example/"}
    kinds: list[dict[str, Any]] = [
        {},
        {"headers": referer},
        {"headers": {**referer, "X-Mine": "1"}},
        {"meta": {"download_timeout": 5}},
        {"method": "POST", "body": b"a=1"},
    ]

    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with ways(server) as servers:
            for kind in kinds:
                for proxy, way in (
                    (None, DIRECT),
                    (servers.argument.url(""), OF_ARGUMENT),
                    (None, DIRECT),
                    ("", DIRECT),
                ):
                    await fetcher.fetch(Request(server.url("/echo"), **kind), proxy=proxy)
                    [hit] = servers.host.hits + servers.argument.hits
                    expected = kind.get("headers", {})
                    assert hit.headers.get("referer") == expected.get("Referer"), (kind, proxy)
                    assert hit.headers.get("x-mine") == expected.get("X-Mine"), (kind, proxy)
                    assert (hit.method, hit.body) == (kind.get("method", "GET"), kind.get("body", b""))
                    assert servers.take_routes() == [way], (kind, proxy)

    run(scenario)


def test_other_meta_options_apply_together_with_the_argument(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        slow = Request("http://page.example/slow?ms=2000", meta={"download_timeout": 0.5})
        large = Request("http://page.example/good", meta={"download_maxsize": 10})
        with pytest.raises(FetchError, match=r"timed out after 0\.5 s"):
            await fetcher.fetch(slow, proxy=server.url(""))
        with pytest.raises(FetchError, match="body over 10 bytes"):
            await fetcher.fetch(large, proxy=server.url(""))
        assert server.paths() == ["http://page.example/slow?ms=2000", "http://page.example/good"]

    run(scenario)


def test_proxy_authorization_of_the_settings_is_sent_to_their_proxy_only(run):
    async def scenario(_: CurlFetcher, server: Server) -> None:
        page, secret, other = "http://page.example/", "Basic c2VjcmV0", "Basic b3RoZXI="
        proxy_url, strange = server.url(""), server.url("").replace("127.0.0.1", "localhost")
        async with fetching(proxy=proxy_url, headers={"Proxy-Authorization": secret}) as fetcher:
            for request, proxy, sent in (
                (Request(page), proxy_url, secret),
                (Request(page), strange, None),
                (Request(page, meta={"proxy": strange}), proxy_url, secret),
                (Request(page, headers={"Proxy-Authorization": other}), strange, other),
                (Request(server.url("/echo"), headers={"Proxy-Authorization": other}), "", None),
            ):
                await fetcher.fetch(request, proxy=proxy)
                assert server.hits[-1].headers.get("proxy-authorization") == sent, (request, proxy)

    run(scenario)


def test_invalid_argument_is_refused(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        for bad, is_lasting in (("ftp://me:word@127.0.0.1:1", True), ("http://me:word@no-such-host.invalid", False)):
            with pytest.raises(FetchError) as caught:
                await fetcher.fetch(Request(server.url("/good")), proxy=bad)
            assert caught.value.retry is not is_lasting
            assert "word" not in str(caught.value)
        assert (await fetcher.fetch(Request(server.url("/good")))).status == 200
        return server.paths()

    assert run(scenario) == ["/good"]


def test_private_host_in_the_url_is_refused_with_the_argument(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        proxy = server.url("")
        found = await fetcher.fetch(Request("http://no-such-host.invalid/good"), address="127.0.0.9", proxy=proxy)
        assert (found.ip, found.latency_s is not None) == ("", True)
        with pytest.raises(PrivateAddress):
            await fetcher.fetch(Request("http://10.1.2.3/good"), public_only=True, proxy=proxy)
        named = Request(server.url("/good").replace("127.0.0.1", "localhost"), meta={"proxy": proxy})
        with pytest.raises(PrivateAddress):
            await fetcher.fetch(named, public_only=True, proxy="")
        return server.paths()

    assert run(scenario) == ["http://no-such-host.invalid/good"]


def test_undecodable_page_is_fetched_again_through_the_same_proxy(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> list[str]:
        found = await fetcher.fetch(Request("http://page.example/not-gzip"), proxy=server.url(""))
        assert b"Not compressed" in found.body
        return server.paths()

    assert run(scenario) == ["http://page.example/not-gzip"] * 2


def test_concurrent_transfers_use_their_own_proxies(run):
    async def scenario(fetcher: CurlFetcher, server: Server) -> None:
        async with ways(server) as servers:
            proxies = ["", servers.argument.url(""), servers.meta.url(""), None] * 5
            request = Request(server.url("/slow?ms=50"))
            await asyncio.gather(*(fetcher.fetch(request, proxy=proxy) for proxy in proxies))
            assert sorted(servers.take_routes()) == sorted([DIRECT, OF_ARGUMENT, OF_META, DIRECT] * 5)

    run(scenario)
