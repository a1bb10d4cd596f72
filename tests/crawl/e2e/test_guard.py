"""Links found on public hosts lead to no private address, whatever way they take, unless settings allow it (C2).

Everything here lives on loopback addresses, so 127.0.1.x counts as public and all else as private. A trap is a server
on a private address: it counts the connections it accepts, and most of these tests end with none.
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
REASON = "{} is not a public address, but a public page leads there: see allow_private"
QUICK = {"robots": False, "retries": 2, "backoff_base": 0, "log_level": "CRITICAL", "scope": "any"}


@pytest.fixture(autouse=True)
def _world(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """127.0.1.x counts as the public internet."""
    for module in (addresses, private_addresses):
        monkeypatch.setattr(module, "is_public", lambda ip: ip.startswith("127.0.1."))
    monkeypatch.setattr(crawl_run, "DEAD_SHOWN", 100)
    addresses.looks_private.cache_clear()
    yield
    addresses.looks_private.cache_clear()


class World(NamedTuple):
    """A public server, a second one, and a trap."""

    site: Server
    second: Server
    trap: Server

    def to(self, way: str, target: str, server: Server | None = None) -> str:
        """Return the URL of a page that leads to the target this way: /leads?to=, /redirect-to?url=..."""
        return (server or self.site).url(way + quote(target, safe=""))


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        site, second = [await stack.enter_async_context(serving(host=host)) for host in (PUBLIC, "127.0.1.2")]
        trap = await stack.enter_async_context(serving(host=PRIVATE, beside=LOCALHOST))
        yield World(site, second, trap)


class Ended(NamedTuple):
    summary: Summary
    items: list[Any]


async def crawl(target: Any, **settings: Any) -> Ended:
    async with lycosa.Crawl(target, **{**QUICK, **settings}) as crawl:
        return Ended(await crawl.run(), crawl.items)


def playing(play: Callable[[World], Any]) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), world() as made:
            await play(made)

    asyncio.run(main())


class Reads(Spider):
    """Follows every link, and yields what it has read."""

    name = "reads"

    def __init__(self, *urls: str, **more: Any) -> None:
        super().__init__(**more)
        self.start_urls = list(urls)

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield Request(response.urljoin(link), dont_filter=True)


def refused(ended: Ended, target: str, name: str = PRIVATE) -> None:
    """Assert that the target alone is dead at once, with a reason that says what to do."""
    assert ended.summary.dead == [(target, REASON.format(name))]
    assert ended.summary.finished
    assert "retry/count" not in ended.summary.stats


# --- ways that lead there


@pytest.mark.parametrize("robots", [False, True])
@pytest.mark.parametrize("way", ["/leads?to=", "/leads/missing?to=", "/redirect-to?url=", "/meta-refresh?url="])
def test_public_pages_do_not_lead_to_private_addresses(way, robots):
    class Errs(Reads):
        async def start(self):
            for url in self.start_urls:
                yield Request(url, errback="failed")

        def failed(self, failure):
            if not failure.check(HttpError):
                raise failure.value
            return self.parse(failure.value.response)

    async def play(here: World) -> None:
        target = here.trap.url("/good")
        ended = await crawl(Errs(here.to(way, target)), robots=robots)
        refused(ended, target)
        assert here.trap.connections == 0

    playing(play)


def test_a_generic_crawl_is_guarded():
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        refused(await crawl(here.to("/leads?to=", target), robots=True), target)
        assert here.trap.connections == 0

    playing(play)


def test_redirects_over_another_public_host_are_guarded():
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        hop = here.to("/redirect-to?url=", target, here.second)
        ended = await crawl(Reads(here.to("/leads?to=", here.to("/redirect-to?url=", hop))))
        refused(ended, target)
        assert (here.second.connections, here.trap.connections) == (1, 0)

    playing(play)


def test_links_of_sitemaps_are_guarded():
    async def play(here: World) -> None:
        target = here.trap.url("/good")

        class Maps(SitemapSpider):
            name = "maps"
            sitemap_urls = [here.to("/leads/sitemap.xml?to=", target), here.site.url("/robots.txt")]

        here.site.robots = f"Sitemap: {here.trap.url('/sitemap-1.xml')}\n"
        ended = await crawl(Maps)
        assert dict(ended.summary.dead) == dict.fromkeys(
            [target, here.trap.url("/sitemap-1.xml")], REASON.format(PRIVATE)
        )
        assert here.trap.connections == 0

    playing(play)


def test_requests_of_middlewares_and_of_crawler_crawl_are_guarded():
    async def play(here: World) -> None:
        one, two = here.trap.url("/good?1"), here.trap.url("/good?2")

        class Moves:
            def process_response(self, request, response):
                return Request(one) if request.url.endswith("/good") else response

        class Queues(Reads):
            async def parse(self, response):
                await self.crawler.crawl(Request(two))

        spider = Queues(here.site.url("/good"), here.site.url("/empty"))
        ended = await crawl(spider, downloader_middlewares={Moves: 100})
        assert dict(ended.summary.dead) == dict.fromkeys([one, two], REASON.format(PRIVATE))
        assert here.trap.connections == 0

    playing(play)


def test_requests_of_signal_receivers_are_guarded():
    """A signal receiver that queues what it finds, and an errback that reads a partial response."""

    async def play(here: World) -> None:
        one, two = here.trap.url("/good?1"), here.trap.url("/good?2")

        class Hears(Spider):
            name = "hears"

            async def start(self):
                self.crawler.signals.connect(self.came, signals.response_received)
                self.crawler.signals.connect(self.stop, signals.bytes_received)
                yield Request(here.to("/leads?to=", one), errback="failed")
                yield Request(here.to("/leads?to=", two), errback="failed")

            async def came(self, response):
                await self.crawler.crawl(Request(response.css("a::attr(href)").get()))

            def stop(self, request):
                raise StopDownload(fail=request.url.endswith("2"))

            def parse(self, response):
                pass

            def failed(self, failure):
                if failure.check(StopDownload):
                    yield Request(failure.value.response.css("a::attr(href)").get())

        ended = await crawl(Hears)
        assert dict(ended.summary.dead) == dict.fromkeys([one, two], REASON.format(PRIVATE))
        assert here.trap.connections == 0

    playing(play)


@pytest.mark.parametrize("robots", [False, True])
def test_inline_fetches_are_guarded(robots):
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        ways = [target, here.to("/redirect-to?url=", target), here.to("/redirect-to?url=", target, here.second)]

        class Fetches(Spider):
            name = "fetches"
            start_urls = [here.site.url("/good")]

            async def parse(self, response):
                found = await asyncio.gather(*(self.fetch(url) for url in ways), return_exceptions=True)
                yield {"found": [(type(each), str(each)) for each in found]}

        ended = await crawl(Fetches, robots=robots)
        assert ended.items == [{"found": [(PrivateAddress, REASON.format(PRIVATE))] * 3}]
        assert here.trap.connections == 0

    playing(play)


def test_a_private_page_that_fetched_from_a_public_one_is_guarded():
    """A spider goes from its own network to the public internet; what it finds there must not lead back."""

    async def play(here: World) -> None:
        class Fetches(Reads):
            async def parse(self, response):
                before = await self.fetch(here.trap.url("/good?before"))
                found = await asyncio.create_task(self.fetch(here.to("/leads?to=", here.trap.url("/good?fetched"))))
                link = found.css("a::attr(href)").get()
                with pytest.raises(PrivateAddress):
                    await self.fetch(link)
                yield {"url": before.url}
                yield Request(link.replace("fetched", "linked"), callback="nothing")

            def nothing(self, response):
                pass

        ended = await crawl(Fetches(here.trap.url("/empty")))
        assert [item["url"] for item in ended.items] == [here.trap.url("/good?before")]
        refused(ended, here.trap.url("/good?linked"))
        assert here.trap.paths() == ["/empty", "/good?before"]

    playing(play)


def test_inline_fetches_of_start_are_guarded_only_behind_public_pages():
    async def play(here: World) -> None:
        target = here.trap.url("/good")

        class Starts(Reads):
            async def start(self):
                with pytest.raises(PrivateAddress):
                    await self.fetch(here.to("/redirect-to?url=", target))
                yield Request((await self.fetch(target)).url)  # a request of the program itself is not guarded

        ended = await crawl(Starts())
        assert (ended.items, ended.summary.dead) == ([{"url": target}], [])
        assert here.trap.paths() == ["/good"] * 2

    playing(play)


def test_images_of_items_are_guarded(tmp_path):
    async def play(here: World) -> None:
        class Shows(Spider):
            name = "shows"
            start_urls = [here.site.url("/good")]

            def parse(self, response):
                yield {"image_urls": [here.trap.url("/image/1.png"), here.site.url("/image/2.png")]}

        store = {"images_store": str(tmp_path), "pipelines": {ImagesPipeline: 1}}
        ended = await crawl(Shows, **store)
        assert [image["url"] for image in ended.items[0]["images"]] == [here.site.url("/image/2.png")]
        assert here.trap.connections == 0

    playing(play)


def test_a_robots_txt_redirected_to_a_private_address_is_not_fetched():
    async def play(here: World) -> None:
        here.site.robots = here.trap.url("/robots-moved.txt")
        urls = [here.site.url("/private"), here.site.url("/good")]
        ended = await crawl(Reads(*urls), robots=True)
        assert (ended.summary.reasons, ended.summary.dead) == ({"200": 1, "404": 1}, [])
        assert (here.site.paths().count("/robots.txt"), here.trap.connections) == (1, 0)

    playing(play)


@pytest.mark.parametrize("way", ["/leads?to=", "/redirect-to?url="])
def test_all_spellings_of_private_addresses_are_refused(way):
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
    if way == "/leads?to=":  # a header has no such letters
        hosts |= {"127。0。2。1": PRIVATE, "①27.0.②.1": PRIVATE}

    async def play(here: World) -> None:
        port = int(here.trap.address.rpartition(":")[2])
        async with serving(host="127.0.0.1", port=port) as four, serving(host="::1", port=port) as six:
            urls = {f"http://{host}:{port}/good?{number}": ip for number, (host, ip) in enumerate(hosts.items())}
            ended = await crawl(Reads(*(here.to(way, url) for url in urls)))
            told = {url.rpartition("?")[2]: reason for url, reason in ended.summary.dead}
            for url, ip in urls.items():
                reason = told.pop(url.rpartition("?")[2])
                assert reason.endswith(REASON.format("")), url
                assert not ip or reason == REASON.format(ip), url
            assert told == {}
            assert (here.trap.connections, four.connections, six.connections) == (0, 0, 0)

    playing(play)


def test_a_name_that_resolves_to_a_private_address_is_refused(monkeypatch):
    table = {"intranet.example": [PRIVATE], "www.example": [PUBLIC]}
    monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver(table))

    async def play(here: World) -> None:
        target = here.trap.url("/good").replace(PRIVATE, "intranet.example")
        start = here.to("/leads?to=", target).replace(PUBLIC, "www.example", 1)
        for robots in (False, True):
            refused(await crawl(Reads(start), delay_per_ip=0.001, robots=robots), target)
        assert (here.site.paths().count("/robots.txt"), here.trap.connections) == (1, 0)
        allowed = await crawl(Reads(start), delay_per_ip=0.001, allow_private=["example"])
        assert (allowed.summary.dead, here.trap.paths()) == ([], ["/good"])

    playing(play)


# --- what is not guarded


def test_private_pages_may_lead_to_private_addresses():
    async def play(here: World) -> None:
        async with serving(host=OTHER) as other:
            hop = here.to("/redirect-to?url=", other.url("/good?redirected"), here.trap)
            image = here.to("/meta-refresh?url=", other.url("/good?refreshed"), here.trap)
            start = here.trap.url(f"/leads?to={quote(hop)}&to={quote(image)}")
            ended = await crawl(Reads(start), robots=True)
            assert ended.summary.dead == []
            assert {url.partition("?")[2] for url in other.paths()} == {"", "redirected", "refreshed"}

    playing(play)


def test_a_private_start_url_that_a_public_page_links_to_is_fetched():
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        for urls in ([here.to("/leads?to=", target), target], [target, here.to("/leads?to=", target)]):
            here.trap.hits.clear()
            ended = await crawl(urls, robots=True)
            assert (ended.summary.dead, here.trap.paths()) == ([], ["/robots.txt", "/good"])

    playing(play)


def test_the_robots_txt_of_a_private_host_first_reached_from_a_public_page_still_applies():
    """It is not fetched for a guarded request, but applies to requests that are not guarded."""

    async def play(here: World) -> None:
        here.trap.robots = "User-agent: *\nDisallow: /private\n"
        target, forbidden = here.trap.url("/good?public"), here.trap.url("/private")

        class Hears:
            def process_exception(self, request, exception):
                spider.dead.add(request.url)

        async with serving(host=OTHER) as other:
            slow = here.to("/leads?to=", forbidden, other)

            class Waits(Reads):
                dead: set[str] = set()

                async def parse(self, response):
                    while response.url == slow and target not in self.dead:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                    for each in super().parse(response):
                        yield each

            spider = Waits(here.to("/leads?to=", target), slow)
            ended = await crawl(spider, robots=True, downloader_middlewares={Hears: 650})
            refused(ended, target)
            assert ended.summary.reasons == {"200": 2, "robots": 1}
            assert here.trap.paths() == ["/robots.txt"]

    playing(play)


def test_a_page_is_private_by_its_address_not_by_its_name(monkeypatch):
    monkeypatch.setattr(wiring, "SystemResolver", lambda *_: StaticResolver({"intranet.example": [PRIVATE]}))

    async def play(here: World) -> None:
        start = here.to("/leads?to=", here.trap.url("/good"), here.trap).replace(PRIVATE, "intranet.example", 1)
        ended = await crawl(Reads(start), delay_per_ip=0.001)
        assert (ended.summary.dead, here.trap.paths()[1:]) == ([], ["/good"])

    playing(play)


# --- what the settings allow


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
@pytest.mark.parametrize("way", ["/leads?to=", "/redirect-to?url="])
def test_allowed_hosts_are_reached(allowed, host, way):
    async def play(here: World) -> None:
        async with serving(host="127.0.0.1", port=int(here.trap.address.rpartition(":")[2])) as own:
            trap = own if host == "localhost" else here.trap
            target = here.trap.url("/good").replace(PRIVATE, host)
            ended = await crawl(Reads(here.to(way, target)), robots=True, allow_private=allowed)
            assert (ended.summary.dead, trap.paths()) == ([], ["/robots.txt", "/good"])

    playing(play)


@pytest.mark.parametrize("allowed", ["127.0.2.1/32", "localhost"])
@pytest.mark.parametrize("way", ["/leads?to=", "/redirect-to?url="])
def test_an_allowed_host_does_not_open_others(allowed, way):
    """A public page that may lead to one service must not lead from there to all others."""

    async def play(here: World) -> None:
        async with (
            serving(host=OTHER) as other,
            serving(host="127.0.0.1", port=int(here.trap.address.rpartition(":")[2])),
        ):
            name = "localhost" if allowed == "localhost" else PRIVATE
            hop = here.to(way, other.url("/good"), here.trap).replace(PRIVATE, name)
            ended = await crawl(Reads(here.to("/leads?to=", hop)), allow_private=[allowed])
            refused(ended, other.url("/good"), OTHER)
            assert other.connections == 0

    playing(play)


# --- proxies, caches, later runs


@pytest.mark.parametrize("where", ["setting", "meta"])
def test_the_guard_applies_through_a_proxy_on_a_private_address(where):
    """The proxy resolves names, but private addresses in URLs are refused. That the proxy itself is private says
    nothing about the page."""

    async def play(here: World) -> None:
        meta = {"proxy": here.trap.url()} if where == "meta" else {}
        port = here.site.address.rpartition(":")[2]
        literal, local = f"http://{OTHER}:{port}/good", f"http://localhost:{port}/good"
        named = f"http://other.example:{port}/good"

        class Through(Reads):
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
        setting = {"proxy": here.trap.url()} if where == "setting" else {}
        ended = await crawl(Through(*pages), **setting)
        assert dict(ended.summary.dead) == {literal: REASON.format(OTHER), local: REASON.format("localhost")}
        assert sorted(here.trap.paths()) == sorted([*pages, named])

    playing(play)


@pytest.mark.parametrize("way", ["/leads?to=", "/redirect-to?url="])
def test_the_guard_holds_in_a_later_run(tmp_path, way):
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        kept = {"state": str(tmp_path / "state"), "output": str(tmp_path / "items.jsonl")}

        class Quits:
            def process_request(self, request):
                spider.crawler.stop()

        spider = Reads(here.to(way, target))
        first = await crawl(spider, **kept, concurrency=1, downloader_middlewares={Quits: 1})
        assert (first.summary.finished, first.summary.dead, here.site.connections) == (False, [], 1)
        second = await crawl(Reads(here.to(way, target)), **kept)
        refused(second, target)
        assert second.summary.resumed
        assert here.trap.connections == 0

    playing(play)


@pytest.mark.parametrize("way", ["/leads?to=", "/redirect-to?url="])
def test_pages_from_the_cache_are_guarded(tmp_path, way):
    async def play(here: World) -> None:
        target = here.trap.url("/good")
        cache = {"http_cache": "replay", "http_cache_dir": str(tmp_path)}
        for _ in range(2):
            refused(await crawl(Reads(here.to(way, target)), **cache), target)
        assert (here.site.connections, here.trap.connections) == (1, 0)

    playing(play)


def test_guarded_requests_do_not_reuse_connections_to_private_hosts():
    """Private pages are read over connections that guarded requests must not use."""

    async def play(here: World) -> None:
        own = [here.trap.url(f"/good?{number}") for number in range(20)]
        theirs = [here.trap.url(f"/good?public{number}") for number in range(20)]
        pages = [here.to("/leads?to=", url) for url in theirs]
        mixed = [url for pair in zip(own, pages, strict=True) for url in pair]
        ended = await crawl(Reads(*mixed), concurrency=4)
        assert dict(ended.summary.dead) == dict.fromkeys(theirs, REASON.format(PRIVATE))
        assert sorted(here.trap.url(path) for path in here.trap.paths()) == sorted(own)
        assert here.site.connections <= 8

    playing(play)
