"""Real clients through the gateway, over real proxies: curl, wget, Python's requests, Chromium."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from lycosa.proxies.core.proxy import parse_proxy
from tests.conftest import need
from tests.proxies.gateway.harness import ANYWHERE, RunningGateway, running_gateway
from tests.servers.banning import Banning, BanResponse, banning
from tests.servers.proxies import Dante, Microsocks, RealProxy, Squid, Tinyproxy, running

pytestmark = pytest.mark.proxies

TEST_MAX_S = 60.0
USER, PASSWORD = "ann", "se@same:5"
REQUESTS = """
import sys, requests
proxy, *urls = sys.argv[1:]
requests.packages.urllib3.disable_warnings()
with requests.Session() as session:
    session.proxies = {"http": proxy, "https": proxy}
    session.trust_env = session.verify = False
    for url in urls:
        print(session.get(url, timeout=20).text)
"""


@pytest.fixture(scope="module")
def proxies() -> Iterator[tuple[RealProxy, ...]]:
    login = {"user": "bob", "password": "hidden"}
    with running(Tinyproxy(), Squid(**login), Microsocks(**login), Dante()) as started:
        yield started


@asynccontextmanager
async def sites(certificates) -> AsyncIterator[tuple[Banning, Banning]]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates.folder / "good.pem", certificates.folder / "good.key")
    async with banning() as plain, banning(tls=tls) as secure:
        yield plain, secure


Scenario = Callable[[RunningGateway, Banning, Banning], Awaitable[None]]


def run_with_sites(scenario: Scenario, certificates, proxies: tuple[RealProxy, ...], **options: object) -> None:
    async def main() -> None:
        async with (
            asyncio.timeout(TEST_MAX_S),
            sites(certificates) as (plain, secure),
            running_gateway(**{"access": ANYWHERE, "wait_s": 10, **options}) as gateway,
        ):
            await gateway.pool.add([parse_proxy(each.url) for each in proxies])
            await scenario(gateway, plain, secure)
            exits = {each.exit for each in proxies}
            assert plain.hits
            assert {hit.ip for hit in [*plain.hits, *secure.hits]} <= exits  # all requests came through a proxy

    asyncio.run(main())  # not on uvloop: the test sites need asyncio's own transports


async def run(*command: object, fails: bool = False) -> str:
    """Run a program, and return its output."""
    child = await asyncio.create_subprocess_exec(
        *map(str, command), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    assert bool(child.returncode) == fails, (command, child.returncode, err.decode()[-2000:])
    return out.decode() + err.decode() if fails else out.decode()


def program(name: str) -> str:
    need(f"{name} (apt-get install {name})", shutil.which(name) is not None)
    return name


@pytest.mark.parametrize("scheme", ["http", "socks5h", "socks5"])
def test_curl_uses_every_proxy(certificates, proxies, scheme: str):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        command = (program("curl"), "-sS", "-k", "-x", f"{scheme}://127.0.0.1:{gateway.port}")
        for _ in range(8):
            assert "/page/11" in await run(*command, "-U", f"{USER}:{PASSWORD}", plain.url("/page/1"))
            assert "/page/11" in await run(*command, "-U", f"{USER}:{PASSWORD}", secure.url("/page/1"))
        assert len({hit.ip for hit in [*plain.hits, *secure.hits]}) == 4  # all proxies were used

    run_with_sites(scenario, certificates, proxies, users={USER: PASSWORD})


def test_curl_posts_and_waits_for_100_continue(certificates, proxies, tmp_path: Path):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        command = (program("curl"), "-sS", "-k", "-x", f"http://127.0.0.1:{gateway.port}")
        for url in (plain.url("/"), secure.url("/")):
            answer = await run(
                *command, "-o", "/dev/null", "-w", "%{http_code}", "-H", "Expect: 100-continue", "-d", "a=b", url
            )
            assert answer == "200"

    run_with_sites(scenario, certificates, proxies)


def test_curl_shows_the_reason_of_an_error(certificates, proxies):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        command = (program("curl"), "-sS", "-x", f"http://127.0.0.1:{gateway.port}")
        good = f"{USER}:{PASSWORD}"
        assert "407" in await run(*command, secure.url(), fails=True)
        assert "407" in await run(*command, "-U", f"{USER}:wrong", secure.url(), fails=True)
        answer = await run(*command, "-U", f"{USER}-sesion-5:{PASSWORD}", plain.url())
        assert answer.startswith("unknown 'sesion' in the user name: write -KEY-VALUE")
        answer = await run(*command, "-U", f"{USER}-country-xx:{PASSWORD}", plain.url())
        assert answer.startswith("no proxy for 127.")
        assert "none fits" in answer
        assert "hi" not in await run(*command, "-U", good, plain.url("/page/1"))

    run_with_sites(scenario, certificates, proxies, users={USER: PASSWORD}, wait_s=0.2)


def test_curl_keeps_its_session(certificates, proxies):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        command = (program("curl"), "-sS", "-k", "-x", f"http://127.0.0.1:{gateway.port}")
        user = f"{USER}-site-shop-session-a-sticky-10m:{PASSWORD}"
        for url in (plain.url("/page/1"), plain.url("/page/2"), secure.url("/page/1"), secure.url("/page/2")):
            await run(*command, "-U", user, url)
        assert len({hit.ip for hit in [*plain.hits, *secure.hits]}) == 1
        first = plain.hits[0].ip
        plain.ban(first, BanResponse.FORBIDDEN)
        await run(*command, "-U", user, plain.url("/page/3"))
        await run(*command, "-U", user, plain.url("/page/3"))
        assert plain.hits[-1].ip != first
        assert plain.hits[-1].good

    run_with_sites(scenario, certificates, proxies, users={USER: PASSWORD})


def test_wget_fetches_pages(certificates, proxies):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        proxy = f"http://127.0.0.1:{gateway.port}"
        for url in (plain.url("/page/1"), secure.url("/page/1")):
            answer = await run(
                program("wget"), "-qO-", "--tries=1", "--no-check-certificate",
                "-e", "use_proxy=yes", "-e", f"http_proxy={proxy}", "-e", f"https_proxy={proxy}",
                f"--proxy-user={USER}", f"--proxy-password={PASSWORD}", url,
            )  # fmt: skip
            assert "/page/11" in answer

    run_with_sites(scenario, certificates, proxies, users={USER: PASSWORD})


@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_requests_keeps_its_session(certificates, proxies, scheme: str):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        proxy = f"{scheme}://{USER}-session-a:{quote(PASSWORD)}@127.0.0.1:{gateway.port}"
        urls = [plain.url("/page/1"), plain.url("/page/2"), secure.url("/page/1"), secure.url("/page/2")]
        answer = await run(sys.executable, "-c", REQUESTS, proxy, *urls)
        assert answer.count("/page/11") == 2
        assert answer.count("/page/21") == 2
        assert len({hit.ip for hit in plain.hits}) == len({hit.ip for hit in secure.hits}) == 1

    run_with_sites(scenario, certificates, proxies, users={USER: PASSWORD})


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["http", pytest.param("socks5", marks=pytest.mark.prove)])
def test_chromium_loads_pages(certificates, proxies, scheme: str, tmp_path: Path):
    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        for number, url in enumerate((plain.url("/page/1"), secure.url("/page/1"))):
            answer = await run(
                browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run",
                "--ignore-certificate-errors", f"--user-data-dir={tmp_path / str(number)}", "--timeout=20000",
                f"--proxy-server={scheme}://127.0.0.1:{gateway.port}", "--proxy-bypass-list=<-loopback>", url,
            )  # fmt: skip
            assert "/page/11" in answer
        assert any(hit.path == "/page/1" for hit in secure.hits)

    run_with_sites(scenario, certificates, proxies)


def test_clients_continue_when_proxies_are_killed(certificates):
    proxies = (Tinyproxy(), Microsocks(), Microsocks())

    async def scenario(gateway: RunningGateway, plain: Banning, secure: Banning) -> None:
        command = (program("curl"), "-sS", "-k", "-x", f"http://127.0.0.1:{gateway.port}")
        for number in range(12):
            if number == 4:
                proxies[0].kill()
            if number == 8:
                proxies[1].kill()
            for url in (plain.url("/page/1"), secure.url("/page/1")):
                assert "/page/11" in await run(*command, url)

    with running(*proxies):
        run_with_sites(scenario, certificates, proxies)
