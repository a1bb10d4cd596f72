"""Links on public pages never lead to a private address, however they are followed, unless settings allow it (C2).

All servers have loopback addresses, so 127.0.1.x counts as public and all others as private. A trap is a server on a
private address: it counts the connections it accepts, and most of these tests end with none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

import lycosa
from lycosa import Request, SitemapSpider, Spider, signals
from lycosa.app.crawl import crawl_run, wiring
from lycosa.core import addresses
from lycosa.core.errors import HttpError, PrivateAddress, StopDownload
from lycosa.crawl.events.stats import Summary
from lycosa.crawl.items.media.images import ImagesPipeline
from lycosa.http.core import private_addresses
from tests.conftest import need
from tests.http.contracts.test_fetcher import _has_ipv6
from tests.http.static_resolver import StaticResolver
from tests.servers.misbehaving import Server, serving
from tests.servers.ports import LOCALHOST

PUBLIC, PRIVATE, OTHER = "127.0.1.1", "127.0.2.1", "127.0.2.2"
REASON = "{} is not a public address, but a public page points to it: see allow_private"
QUICK = {"robots": False, "retries": 2, "backoff_base": 0, "log_level": "CRITICAL", "scope": "any"}


@pytest.fixture(autouse=True)
def _public_addresses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """127.0.1.x counts as the public internet."""
    for module in (addresses, private_addresses):
        monkeypatch.setattr(module, "is_public", lambda ip: ip.startswith("127.0.1."))
    monkeypatch.setattr(crawl_run, "DEAD_SHOWN", 100)
    addresses.looks_private.cache_clear()
    yield
    addresses.looks_private.cache_clear()


class Servers(NamedTuple):
    """A public server, a second one, and a trap."""

    site: Server
    second: Server
    trap: Server

    def link(self, via: str, target: str, server: Server | None = None) -> str:
        """Return the URL of a page that leads to the target: `via` is /leads?to=, /redirect-to?url=..."""
        return (server or self.site).url(via + quote(target, safe=""))


@asynccontextmanager
async def serve_all() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        site, second = [await stack.enter_async_context(serving(host=host)) for host in (PUBLIC, "127.0.1.2")]
        trap = await stack.enter_async_context(serving(host=PRIVATE, beside=LOCALHOST))
        yield Servers(site, second, trap)


class CrawlResult(NamedTuple):
    summary: Summary
    items: list[Any]


async def crawl(target: Any, **settings: Any) -> CrawlResult:
    async with lycosa.Crawl(target, **{**QUICK, **settings}) as crawl:
        return CrawlResult(await crawl.run(), crawl.items)


def run(scenario: Callable[[Servers], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), serve_all() as servers:
            await scenario(servers)

    asyncio.run(main())


class FollowsLinks(Spider):
    """Follows every link, and yields an item for each page."""

    name = "follows-links"

    def __init__(self, *urls: str, **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = list(urls)

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield Request(response.urljoin(link), dont_filter=True)


def assert_refused(result: CrawlResult, target: str, name: str = PRIVATE) -> None:
    """Assert that only the target is dead, without a retry, and that the reason names the setting."""
    assert result.summary.dead == [(target, REASON.format(name))]
    assert result.summary.finished
    assert "retry/count" not in result.summary.stats


# --- how a public page may lead to a private address


@pytest.mark.parametrize("robots", [False, True])
@pytest.mark.parametrize("via", ["/leads?to=", "/leads/missing?to=", "/redirect-to?url=", "/meta-refresh?url="])
def test_public_pages_do_not_lead_to_private_addresses(via, robots):
    class WithErrback(FollowsLinks):
        async def start(self):
            for url in self.start_urls:
                yield Request(url, errback="failed")

        def failed(self, failure):
            if not failure.check(HttpError):
                raise failure.value
            return self.parse(failure.value.response)

    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        result = await crawl(WithErrback(servers.link(via, target)), robots=robots)
        assert_refused(result, target)
        assert servers.trap.connections == 0

    run(scenario)


def test_a_generic_crawl_is_guarded():
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        assert_refused(await crawl(servers.link("/leads?to=", target), robots=True), target)
        assert servers.trap.connections == 0

    run(scenario)


def test_redirects_over_another_public_host_are_guarded():
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        hop = servers.link("/redirect-to?url=", target, servers.second)
        result = await crawl(FollowsLinks(servers.link("/leads?to=", servers.link("/redirect-to?url=", hop))))
        assert_refused(result, target)
        assert (servers.second.connections, servers.trap.connections) == (1, 0)

    run(scenario)


def test_links_of_sitemaps_are_guarded():
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")

        class FromSitemap(SitemapSpider):
            name = "from-sitemap"
            sitemap_urls = [servers.link("/leads/sitemap.xml?to=", target), servers.site.url("/robots.txt")]

        servers.site.robots = f"Sitemap: {servers.trap.url('/sitemap-1.xml')}\n"
        result = await crawl(FromSitemap)
        assert dict(result.summary.dead) == dict.fromkeys(
            [target, servers.trap.url("/sitemap-1.xml")], REASON.format(PRIVATE)
        )
        assert servers.trap.connections == 0

    run(scenario)


def test_requests_of_middlewares_and_of_crawler_crawl_are_guarded():
    async def scenario(servers: Servers) -> None:
        one, two = servers.trap.url("/good?1"), servers.trap.url("/good?2")

        class Moves:
            def process_response(self, request, response):
                return Request(one) if request.url.endswith("/good") else response

        class Queues(FollowsLinks):
            async def parse(self, response):
                await self.crawler.crawl(Request(two))

        spider = Queues(servers.site.url("/good"), servers.site.url("/empty"))
        result = await crawl(spider, downloader_middlewares={Moves: 100})
        assert dict(result.summary.dead) == dict.fromkeys([one, two], REASON.format(PRIVATE))
        assert servers.trap.connections == 0

    run(scenario)


def test_requests_of_signal_receivers_are_guarded():
    """A signal receiver queues the links that it finds, and an errback follows those of a partial response."""

    async def scenario(servers: Servers) -> None:
        one, two = servers.trap.url("/good?1"), servers.trap.url("/good?2")

        class QueuesFromSignals(Spider):
            name = "queues-from-signals"

            async def start(self):
                self.crawler.signals.connect(self.queue_link, signals.response_received)
                self.crawler.signals.connect(self.stop, signals.bytes_received)
                yield Request(servers.link("/leads?to=", one), errback="failed")
                yield Request(servers.link("/leads?to=", two), errback="failed")

            async def queue_link(self, response):
                await self.crawler.crawl(Request(response.css("a::attr(href)").get()))

            def stop(self, request):
                raise StopDownload(fail=request.url.endswith("2"))

            def parse(self, response):
                pass

            def failed(self, failure):
                if failure.check(StopDownload):
                    yield Request(failure.value.response.css("a::attr(href)").get())

        result = await crawl(QueuesFromSignals)
        assert dict(result.summary.dead) == dict.fromkeys([one, two], REASON.format(PRIVATE))
        assert servers.trap.connections == 0

    run(scenario)


@pytest.mark.parametrize("robots", [False, True])
def test_inline_fetches_are_guarded(robots):
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        urls = [
            target,
            servers.link("/redirect-to?url=", target),
            servers.link("/redirect-to?url=", target, servers.second),
        ]

        class Fetches(Spider):
            name = "fetches"
            start_urls = [servers.site.url("/good")]

            async def parse(self, response):
                found = await asyncio.gather(*(self.fetch(url) for url in urls), return_exceptions=True)
                yield {"found": [(type(each), str(each)) for each in found]}

        result = await crawl(Fetches, robots=robots)
        assert result.items == [{"found": [(PrivateAddress, REASON.format(PRIVATE))] * 3}]
        assert servers.trap.connections == 0

    run(scenario)


def test_requests_of_a_private_page_are_guarded_after_its_callback_fetched_a_public_page():
    """A spider of a private network reads public pages: their links must not lead back into the network."""

    async def scenario(servers: Servers) -> None:
        class Fetches(FollowsLinks):
            async def parse(self, response):
                before = await self.fetch(servers.trap.url("/good?before"))
                found = await asyncio.create_task(
                    self.fetch(servers.link("/leads?to=", servers.trap.url("/good?fetched")))
                )
                link = found.css("a::attr(href)").get()
                with pytest.raises(PrivateAddress):
                    await self.fetch(link)
                yield {"url": before.url}
                yield Request(link.replace("fetched", "linked"), callback="nothing")

            def nothing(self, response):
                pass

        result = await crawl(Fetches(servers.trap.url("/empty")))
        assert [item["url"] for item in result.items] == [servers.trap.url("/good?before")]
        assert_refused(result, servers.trap.url("/good?linked"))
        assert servers.trap.paths() == ["/empty", "/good?before"]

    run(scenario)


def test_inline_fetches_in_start_are_guarded_only_if_a_public_page_redirects_them():
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")

        class Starts(FollowsLinks):
            async def start(self):
                with pytest.raises(PrivateAddress):
                    await self.fetch(servers.link("/redirect-to?url=", target))
                yield Request((await self.fetch(target)).url)  # a request of the program itself is not guarded

        result = await crawl(Starts())
        assert (result.items, result.summary.dead) == ([{"url": target}], [])
        assert servers.trap.paths() == ["/good"] * 2

    run(scenario)


def test_images_of_items_are_guarded(tmp_path):
    async def scenario(servers: Servers) -> None:
        class WithImages(Spider):
            name = "with-images"
            start_urls = [servers.site.url("/good")]

            def parse(self, response):
                yield {"image_urls": [servers.trap.url("/image/1.png"), servers.site.url("/image/2.png")]}

        store = {"images_store": str(tmp_path), "pipelines": {ImagesPipeline: 1}}
        result = await crawl(WithImages, **store)
        assert [image["url"] for image in result.items[0]["images"]] == [servers.site.url("/image/2.png")]
        assert servers.trap.connections == 0

    run(scenario)


def test_a_robots_txt_redirected_to_a_private_address_is_not_fetched():
    async def scenario(servers: Servers) -> None:
        servers.site.robots = servers.trap.url("/robots-moved.txt")
        urls = [servers.site.url("/private"), servers.site.url("/good")]
        result = await crawl(FollowsLinks(*urls), robots=True)
        assert (result.summary.reasons, result.summary.dead) == ({"200": 1, "404": 1}, [])
        assert (servers.site.paths().count("/robots.txt"), servers.trap.connections) == (1, 0)

    run(scenario)


@pytest.mark.parametrize("via", ["/leads?to=", "/redirect-to?url="])
def test_all_spellings_of_private_addresses_are_refused(via):
    need("IPv6 on the loopback device", _has_ipv6())
    hosts = {
        "localhost": "",
        "LOCALHOST.": "",
        "[::1]": "::1",
        "[0:0::0:1]": "::1",
        "2130706945": PRIVATE,
        "0x7f.0.2.1": PRIVATE,
        "0177.0.0x201": PRIVATE,
        "[::ffff:127.0.2.1]": f"::ffff:{PRIVATE}",
        "%31%32%37.0.2.1": PRIVATE,
    }
    if via == "/leads?to=":  # a header cannot contain these letters
        hosts |= {"127。0。2。1": PRIVATE, "①27.0.②.1": PRIVATE}

    async def scenario(servers: Servers) -> None:
        port = int(servers.trap.address.rpartition(":")[2])
        async with serving(host="127.0.0.1", port=port) as four, serving(host="::1", port=port) as six:
            urls = {f"http://{host}:{port}/good?{number}": ip for number, (host, ip) in enumerate(hosts.items())}
            result = await crawl(FollowsLinks(*(servers.link(via, url) for url in urls)))
            reasons = {url.rpartition("?")[2]: reason for url, reason in result.summary.dead}
            for url, ip in urls.items():
                reason = reasons.pop(url.rpartition("?")[2])
                assert reason.endswith(REASON.format("")), url
                assert not ip or reason == REASON.format(ip), url
            assert reasons == {}
            assert (servers.trap.connections, four.connections, six.connections) == (0, 0, 0)

    run(scenario)


def test_a_name_that_resolves_to_a_private_address_is_refused(monkeypatch):
    table = {"intranet.example": [PRIVATE], "www.example": [PUBLIC]}
    monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver(table))

    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good").replace(PRIVATE, "intranet.example")
        start = servers.link("/leads?to=", target).replace(PUBLIC, "www.example", 1)
        for robots in (False, True):
            assert_refused(await crawl(FollowsLinks(start), delay_per_ip=0.001, robots=robots), target)
        assert (servers.site.paths().count("/robots.txt"), servers.trap.connections) == (1, 0)
        allowed = await crawl(FollowsLinks(start), delay_per_ip=0.001, allow_private=["example"])
        assert (allowed.summary.dead, servers.trap.paths()) == ([], ["/good"])

    run(scenario)


# --- requests that are not guarded


def test_private_pages_may_lead_to_private_addresses():
    async def scenario(servers: Servers) -> None:
        async with serving(host=OTHER) as other:
            hop = servers.link("/redirect-to?url=", other.url("/good?redirected"), servers.trap)
            image = servers.link("/meta-refresh?url=", other.url("/good?refreshed"), servers.trap)
            start = servers.trap.url(f"/leads?to={quote(hop)}&to={quote(image)}")
            result = await crawl(FollowsLinks(start), robots=True)
            assert result.summary.dead == []
            assert {url.partition("?")[2] for url in other.paths()} == {"", "redirected", "refreshed"}

    run(scenario)


def test_a_private_start_url_that_a_public_page_links_to_is_fetched():
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        for urls in ([servers.link("/leads?to=", target), target], [target, servers.link("/leads?to=", target)]):
            servers.trap.hits.clear()
            result = await crawl(urls, robots=True)
            assert (result.summary.dead, servers.trap.paths()) == ([], ["/robots.txt", "/good"])

    run(scenario)


def test_the_robots_txt_of_a_private_host_applies_even_if_the_first_request_to_it_was_refused():
    """A guarded request does not fetch robots.txt. A later request that is not guarded fetches it, and obeys it."""

    async def scenario(servers: Servers) -> None:
        servers.trap.robots = "User-agent: *\nDisallow: /private\n"
        target, forbidden = servers.trap.url("/good?public"), servers.trap.url("/private")

        class RecordsFailures:
            def process_exception(self, request, exception):
                spider.dead.add(request.url)

        async with serving(host=OTHER) as other:
            slow = servers.link("/leads?to=", forbidden, other)

            class Waits(FollowsLinks):
                dead: set[str] = set()

                async def parse(self, response):
                    while response.url == slow and target not in self.dead:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    for each in super().parse(response):
                        yield each

            spider = Waits(servers.link("/leads?to=", target), slow)
            result = await crawl(spider, robots=True, downloader_middlewares={RecordsFailures: 650})
            assert_refused(result, target)
            assert result.summary.reasons == {"200": 2, "robots": 1}
            assert servers.trap.paths() == ["/robots.txt"]

    run(scenario)


def test_a_page_is_private_by_its_address_not_by_its_name(monkeypatch):
    monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver({"intranet.example": [PRIVATE]}))

    async def scenario(servers: Servers) -> None:
        start = servers.link("/leads?to=", servers.trap.url("/good"), servers.trap).replace(
            PRIVATE, "intranet.example", 1
        )
        result = await crawl(FollowsLinks(start), delay_per_ip=0.001)
        assert (result.summary.dead, servers.trap.paths()[1:]) == ([], ["/good"])

    run(scenario)


# --- addresses that the settings allow


@pytest.mark.parametrize(
    ("allowed", "host"),
    [
        (["127.0.2.0/24"], PRIVATE),
        ([PRIVATE], PRIVATE),
        (["localhost"], "localhost"),
        (True, PRIVATE),
        ("true", PRIVATE),
        ("*", PRIVATE),
    ],
)
@pytest.mark.parametrize("via", ["/leads?to=", "/redirect-to?url="])
def test_allowed_hosts_are_reached(allowed, host, via):
    async def scenario(servers: Servers) -> None:
        async with serving(host="127.0.0.1", port=int(servers.trap.address.rpartition(":")[2])) as own:
            trap = own if host == "localhost" else servers.trap
            target = servers.trap.url("/good").replace(PRIVATE, host)
            result = await crawl(FollowsLinks(servers.link(via, target)), robots=True, allow_private=allowed)
            assert (result.summary.dead, trap.paths()) == ([], ["/robots.txt", "/good"])

    run(scenario)


@pytest.mark.parametrize("allowed", ["127.0.2.1/32", "localhost"])
@pytest.mark.parametrize("via", ["/leads?to=", "/redirect-to?url="])
def test_an_allowed_host_does_not_open_others(allowed, via):
    """A public page may lead to the allowed service, but not from there to others."""

    async def scenario(servers: Servers) -> None:
        async with (
            serving(host=OTHER) as other,
            serving(host="127.0.0.1", port=int(servers.trap.address.rpartition(":")[2])),
        ):
            name = "localhost" if allowed == "localhost" else PRIVATE
            hop = servers.link(via, other.url("/good"), servers.trap).replace(PRIVATE, name)
            result = await crawl(FollowsLinks(servers.link("/leads?to=", hop)), allow_private=[allowed])
            assert_refused(result, other.url("/good"), OTHER)
            assert other.connections == 0

    run(scenario)


# --- proxies, caches, later runs


@pytest.mark.parametrize("proxy_from", ["setting", "meta"])
def test_the_guard_applies_through_a_proxy_on_a_private_address(proxy_from):
    """The proxy resolves names, but private addresses in URLs are refused. The address of the proxy itself does not
    make a page private.
    """

    async def scenario(servers: Servers) -> None:
        meta = {"proxy": servers.trap.url()} if proxy_from == "meta" else {}
        port = servers.site.address.rpartition(":")[2]
        literal, local = f"http://{OTHER}:{port}/good", f"http://localhost:{port}/good"
        named = f"http://other.example:{port}/good"

        class Through(FollowsLinks):
            async def start(self):
                for url in self.start_urls:
                    yield Request(url, meta=meta)

            def parse(self, response):
                for request in super().parse(response):
                    if isinstance(request, Request):
                        request.meta.update(meta)
                    yield request

        links = "&".join(f"to={quote(url)}" for url in (literal, local, named))
        pages = [f"http://www.example:{port}/leads?{links}"]
        pages += [f"http://www.example:{port}/redirect-to?url={quote(url)}&{n}" for n, url in enumerate((literal,))]
        setting = {"proxy": servers.trap.url()} if proxy_from == "setting" else {}
        result = await crawl(Through(*pages), **setting)
        assert dict(result.summary.dead) == {literal: REASON.format(OTHER), local: REASON.format("localhost")}
        assert sorted(servers.trap.paths()) == sorted([*pages, named])

    run(scenario)


@pytest.mark.parametrize("via", ["/leads?to=", "/redirect-to?url="])
def test_the_guard_applies_in_a_later_run_too(tmp_path, via):
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        stored = {"state": str(tmp_path / "state"), "output": str(tmp_path / "items.jsonl")}

        class StopsCrawl:
            def process_request(self, request):
                spider.crawler.stop()

        spider = FollowsLinks(servers.link(via, target))
        first = await crawl(spider, **stored, concurrency=1, downloader_middlewares={StopsCrawl: 1})
        assert (first.summary.finished, first.summary.dead, servers.site.connections) == (False, [], 1)
        second = await crawl(FollowsLinks(servers.link(via, target)), **stored)
        assert_refused(second, target)
        assert second.summary.resumed
        assert servers.trap.connections == 0

    run(scenario)


@pytest.mark.parametrize("via", ["/leads?to=", "/redirect-to?url="])
def test_pages_from_the_cache_are_guarded(tmp_path, via):
    async def scenario(servers: Servers) -> None:
        target = servers.trap.url("/good")
        cache = {"http_cache": "replay", "http_cache_dir": str(tmp_path)}
        for _ in range(2):
            assert_refused(await crawl(FollowsLinks(servers.link(via, target)), **cache), target)
        assert (servers.site.connections, servers.trap.connections) == (1, 0)

    run(scenario)


def test_guarded_requests_do_not_reuse_connections_to_private_hosts():
    """Guarded requests must not use the open connections to private hosts."""

    async def scenario(servers: Servers) -> None:
        own = [servers.trap.url(f"/good?{number}") for number in range(20)]
        linked = [servers.trap.url(f"/good?public{number}") for number in range(20)]
        pages = [servers.link("/leads?to=", url) for url in linked]
        mixed = [url for pair in zip(own, pages, strict=True) for url in pair]
        result = await crawl(FollowsLinks(*mixed), concurrency=4)
        assert dict(result.summary.dead) == dict.fromkeys(linked, REASON.format(PRIVATE))
        assert sorted(servers.trap.url(path) for path in servers.trap.paths()) == sorted(own)
        assert servers.site.connections <= 8

    run(scenario)
