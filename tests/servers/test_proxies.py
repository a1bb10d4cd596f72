"""The proxies and the banning sites that other tests build on do what they say."""

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
from tests.servers.banning import CAPTCHA_MARK, Banning, How, Limit, banning
from tests.servers.proxies import Dante, Microsocks, RealProxy, Squid, Tinyproxy, running
from tests.servers.proxy import Proxy, proxying

LOGIN = {"user": "ann", "password": "se@same:5"}


def playing(play: Callable[[Banning, Callable[..., Any]], Any], **options: Any) -> None:
    async def main() -> None:
        fetcher = CurlFetcher(FetchSettings(timeout_s=10))

        async def fetch(url: str, proxy: str = "") -> HttpResponse | FetchError:
            try:
                return await fetcher.fetch(Request(url, meta={"proxy": proxy}))
            except FetchError as error:
                return error

        async with asyncio.timeout(60), banning(**options) as server:
            try:
                await play(server, fetch)
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
def test_a_real_proxy(proxy):
    """It leaves by its own address, wants its login, dies when it is killed, and comes back where it was."""

    async def play(server: Banning, fetch: Callable[..., Any]) -> None:
        with running(proxy()) as [real]:
            answer = await fetch(server.url(), real.url)
            assert (answer.status, server.hits[-1].ip, server.hits[-1].good) == (200, real.exit, True)
            if real.user:
                refused = await fetch(server.url(), real.url_without_login)
                assert isinstance(refused, ConnectFailed) or refused.status == 407
            if isinstance(real, Dante):
                assert (await fetch(server.url(), real.url_socks4)).status == 200
            before = len(server.hits)
            real.kill()
            assert isinstance(await fetch(server.url(), real.url), ConnectFailed)
            assert len(server.hits) == before
            real.launch()
            real.wait()
            assert (await fetch(server.url(), real.url)).status == 200

    playing(play)


@pytest.mark.proxies
@pytest.mark.parametrize("kind", [Tinyproxy, Squid])
def test_a_real_proxy_that_refuses_a_site(kind):
    async def play(server: Banning, fetch: Callable[..., Any]) -> None:
        with running(kind(refuses=[server.addresses[0]])) as [real]:
            assert [(await fetch(server.url(site=site), real.url)).status for site in (0, 1)] == [403, 200]
            assert [hit.site for hit in server.hits] == [1]

    playing(play, sites=2)


@pytest.mark.proxies
def test_a_real_proxy_dies_with_its_process():
    """Even one whose test was killed leaves nothing behind."""
    proxies: list[RealProxy] = [Tinyproxy(), Squid(), Microsocks(), Dante()]
    told, tell = os.pipe()
    child = os.fork()
    if not child:
        with running(*proxies):
            os.write(tell, " ".join(str(each.process.pid) for each in proxies if each.process).encode())
            signal.pause()
    pids = [int(each) for each in os.read(told, 100).split()]
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    for pid in pids:
        _gone(pid)


def _gone(pid: int) -> None:
    """Return when a process is no more, or waits to be buried."""
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


def test_the_small_proxy_and_its_faults():
    async def play(server: Banning, fetch: Callable[..., Any]) -> None:
        async with proxying(**LOGIN, host="127.0.3.1", exit="127.0.3.2") as proxy:

            async def asked() -> Any:
                return await fetch(server.url(), proxy.url_with_secrets)

            assert (await asked()).status == 200
            assert server.hits[-1].ip == "127.0.3.2"
            proxy.alters = (b"Page", b"Buy this: page")
            assert b"<title>Buy this: page 0" in (await asked()).body
            proxy.alters = None
            proxy.delay_s = 0.3
            assert (await asked()).timings.total_s >= 0.3
            proxy.delay_s = 0
            proxy.refuses.add(server.addresses[0])
            assert (await asked()).status == 403
            proxy.refuses.clear()
            proxy.drops = 1
            assert isinstance(await asked(), ConnectionLost)
            assert (await asked()).status == 200
            proxy.password = "another"
            assert (await asked()).status == 407

    playing(play)


@pytest.mark.parametrize("how", How)
def test_a_site_that_bans(how):
    """A client is banned where it asked too much, for a time, and nowhere else."""

    async def play(server: Banning, fetch: Callable[..., Any]) -> None:
        async with proxying(exit="127.0.3.3") as one, proxying(exit="127.0.3.4") as other:
            good = [await fetch(server.url(f"/page/{number}"), one.url) for number in range(2)]
            assert [answer.status for answer in good] == [200, 200]
            bad = await fetch(server.url("/page/2"), one.url)
            _refused(bad, how, one)
            assert (await fetch(server.url("/robots.txt"), one.url)).status == 200
            assert (await fetch(server.url("/page/2"), other.url)).status == 200
            assert (await fetch(server.url("/page/2", site=1), one.url)).status == 200
            server.unban("127.0.3.3")
            assert b"Page 2" in (await fetch(server.url("/page/2"), one.url)).body
            assert server.pages() == {"/page/0": 1, "/page/1": 1, "/page/2": 2}
            repeated = how is How.CLOSED  # by libcurl: a kept connection may have ended by itself
            assert server.by_client() == {"127.0.3.3": 5 + repeated, "127.0.3.4": 1}

    playing(play, sites=2, limit=Limit(2, how, for_s=60.0))


def _refused(answer: HttpResponse | FetchError, how: How, proxy: Proxy) -> None:
    if how is How.CLOSED:
        assert isinstance(answer, ConnectionLost)
        return
    assert isinstance(answer, HttpResponse)
    assert answer.status == how.value
    assert (answer.headers.get("retry-after") == "60") == (how is How.TOO_MANY)
    assert (CAPTCHA_MARK.encode() in answer.body) == (how is How.SOFT)
