"""A transfer through a proxy of a pool: the lease of the proxy ends with the transfer, whose outcome is reported."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from lycosa.core.errors import FetchError, NoProxyYet
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.proxying.pooled_fetcher import PooledFetcher
from lycosa.crawl.fetching.proxying.sessions import SessionProxies
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.infra.clock import Clock
from lycosa.proxies.core.outcomes.outcome import Blame, OutcomeRule
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.memory.pool import LocalPool
from tests.servers.banning import Banning, BanResponse, banning
from tests.servers.ports import closed_port
from tests.servers.proxy import proxying
from tests.storage.memory_keystore import MemoryKeyStore

SHORT = OutcomeRule(Blame.SITE, "short", shorter=10_000)


def run(
    scenario: Callable[[PooledFetcher, LocalPool, Banning], Awaitable[None]],
    *rules: OutcomeRule,
    tries: int = 3,
    **options: Any,
) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), banning(**options) as server, proxying(exit="127.0.5.5") as proxy:
            pool = LocalPool()
            await pool.add([parse_proxy(proxy.url)])
            leaser = ProxyLeaser(pool, lambda _: rules, Clock(), tries=tries, wait_max_s=4)
            sessions = SessionProxies(MemoryKeyStore())
            fetcher = PooledFetcher(CurlFetcher(FetchSettings()), leaser, sessions, StatsCollector(), Clock())
            try:
                await scenario(fetcher, pool, server)
            finally:
                await fetcher.close()
                await leaser.close()

    asyncio.run(main())


async def lease_count(pool: LocalPool) -> int:
    return sum(view.leases for view in await pool.targets())


def test_a_cancelled_transfer_releases_its_proxy() -> None:
    """A cancelled transfer reports no outcome."""

    async def scenario(fetcher: PooledFetcher, pool: LocalPool, server: Banning) -> None:
        task = asyncio.create_task(fetcher.fetch(Request(server.url())))
        await server.until(1)
        assert await lease_count(pool) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await lease_count(pool) == 0
        [view] = await pool.proxies(server.addresses[0])
        assert (view.uses, view.good, view.bad, view.state) == (1, 0, 0, ProxyState.READY)

    run(scenario, delay_s=60)


def test_latency_and_success_are_reported_to_the_pool() -> None:
    async def scenario(fetcher: PooledFetcher, pool: LocalPool, server: Banning) -> None:
        response = await fetcher.fetch(Request(server.url()))
        [view] = await pool.proxies(server.addresses[0])
        assert view.latency_s == response.latency_s
        assert response.latency_s is not None
        assert response.latency_s > 0
        assert (view.uses, view.good, view.bad) == (1, 1, 0)

    run(scenario)


def test_a_request_fails_after_its_maximum_number_of_proxies() -> None:
    async def scenario(fetcher: PooledFetcher, pool: LocalPool, server: Banning) -> None:
        await pool.remove([view.proxy.key for view in await pool.proxies()])
        await pool.add(parse_proxy(f"127.0.0.1:{closed_port()}") for _ in range(3))
        for _ in range(2):
            with pytest.raises(NoProxyYet, match=r"through http://127\.0\.0\.1:"):
                await fetcher.fetch(Request(server.url()))
        with pytest.raises(FetchError, match="through 3 proxies: proxy refused the connection") as caught:
            await fetcher.fetch(Request(server.url()))
        assert caught.value.retry
        views = await pool.proxies()
        assert [view.state for view in views] == [ProxyState.COOLING] * 3

    run(scenario)


def test_rules_about_bodies_apply_only_to_bodies_that_were_read() -> None:
    """A page streamed to a file, a response to HEAD, or a page of another type has no body to match."""

    async def scenario(fetcher: PooledFetcher, _pool: LocalPool, server: Banning) -> None:
        pieces: list[bytes] = []
        assert (await fetcher.fetch(Request(server.url()), into=pieces.append)).refused == ""
        assert b"Page 0" in b"".join(pieces)
        assert (await fetcher.fetch(Request(server.url(), method="HEAD"))).refused == ""
        assert (await fetcher.fetch(Request(server.url()), accept=lambda *_: False)).refused == ""
        assert (await fetcher.fetch(Request(server.url()))).refused == "through 1 proxy: short"

    run(scenario, SHORT, tries=1)


def test_only_the_fetcher_gets_the_login_of_a_proxy() -> None:
    async def scenario(fetcher: PooledFetcher, pool: LocalPool, server: Banning) -> None:
        async with proxying(user="ann", password="secret") as proxy:
            await pool.remove([view.proxy.key for view in await pool.proxies()])
            await pool.add([parse_proxy(proxy.url_with_login)])
            request = Request(server.url(), meta={"proxy_session": "s"})
            response = await fetcher.fetch(request)
            assert response.status == 200
            server.ban("127.0.0.1", BanResponse.FORBIDDEN)
            with pytest.raises(NoProxyYet) as caught:
                await fetcher.fetch(request)
            assert "secret" not in repr((request.meta, response, caught.value, vars(caught.value)))
            assert request.meta == {"proxy_session": "s"}

    run(scenario)


def test_a_named_proxy_replaces_that_of_the_pool() -> None:
    """The argument of the call takes precedence over `proxy` in meta; either may select no proxy."""

    async def scenario(fetcher: PooledFetcher, pool: LocalPool, server: Banning) -> None:
        async with proxying(exit="127.0.5.6") as meta_proxy, proxying(exit="127.0.5.7") as argument_proxy:
            for meta, argument, exit_ip in (
                ({"proxy": meta_proxy.url}, None, "127.0.5.6"),
                ({"proxy": ""}, None, "127.0.0.1"),
                ({"proxy": None}, None, "127.0.0.1"),
                ({}, argument_proxy.url, "127.0.5.7"),
                ({"proxy": meta_proxy.url}, argument_proxy.url, "127.0.5.7"),
                ({}, "", "127.0.0.1"),
                ({"proxy": meta_proxy.url}, "", "127.0.0.1"),
                ({}, None, "127.0.5.5"),
            ):
                request = Request(server.url(), meta=meta)
                assert (await fetcher.fetch(request, proxy=argument)).status == 200
                assert server.hits[-1].ip == exit_ip, (meta, argument)
                assert request.meta == meta
            assert sum(view.uses for view in await pool.proxies(server.addresses[0])) == 1

    run(scenario)
