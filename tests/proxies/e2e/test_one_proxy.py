"""A proxy for a crawl or for one request (C2), with a real server: pages, robots.txt, tunnels, failures, and where the
password is stored.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import lycosa
from lycosa import Request, Spider
from lycosa.crawl.events.stats import Summary
from lycosa.frontier.core.model import Selection
from tests.http.contracts.test_fetcher_tls import certificates, trusted  # noqa: F401
from tests.servers.misbehaving import Server, serving
from tests.servers.ports import closed_port
from tests.servers.proxy import Proxy, proxying

SECRET = "se%40same:5"
LOGIN = {"user": "ann", "password": "se@same:5"}
HOSTS = {"www.example": "127.0.0.1", "other.example": "127.0.0.1"}
QUICK = {"robots": False, "retries": 1, "backoff_base": 0, "commit_every": 0.01}


def run(scenario: Callable[[Server, Proxy], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), serving(**options) as server, proxying(**LOGIN, hosts=HOSTS) as proxy:
            await scenario(server, proxy)

    asyncio.run(main())


class RequestsUrls(Spider):
    """Requests URLs with this meta; records responses and failures."""

    name = "requests-urls"

    def __init__(self, urls: list[str], meta: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.urls, self.meta = urls, meta
        self.failures: list[str] = []
        self.rows: list[Any] = []

    async def start(self):
        for url in self.urls:
            yield Request(url, meta=self.meta, errback="failed" if self.meta and "errback" in self.meta else None)

    def parse(self, response):
        yield {"url": response.url, "ip": response.ip_address}

    def failed(self, failure):
        self.failures.append(f"{failure} {failure.value!r} {failure.request!r}")

    async def closed(self, reason):
        found = await self.crawl._run.operations.rows(Selection(), "", 100)
        self.rows = found.rows


async def crawl(spider: RequestsUrls, **settings: Any) -> Summary:
    async with lycosa.Crawl(spider, **{**QUICK, **settings}) as crawl:
        spider.crawl = crawl
        summary = await crawl.run()
        spider.items = crawl.items
        return summary


def url_of(server: Server, path: str, host: str = "www.example") -> str:
    return server.url(path).replace("127.0.0.1", host)


@pytest.fixture
def silent(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Asserts that no log message contains the password."""
    caplog.set_level(logging.DEBUG)
    yield
    for part in ("same:5", "same%3A5", SECRET):
        assert part not in caplog.text


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize("proxy_from", ["setting", "meta"])
def test_pages_and_redirects_go_through_the_proxy(proxy_from):
    """robots.txt goes through the proxy of the settings. The proxy of a request is used for that request only."""

    async def scenario(server: Server, proxy: Proxy) -> None:
        urls = [url_of(server, "/good"), url_of(server, "/redirect-good", "other.example"), url_of(server, "/private")]
        if proxy_from == "setting":
            spider = RequestsUrls(urls)
            summary = await crawl(spider, robots=True, proxy=proxy.url_with_login)
            assert summary.reasons == {"200": 2, "redirect": 1, "robots": 1}
        else:
            spider = RequestsUrls(urls[:2], {"proxy": proxy.url_with_login})
            summary = await crawl(spider)
            assert summary.reasons == {"200": 2, "redirect": 1}
        moved = url_of(server, "/good", "other.example")
        robots = [url_of(server, "/robots.txt", host) for host in HOSTS] if proxy_from == "setting" else []
        assert sorted(proxy.requests) == sorted(f"GET {url}" for url in [*urls[:2], moved, *robots])
        assert sorted(each["url"] for each in spider.items) == sorted([urls[0], moved])
        assert {each["ip"] for each in spider.items} == {""}  # only the proxy knows it
        assert "same" not in repr((spider.items, summary))
        assert all("via" in hit.headers and "proxy-authorization" not in hit.headers for hit in server.hits)

    run(scenario, robots="User-agent: *\nDisallow: /private\n")


@pytest.mark.usefixtures("silent")
def test_robots_txt_is_not_fetched_through_the_proxy_of_a_request():
    """As with Scrapy, it is fetched as the settings say: here, directly."""

    async def scenario(server: Server, proxy: Proxy) -> None:
        summary = await crawl(RequestsUrls([server.url("/good")], {"proxy": proxy.url_with_login}), robots=True)
        assert (summary.reasons, proxy.requests) == ({"200": 1}, [f"GET {server.url('/good')}"])
        assert [(hit.path, "via" in hit.headers) for hit in server.hits] == [("/robots.txt", False), ("/good", True)]

    run(scenario)


def test_a_request_may_bypass_the_proxy_of_the_settings():
    async def scenario(server: Server, proxy: Proxy) -> None:
        for none in ("", None):
            spider = RequestsUrls([server.url("/good")], {"proxy": none})
            await crawl(spider, proxy=proxy.url_with_login)
            assert (spider.items, proxy.requests) == ([{"url": server.url("/good"), "ip": "127.0.0.1"}], [])

    run(scenario)


def test_a_host_that_only_the_proxy_resolves_is_reached():
    async def scenario(server: Server, proxy: Proxy) -> None:
        spider = RequestsUrls([url_of(server, "/good")], {"proxy": proxy.url_with_login})
        summary = await crawl(spider, delay_per_ip=0.001)
        assert (summary.reasons, summary.dead) == ({"200": 1}, [])

    run(scenario)


@pytest.mark.usefixtures("silent", "trusted")
@pytest.mark.parametrize("proxy_from", ["setting", "meta"])
def test_https_goes_through_a_tunnel(proxy_from, certificates):  # noqa: F811
    async def scenario(server: Server, proxy: Proxy) -> None:
        url, robots = server.url("/good"), proxy_from == "setting"
        setting = {"proxy": proxy.url_with_login}
        spider = RequestsUrls([url], setting if proxy_from == "meta" else None)
        summary = await crawl(spider, robots=robots, **(setting if robots else {}))
        assert (summary.reasons, summary.dead) == ({"200": 1}, [])
        assert set(proxy.requests) == {f"CONNECT {server.address}"}
        assert server.paths() == ["/robots.txt"] * robots + ["/good"]
        assert all("proxy-authorization" not in hit.headers for hit in server.hits)

    run(scenario, tls=certificates.context("good"))


@pytest.mark.usefixtures("silent")
@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("closed", "proxy refused the connection"),
        ("unknown", "proxy not found"),
        ("down", "connection (lost|closed without an answer)"),
        ("password", "407"),
        ("scheme", "unsupported proxy: use http://, https://, socks4:// or socks5h://host:port"),
    ],
)
def test_a_broken_proxy_is_retried_and_named_in_the_reason(broken, reason):
    """The page is retried like any other, and then dead with a reason that names the proxy."""

    async def scenario(server: Server, proxy: Proxy) -> None:
        proxies = {
            "closed": f"http://ann:{SECRET}@127.0.0.1:{closed_port()}",
            "unknown": f"http://ann:{SECRET}@no-such-proxy.invalid:1",
            "down": proxy.url_with_login,
            "password": proxy.url_with_login.replace("ann", "bob"),
            "scheme": proxy.url_with_login.replace("http:", "ftp:"),
        }
        proxy.down = broken == "down"
        url = url_of(server, "/good")
        spider = RequestsUrls([url], {"proxy": proxies[broken]})
        summary = await crawl(spider)
        if broken == "password":
            assert summary.reasons == {"407": 1}
        else:
            assert [dead for dead, _ in summary.dead] == [url]
            assert re.fullmatch(reason, summary.dead[0][1])
            assert summary.stats.get("retry/count", 0) == (broken != "scheme")
        with_errback = RequestsUrls([url], {"proxy": proxies[broken], "errback": True})
        second = await crawl(with_errback)
        assert len(with_errback.failures) == 1
        assert "same" not in repr((summary, second, spider.items, with_errback.failures, spider.rows[0].reason))
        assert server.connections == 0

    run(scenario)


@pytest.mark.usefixtures("silent", "trusted")
def test_a_refused_tunnel_makes_the_page_dead(certificates):  # noqa: F811
    async def scenario(server: Server, proxy: Proxy) -> None:
        urls = [server.url("/good"), server.url("/good").replace("127.0.0.1", "no-such-host.invalid")]
        wrong_login = await crawl(RequestsUrls(urls[:1], {"proxy": proxy.url_with_login.replace("ann", "bob")}))
        assert wrong_login.dead == [(urls[0], "proxy answered 407")]
        unknown_host = await crawl(RequestsUrls(urls[1:], {"proxy": proxy.url_with_login}))
        assert unknown_host.dead == [(urls[1], "proxy answered 502")]

    run(scenario, tls=certificates.context("good"))


@pytest.mark.parametrize("proxy_from", ["setting", "meta"])
def test_the_state_has_the_proxy_of_a_request_but_not_that_of_the_settings(tmp_path, proxy_from):
    """The proxy of the settings is not stored. That of a request is stored with the rest of its meta."""

    async def scenario(server: Server, proxy: Proxy) -> None:
        proxies = {"proxy": proxy.url_with_login}
        spider = RequestsUrls([url_of(server, "/good")], proxies if proxy_from == "meta" else None)
        options = {"state": str(tmp_path / "state"), "output": str(tmp_path / "items.jsonl")}
        summary = await crawl(spider, **options, **(proxies if proxy_from == "setting" else {}))
        assert summary.reasons == {"200": 1}
        stored = [path for path in tmp_path.rglob("*") if path.is_file() and b"sesame" in _without_at_signs(path)]
        assert {path.name for path in stored} == ({"journal.1"} if proxy_from == "meta" else set())
        assert (spider.rows[0].record.extras is not None) == (proxy_from == "meta")

    run(scenario)


def _without_at_signs(path: Path) -> bytes:
    return path.read_bytes().replace(b"%40", b"").replace(b"@", b"")
