"""Crawls through a pool of proxies: bans and dead proxies lose no page, sessions keep their proxy and cookies, and a
crawl without working proxies reports the outage and ends.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import lycosa
from lycosa import Request, Spider
from lycosa.app.proxies.pools import open_pool
from lycosa.core.errors import BadSetting
from lycosa.proxies.core.pool import health
from lycosa.proxies.core.proxy import parse_proxy
from tests.pace import assert_paced, gaps_of
from tests.servers.banning import Banning, BanResponse, banning
from tests.servers.ports import closed_port
from tests.servers.proxies import Dante, Microsocks, RealProxy, Squid, Tinyproxy, new_address, running
from tests.servers.proxy import Proxy, proxying

QUICK = {"retries": 1, "backoff_base": 0, "commit_every": 0.01, "connect_timeout": 5, "log_level": "CRITICAL"}
LOGIN = {"user": "ann", "password": "se@same:5"}
SOFT_BANS = '[[proxies.default.rules]]\nblame = "site"\nreason = "soft ban"\nbody = "Just a moment"\n'
NO_GUARD = "guarded = false\n"


class Tree(Spider):
    """Follows every link from page 0."""

    name = "tree"

    def __init__(self, server: Banning, site: int = 0) -> None:
        super().__init__()
        self.start_urls = [server.url(site=site)]

    def parse(self, response):
        yield {"url": response.url}
        for link in response.css("a::attr(href)").getall():
            yield response.follow(link)


class RequestsInOrder(Spider):
    """Requests URLs with this meta, in order."""

    name = "requests-in-order"

    def __init__(self, urls: list[str], **meta: Any) -> None:
        super().__init__()
        self.urls, self.meta = urls, meta
        self.failures: list[str] = []

    async def start(self):
        for number, url in enumerate(self.urls):
            yield Request(url, meta=self.meta, priority=-number, errback="failed")

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "meta": dict(response.meta)}

    def failed(self, failure):
        self.failures.append(f"{failure.value!r} {getattr(failure.value, 'response', None)!r}")


def run(scenario: Callable[[Banning], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(600), banning(**options) as server:
            await scenario(server)

    asyncio.run(main())


def project(folder: Path, monkeypatch: pytest.MonkeyPatch, default: str) -> None:
    """Change into a project with this default policy."""
    (folder / "lycosa.toml").write_text(f"[proxies.default]\n{default}")
    monkeypatch.chdir(folder)


async def start_proxies(stack: AsyncExitStack, count: int, **options: Any) -> list[Proxy]:
    return [await stack.enter_async_context(proxying(exit=new_address(), **options)) for _ in range(count)]


def write_list(folder: Path, proxies: list[Any], name: str = "proxies.txt") -> str:
    urls = [getattr(each, "url_with_login", None) or getattr(each, "url", each) for each in proxies]
    (folder / name).write_text("".join(f"{url}\n" for url in urls))
    return str(folder / name)


async def crawl(spider: Spider, pool: str, meanwhile: Callable[[Any], Any] | None = None, **settings: Any) -> Any:
    async with lycosa.Crawl(spider, **{**QUICK, "proxy_pool": pool, **settings}) as crawl:
        other = asyncio.create_task(meanwhile(crawl)) if meanwhile is not None else None
        summary = await crawl.run()
        if other is not None:
            await other
        spider.items = crawl.items
        return summary


def all_pages(server: Banning, site: int = 0) -> set[str]:
    return {"/", *(f"/page/{number}" for number in range(1, server.page_count))}


@pytest.mark.proxies
def test_all_requests_go_through_the_pool(tmp_path):
    """The requests are those of pages, of robots.txt, and of callbacks that fetch inline. No login is exposed."""

    class FetchesInline(Tree):
        async def parse(self, response):
            inner = await self.fetch(response.url.replace("/page", "/page/page") + "?inline")
            yield {"status": inner.status, "meta": dict(response.meta), "request": repr(response.request)}
            for item in super().parse(response):
                yield item

    async def scenario(server: Banning) -> None:
        proxies: list[RealProxy] = [
            Tinyproxy(user="ann", password="secret"),
            Squid(**LOGIN),
            Microsocks(**LOGIN),
            Dante(),
        ]
        with running(*proxies):
            spider = FetchesInline(server)
            summary = await crawl(spider, write_list(tmp_path, proxies))
        assert summary.reasons == {"200": 50}
        assert {hit.ip for hit in server.hits} == {each.exit for each in proxies}
        assert server.hits[0].path == "/robots.txt"
        assert server.by_client().total() == 1 + 50 + 50 == summary.stats["proxy/leases"]
        assert "same" not in repr(spider.items)
        assert "secret" not in repr((spider.items, summary))

    run(scenario, pages=50)


@pytest.mark.proxies
@pytest.mark.parametrize("pages", [500, pytest.param(20_000, marks=pytest.mark.prove)])
def test_no_page_is_lost_while_proxies_are_killed_and_banned(tmp_path, monkeypatch, pages):
    """50 real proxies: some die, and the site bans others, with every kind of ban."""

    async def scenario(server: Banning) -> None:
        proxies = [Microsocks() for _ in range(50)]
        killed, banned = proxies[:8], proxies[8:16]

        async def cause_failures(_crawl: Any) -> None:
            await server.until(pages // 10)
            for proxy in killed:
                proxy.kill()
            for number, proxy in enumerate(banned):
                how = (BanResponse.FORBIDDEN, BanResponse.TOO_MANY, BanResponse.SOFT, BanResponse.CLOSED)[number % 4]
                server.ban(proxy.exit, how)

        project(tmp_path, monkeypatch, f"guarded = false\n{SOFT_BANS}")
        with running(*proxies):
            spider = Tree(server)
            # At worst a page is sent through all killed and banned proxies in turn.
            tries = 1 + len(killed) + len(banned)
            summary = await crawl(spider, write_list(tmp_path, proxies), cause_failures, proxy_tries=tries)
        assert summary.dead == []
        assert summary.reasons == {"200": server.page_count}
        assert set(server.pages()) == all_pages(server)
        assert len(spider.items) == server.page_count
        assert summary.stats.get("retry/count", 0) == 0
        assert summary.stats["proxy/sent_again"] >= len(killed) + len(banned)

    run(scenario, pages=pages)


def test_a_page_forbidden_to_all_proxies_is_dead_after_retries(tmp_path):
    """After `proxy_tries` proxies the page is retried like any failed page. After the last retry the page is dead, and
    the errback gets the response. At most two proxies per attempt are blamed.
    """

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 12)
            for proxy in proxies:
                server.ban(proxy.exit)
            spider = RequestsInOrder([server.url("/page/1")])
            summary = await crawl(spider, write_list(tmp_path, proxies), robots=False, proxy_tries=3)
            assert summary.reasons == {"through 3 proxies: 403": 1}
            assert spider.failures == ["HttpError('403') <403 " + server.url("/page/1") + ">"]
            assert len(server.hits) == 6
            assert len({hit.ip for hit in server.hits}) >= 4
            counts = {name: summary.stats.get(f"proxy/{name}") for name in ("leases", "sent_again", "given_up")}
            assert counts == {"leases": 6, "sent_again": 4, "given_up": 2}
            assert summary.stats["retry/count"] == 1

    run(scenario)


def test_a_callback_can_get_the_response_of_a_ban(tmp_path):
    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 4)
            for proxy in proxies:
                server.ban(proxy.exit)
            spider = RequestsInOrder([server.url("/page/1")], handle_httpstatus_list=[403])
            summary = await crawl(spider, write_list(tmp_path, proxies), robots=False, proxy_tries=2, retries=0)
            assert [item["status"] for item in spider.items] == [403]
            assert (summary.dead, len(server.hits)) == ([], 2)

    run(scenario)


def test_banned_responses_are_not_cached(tmp_path, monkeypatch):
    """A soft ban has status 200, and must not be cached."""

    async def scenario(server: Banning) -> None:
        project(tmp_path, monkeypatch, SOFT_BANS)
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 4)
            pool, cached = (
                write_list(tmp_path, proxies),
                {"http_cache": "replay", "http_cache_dir": str(tmp_path / "cache")},
            )
            for proxy in proxies:
                server.ban(proxy.exit, BanResponse.SOFT)
            spider = RequestsInOrder([server.url("/page/1")])
            summary = await crawl(spider, pool, robots=False, proxy_tries=2, retries=0, **cached)
            assert summary.reasons == {"through 2 proxies: soft ban": 1}
            for proxy in proxies:
                server.unban(proxy.exit)
            for _ in range(2):
                second = RequestsInOrder([server.url("/page/1")])
                await crawl(second, pool, robots=False, **cached)
                assert [item["status"] for item in second.items] == [200]
            assert len(server.hits) == 3, "the last page came from the cache, without a proxy"

    run(scenario)


def test_inline_requests_are_retried_through_other_proxies(tmp_path):
    """`await self.fetch` and its robots.txt get no banned response."""

    class FetchesInline(Spider):
        name = "fetches-inline"

        def __init__(self, url, other):
            super().__init__()
            self.start_urls, self.other = [url], other

        async def parse(self, response):
            self.begin()
            for number in range(5):
                inner = await self.fetch(f"{self.other}page/{number}")
                yield {"status": inner.status}

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 4)

            def cause_failures() -> None:
                for proxy in proxies:
                    proxy.drops = 1  # the first attempts, which fetch robots.txt
                for proxy in proxies[:3]:
                    server.ban(proxy.exit, site=1)

            spider = FetchesInline(server.url(), server.url(site=1))
            spider.begin = cause_failures
            summary = await crawl(spider, write_list(tmp_path, proxies))
            assert (summary.reasons, summary.dead) == ({"200": 1}, [])
            assert [item["status"] for item in spider.items] == [200] * 5
            assert [hit.path for hit in server.hits if hit.site == 1][:5] == ["/robots.txt"] * 5
            assert summary.stats["proxy/sent_again"] >= 4

    run(scenario, sites=2)


@pytest.mark.redis
def test_a_pool_on_redis_keeps_bans_for_the_next_crawl(tmp_path, redis):
    """The second crawl does not use the proxy that was banned in the first one."""

    async def scenario(server: Banning) -> None:
        address = f"{redis.url}?pool={tmp_path.name}"
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 4)
            server.ban(
                proxies[0].exit, BanResponse.TOO_MANY, for_s=600
            )  # the Retry-After fixes the cool-down: other cool-downs are random
            pool = await open_pool(address, create=True)
            await pool.add(parse_proxy(proxy.url) for proxy in proxies)
            await pool.close()
            for number in range(2):
                urls = [server.url(f"/page/{page}?{number}") for page in range(30)]
                summary = await crawl(RequestsInOrder(urls), address, robots=False)
                assert summary.reasons == {"200": 30}
            assert server.by_client()[proxies[0].exit] == 1
            assert len(server.hits) == 61

    run(scenario)


def test_requests_with_tags_use_proxies_with_these_tags(tmp_path):
    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 4)
            lines = [f"{each.url} country={'de' if number == 2 else 'fr'}" for number, each in enumerate(proxies)]
            spider = RequestsInOrder(
                [server.url(f"/page/{number}") for number in range(5)], proxy_tags={"country": "de"}
            )
            summary = await crawl(spider, write_list(tmp_path, lines), robots=False)
            assert summary.reasons == {"200": 5}
            assert set(server.by_client()) == {proxies[2].exit}

    run(scenario)


def test_a_404_is_not_blamed_on_the_proxy(tmp_path):
    """It is a response of the site, so it is not retried."""

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 3)
            spider = RequestsInOrder([server.url(f"/no/{number}") for number in range(5)])
            summary = await crawl(spider, write_list(tmp_path, proxies), robots=False)
            assert (summary.reasons, len(server.hits)) == ({"404": 5}, 5)
            assert summary.stats["proxy/outcomes/nobody"] == 5

    run(scenario)


def test_a_proxy_that_refuses_its_login_is_not_used_again(tmp_path, monkeypatch):
    # On a busy machine, the crawl may outlast the usual cool-downs, which are random.
    monkeypatch.setattr(health, "DOWN_S", 1e6)
    monkeypatch.setattr(health, "DOWN_MAX_S", 1e6)

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            right, wrong = await start_proxies(stack, 1, **LOGIN) + await start_proxies(stack, 1, **LOGIN)
            pool = write_list(tmp_path, [right, wrong])
            wrong.password = "another"
            summary = await crawl(Tree(server), pool)
            assert summary.reasons == {"200": 50}
            assert len(wrong.requests) <= 2
            assert len(right.requests) == 51

    run(scenario, pages=50)


def test_the_proxy_of_a_request_takes_precedence(tmp_path):
    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            pooled, own = await start_proxies(stack, 2)
            pool = write_list(tmp_path, [pooled])
            await crawl(RequestsInOrder([server.url("/page/1")], proxy=own.url), pool, robots=False)
            await crawl(RequestsInOrder([server.url("/page/1")], proxy=""), pool, robots=False)
            assert [hit.ip for hit in server.hits] == [own.exit, "127.0.0.1"]
            assert pooled.requests == []

    run(scenario)


def test_a_ban_by_one_site_does_not_apply_to_another(tmp_path):
    """A proxy banned by one site is still used for the other."""

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 2)
            server.ban(proxies[0].exit, BanResponse.TOO_MANY, site=0, for_s=600)
            urls = [server.url(f"/page/{number}", site=site) for number in range(20) for site in (0, 1)]
            summary = await crawl(RequestsInOrder(urls), write_list(tmp_path, proxies), robots=False)
            assert summary.reasons == {"200": 40}
            assert server.by_client(0)[proxies[0].exit] <= 1
            assert server.by_client(1)[proxies[0].exit] >= 5

    run(scenario, sites=2)


def test_a_session_keeps_its_proxy_and_its_cookies(tmp_path):
    """Each session has one proxy and one cookie jar; after a ban both are new."""

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 6)
            pool = write_list(tmp_path, proxies)

            class FollowsSteps(Spider):
                name = "follows-steps"

                async def start(self):
                    for session in ("ann", "bob"):
                        yield self.next(session, 0)

                def next(self, session, step):
                    url = server.url(f"/page/{step}?{session}")
                    return Request(url, meta={"proxy_session": session}, cb_kwargs={"session": session, "step": step})

                def parse(self, response, session, step):
                    if (session, step) == ("ann", 4):
                        server.ban(next(hit.ip for hit in reversed(server.hits) if hit.path.endswith("ann")))
                    if step < 9:
                        yield self.next(session, step + 1)

            summary = await crawl(FollowsSteps(), pool, robots=False)
            assert summary.reasons == {"200": 20}
            hits = {name: [hit for hit in server.hits if hit.path.endswith(name)] for name in ("ann", "bob")}
            assert len({hit.ip for hit in hits["bob"]}) == 1
            assert Counter(hit.cookie for hit in hits["bob"]).most_common(1)[0][1] == 9
            ann = [(hit.ip, hit.cookie) for hit in hits["ann"] if hit.good]
            first, second = ann[:5], ann[5:]
            assert (len({ip for ip, _ in first}), len({ip for ip, _ in second})) == (1, 1)
            assert first[0][0] != second[0][0]
            assert first[0][1] == second[0][1] == "", "a new proxy has no cookies"
            assert len({cookie for _, cookie in first[1:]}) == len({cookie for _, cookie in second[1:]}) == 1
            assert summary.stats["proxy/sessions_rebound"] == 1

    run(scenario, pages=10)


def test_a_resumed_session_with_another_proxy_starts_with_new_cookies(tmp_path):
    """The jar is stored with the crawl, but the pool in memory is not: the new proxy must not send the old cookies."""

    async def scenario(server: Banning) -> None:
        stored = {"state": str(tmp_path / "state"), "output": str(tmp_path / "items.jsonl"), "robots": False}
        async with AsyncExitStack() as stack:
            for number, proxy in enumerate(await start_proxies(stack, 2)):
                pool = write_list(tmp_path, [proxy], f"{number}.txt")
                await crawl(RequestsInOrder([server.url(f"/page/{number}")], proxy_session="ann"), pool, **stored)
                await crawl(RequestsInOrder([server.url(f"/page/{number}?again")], proxy_session="ann"), pool, **stored)
        cookies = [hit.cookie for hit in server.hits]
        assert cookies == ["", "seen=1", "", "seen=2"]

    run(scenario)


@pytest.mark.parametrize("cause", ["all are down", "all are banned"])
def test_an_outage_is_reported_and_ends_the_crawl(tmp_path, caplog, cause):
    """The crawl does not hang, and the records wait for the next run."""

    async def scenario(server: Banning) -> None:
        stored = {"state": str(tmp_path / "state"), "output": str(tmp_path / "items.jsonl"), "log_level": "WARNING"}
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 3)
            pool = write_list(
                tmp_path, proxies if cause == "all are banned" else [f"127.0.0.1:{closed_port()}" for _ in "12"]
            )
            for proxy in proxies:
                server.ban(proxy.exit)
            urls = [server.url("/page/1")]
            summary = await crawl(RequestsInOrder(urls), pool, robots=False, proxy_wait=1.5, proxy_tries=9, **stored)
            assert (summary.closing, summary.dead, summary.snapshot.queued) == ("no proxy", [], 1)
            counts = [record.getMessage() for record in caplog.records if "proxy_wait" in record.getMessage()]
            assert len(counts) == 2
            assert "waits, for up to 1.5 s (proxy_wait)" in counts[0]
            assert "(proxy_wait): the crawl ends" in counts[1]
            assert "cooling" in counts[0]
            for proxy in proxies:
                server.unban(proxy.exit)
            second = await crawl(RequestsInOrder(urls), write_list(tmp_path, proxies), robots=False, **stored)
            assert second.reasons == {"200": 1}

    run(scenario)


def test_a_crawl_waits_until_proxies_work_again(tmp_path, monkeypatch):
    """Waiting costs no retries; robots.txt waits, too."""

    async def scenario(server: Banning) -> None:
        project(tmp_path, monkeypatch, "cool_s = 1.0\nmax_cool_s = 1.0\n")
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 2)
            for proxy in proxies:
                proxy.password = proxy.user = "nobody"

            async def repair_later(_crawl: Any) -> None:
                await asyncio.sleep(1.0)
                for proxy in proxies:
                    proxy.password = proxy.user = ""

            pool = write_list(tmp_path, [f"http://{proxy.address}" for proxy in proxies])
            summary = await crawl(Tree(server), pool, repair_later, retries=0, proxy_tries=99, proxy_wait=60)
            assert summary.reasons == {"200": 20}
            assert summary.dead == []

    run(scenario, pages=20)


def test_targets_with_free_proxies_continue_while_others_wait(tmp_path):
    """A site without proxies does not block another one whose few proxies are always busy."""

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 3)
            for proxy in proxies:
                server.ban(proxy.exit, site=0)
            urls = [server.url(f"/page/{number}", site=0) for number in range(30)]
            urls += [server.url(f"/page/{number}", site=1) for number in range(60)]
            summary = await crawl(
                RequestsInOrder(urls),
                write_list(tmp_path, proxies),
                robots=False,
                concurrency=8,
                proxy_wait=5,
                proxy_tries=99,
            )
            assert len(server.pages(site=1)) == 60
            assert (summary.closing, summary.snapshot.queued) == ("no proxy", 30)

    run(scenario, sites=2)


def test_the_delay_of_a_host_applies_to_retries_through_other_proxies(tmp_path):
    """`delay` applies to the host, whichever proxies its requests go through."""

    async def scenario(server: Banning) -> None:
        async with AsyncExitStack() as stack:
            proxies = await start_proxies(stack, 8)
            for proxy in proxies[:3]:
                server.ban(proxy.exit)
            summary = await crawl(Tree(server), write_list(tmp_path, proxies), delay=0.1)
            assert summary.reasons == {"200": 12}
            assert len(server.hits) > 13, "some were banned"
            assert_paced(gaps_of(hit.at for hit in server.hits), 0.1)

    run(scenario, pages=12)


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("", {}, "has no proxies"),
        ("# none\n127.0.0.1\n", {}, "has no proxies"),
        ("<html>", {}, "this is a page"),
        ("127.0.0.1:1\n", {"proxy": "http://127.0.0.1:1"}, "proxy and proxy_pool"),
    ],
)
def test_an_unusable_pool_is_an_error_before_the_crawl(tmp_path, text, settings, message):
    (tmp_path / "proxies.txt").write_text(text)
    with pytest.raises(BadSetting, match=message):
        asyncio.run(crawl(RequestsInOrder(["http://127.0.0.1:1/"]), str(tmp_path / "proxies.txt"), **settings))


def test_invalid_lines_of_a_list_are_reported_and_skipped(tmp_path, caplog):
    async def scenario(server: Banning) -> None:
        async with proxying() as proxy:
            pool = write_list(tmp_path, [proxy, "ftp://ann:secret@127.0.0.1:1", "here"])
            summary = await crawl(RequestsInOrder([server.url("/page/1")]), pool, robots=False, log_level="WARNING")
            assert summary.reasons == {"200": 1}
        counts = [record.getMessage() for record in caplog.records if "lines skipped" in record.getMessage()]
        assert len(counts) == 1
        assert "2 lines skipped; the first: line 2: ftp:// is not a kind of proxy" in counts[0]
        assert "secret" not in caplog.text

    run(scenario)
