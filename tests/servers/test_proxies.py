"""The proxies and the banning sites that other tests rely on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from lycosa.core.errors import ConnectFailed, ConnectionLost, FetchError
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from tests.servers.banning import CAPTCHA_MARK, Banning, BanResponse, Limit, banning
from tests.servers.proxies import Dante, Microsocks, RealProxy, Squid, Tinyproxy, running
from tests.servers.proxy import Proxy, proxying

LOGIN = {"user": "ann", "password": "se@same:5"}


def run_scenario(scenario: Callable[[Banning, Callable[..., Any]], Any], **options: Any) -> None:
    async def main() -> None:
        fetcher = CurlFetcher(FetchSettings(timeout_s=60))

        async def fetch(url: str, proxy: str = "") -> HttpResponse | FetchError:
            try:
                return await fetcher.fetch(Request(url, meta={"proxy": proxy}))
            except FetchError as error:
                return error

        async with asyncio.timeout(300), banning(**options) as server:
            try:
                await scenario(server, fetch)
            finally:
                await fetcher.close()

    asyncio.run(main())


@pytest.mark.proxies
@pytest.mark.parametrize(
    "proxy",
    [
        Tinyproxy,
        lambda: Tinyproxy(user="ann", password="secret"),
        Squid,
        lambda: Squid(**LOGIN),
        lambda: Squid(forwards="delete"),
        Microsocks,
        lambda: Microsocks(**LOGIN),
        Dante,
    ],
    ids=[
        "tinyproxy",
        "tinyproxy-login",
        "squid",
        "squid-login",
        "squid-elite",
        "microsocks",
        "microsocks-login",
        "dante",
    ],
)
def test_a_real_proxy_uses_its_exit_checks_logins_and_can_be_restarted(proxy):
    """It connects from its exit address, requires its login, and after a kill starts again at the same address."""

    async def scenario(server: Banning, fetch: Callable[..., Any]) -> None:
        with running(proxy()) as [real]:
            answer = await fetch(server.url(), real.url)
            assert (answer.status, server.hits[-1].ip, server.hits[-1].good) == (200, real.exit, True)
            if real.user:
                refused = await fetch(server.url(), real.url_without_login)
                assert isinstance(refused, ConnectFailed) or refused.status == 407
            if isinstance(real, Dante):
                assert (await fetch(server.url(), real.url_socks4)).status == 200
            hits_before = len(server.hits)
            real.kill()
            assert isinstance(await fetch(server.url(), real.url), ConnectFailed)
            assert len(server.hits) == hits_before
            real.launch()
            real.wait()
            assert (await fetch(server.url(), real.url)).status == 200

    run_scenario(scenario)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", [Tinyproxy, Squid])
def test_a_real_proxy_refuses_a_site(kind):
    async def scenario(server: Banning, fetch: Callable[..., Any]) -> None:
        with running(kind(refuses=[server.addresses[0]])) as [real]:
            assert [(await fetch(server.url(site=site), real.url)).status for site in (0, 1)] == [403, 200]
            assert [hit.site for hit in server.hits] == [1]

    run_scenario(scenario, sites=2)


@pytest.mark.proxies
def test_real_proxies_die_with_their_parent():
    """They leave nothing behind even if the test process was killed."""
    proxies: list[RealProxy] = [Tinyproxy(), Squid(), Microsocks(), Dante()]
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            with running(*proxies):
                os.write(writer, " ".join(str(each.process.pid) for each in proxies if each.process).encode())
                signal.pause()
        finally:
            os._exit(1)
    os.close(writer)
    pids = [int(each) for each in os.read(reader, 100).split()]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for pid in pids:
        _wait_for_end(pid)


def _wait_for_end(pid: int) -> None:
    """Wait until a process has ended. It may still be a zombie."""
    handle = None
    try:
        handle = os.pidfd_open(pid)
        assert asyncio.run(_readable(handle))
    except ProcessLookupError:
        pass
    finally:
        if handle is not None:
            os.close(handle)


async def _readable(handle: int) -> bool:
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(handle, lambda: done.done() or done.set_result(True))
    return bool(await asyncio.wait_for(done, 20))


def test_the_faults_of_the_small_proxy():
    async def scenario(server: Banning, fetch: Callable[..., Any]) -> None:
        async with proxying(**LOGIN, host="127.0.3.1", exit="127.0.3.2") as proxy:

            async def fetch_page() -> Any:
                return await fetch(server.url(), proxy.url_with_login)

            assert (await fetch_page()).status == 200
            assert server.hits[-1].ip == "127.0.3.2"
            proxy.alters = (b"Page", b"Buy this: page")
            assert b"<title>Buy this: page 0" in (await fetch_page()).body
            proxy.alters = None
            proxy.delay_s = 0.3
            assert (await fetch_page()).timings.total_s >= 0.3
            proxy.delay_s = 0
            proxy.refuses.add(server.addresses[0])
            assert (await fetch_page()).status == 403
            proxy.refuses.clear()
            proxy.drops = 1
            assert isinstance(await fetch_page(), ConnectionLost)
            assert (await fetch_page()).status == 200
            proxy.password = "another"
            assert (await fetch_page()).status == 407

    run_scenario(scenario)


@pytest.mark.parametrize("ban_response", BanResponse)
def test_a_site_bans_a_client(ban_response):
    """A client is banned on the site where it exceeded the limit, for a while, and nowhere else."""

    async def scenario(server: Banning, fetch: Callable[..., Any]) -> None:
        async with proxying(exit="127.0.3.3") as first, proxying(exit="127.0.3.4") as other:
            good = [await fetch(server.url(f"/page/{number}"), first.url) for number in range(2)]
            assert [answer.status for answer in good] == [200, 200]
            bad = await fetch(server.url("/page/2"), first.url)
            _assert_refused(bad, ban_response, first)
            assert (await fetch(server.url("/robots.txt"), first.url)).status == 200
            assert (await fetch(server.url("/page/2"), other.url)).status == 200
            assert (await fetch(server.url("/page/2", site=1), first.url)).status == 200
            server.unban("127.0.3.3")
            assert b"Page 2" in (await fetch(server.url("/page/2"), first.url)).body
            assert server.pages() == {"/page/0": 1, "/page/1": 1, "/page/2": 2}
            repeated = (
                ban_response is BanResponse.CLOSED
            )  # libcurl repeats the request, since a kept connection may have been closed in the meantime
            assert server.by_client() == {"127.0.3.3": 5 + repeated, "127.0.3.4": 1}

    run_scenario(scenario, sites=2, limit=Limit(2, ban_response, for_s=60.0))


def _assert_refused(answer: HttpResponse | FetchError, ban_response: BanResponse, proxy: Proxy) -> None:
    if ban_response is BanResponse.CLOSED:
        assert isinstance(answer, ConnectionLost)
        return
    assert isinstance(answer, HttpResponse)
    assert answer.status == ban_response.value
    assert (answer.headers.get("retry-after") == "60") == (ban_response is BanResponse.TOO_MANY)
    assert (CAPTCHA_MARK.encode() in answer.body) == (ban_response is BanResponse.SOFT)
