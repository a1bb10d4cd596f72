"""The pages of a proxy pool over real sockets: what they show, and that hostile names do no harm."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from lycosa.proxies.api import history as history_module
from lycosa.proxies.api import snapshot_cache
from lycosa.proxies.api.app import build_app
from lycosa.proxies.api.drawing import BAR, EDGE, HEIGHT, PART_MIN, WIDTH, bar, sparkline
from lycosa.proxies.api.history import SAMPLES_MAX, History
from lycosa.proxies.api.pages import format_latency
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.pool import LocalPool
from tests.servers.web_server import Server, running

EVIL = "<script>alert(1)</script>\"'&.example"
PAGES = (
    "/",
    "/proxies",
    "/target?name=shop.example",
    "/target?name=new.example",
    "/api",
    "/nowhere",
    "/proxies?page=9",
)


class FakeClock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


async def fill(pool: LocalPool, now: FakeClock) -> None:
    """Add proxies in every state, with and without logins, tags and prices, and a target with a hostile name."""
    many = [Proxy("http", f"10.0.0.{number}", 8080, tags={"country": "de"}) for number in range(1, 13)]
    expensive = Proxy("socks5h", "gate.example", 1080, "ann", "hunter2", {"provider": "acme"}, price_gb=4.5)
    await pool.add([*many, expensive])
    for number, proxy in enumerate(many):
        await pool.report_check(proxy.key, Outcome(latency_s=0.05 * (number + 1)), f"9.9.9.{number}")
    for _ in range(5):
        now.now += 4000
        await pool.report_check(many[11].key, Outcome(Blame.PROXY, "connection refused"))
    (leased,) = await pool.acquire("shop.example", request=ProxyRequest({"country": "de"}))
    others = [each for each in many[:11] if each != leased.proxy]
    await pool.ban("shop.example", others[0].key, reason="complaint")
    excluded = frozenset(each.key for each in [*many, expensive] if each != others[1])
    (lease,) = await pool.acquire("shop.example", request=ProxyRequest(avoid=excluded))
    await pool.release(lease, [Outcome(Blame.SITE, "429 <b>slow</b>", rest_s=600.0)])
    await pool.acquire(EVIL)


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    now = FakeClock()
    pool = LocalPool(now=now)
    asyncio.run(fill(pool, now))
    with running(build_app(pool, name="redis://db:6379/0?pool=main", now=now)) as server:
        yield server


def rows(page: str) -> list[str]:
    return re.findall(r"<tr.*?</tr>", page.partition("<tbody>")[2], re.DOTALL)


def text(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def test_the_home_page_shows_the_pool_and_its_targets(site: Server) -> None:
    page = site.get("/").text
    assert "13" in text(page)
    evil, shop = sorted(rows(page), key=lambda row: "shop.example" in row)
    assert "1 leased" in text(shop)
    assert "1 banned" in text(shop)
    assert "1 cooling" in text(shop)
    assert 'aria-label="shop.example: ' in shop, "screen readers read the bar"
    assert "<script>alert" not in page
    assert f'href="/target?name={quote(EVIL, safe="")}"' in evil


def test_the_page_of_a_target_explains_each_proxy(site: Server) -> None:
    texts = [text(row) for row in rows(site.get("/target?name=shop.example").text)]
    assert len(texts) == 13
    assert "may be leased next" in texts[0]
    explained = "\n".join(texts)
    assert "banned until someone lifts the ban (complaint)" in explained
    assert re.search(
        r"cools down until \d\d:\d\d:\d\d UTC \(in 1[01] min[^)]*\) \(429 &lt;b&gt;slow&lt;/b&gt;\)", explained
    )
    assert re.search(r"leased: its lease ends \d\d:\d\d:\d\d UTC \(in 1 min\)", explained)
    assert "ready, but a cheaper proxy is usable" in explained
    assert "dead until a check finds it working (connection refused)" in explained
    assert "hunter2" not in explained


def test_a_cool_down_for_all_targets_is_explained_with_its_reason() -> None:
    now = FakeClock()
    pool = LocalPool(now=now)
    proxy = Proxy("http", "10.0.0.1", 8080)
    asyncio.run(pool.add([proxy]))
    asyncio.run(pool.report_check(proxy.key, Outcome(Blame.PROXY, "connection refused")))
    with running(build_app(pool, now=now)) as server:
        assert re.search(
            r"cools down until [^(]+\(in [^)]+\) \(connection refused\)", server.get("/target?name=shop.example").text
        )
        (verdict,) = json.loads(server.get("/api/explain?target=shop.example").text)["verdicts"]
    assert (verdict["why"], verdict["reason"]) == ("cooling", "connection refused")


def test_a_target_is_explained_for_a_request_with_tags(site: Server) -> None:
    page = site.get("/target?name=shop.example&tag=provider%3Dacme").text
    texts = [text(row) for row in rows(page)]
    assert "socks5h://gate.example:1080#" in texts[0]
    assert "may be leased next (100% chance)" in texts[0]
    assert "lacks the requested tags (provider=acme)" in texts[-1]
    assert 'value="provider=acme"' in page


def test_viewing_an_unknown_target_does_not_add_it(site: Server) -> None:
    assert "No proxy has been requested for this target yet" in site.get("/target?name=new.example").text
    assert "new.example" not in site.get("/").text
    evil = site.get(f"/target?name={quote(EVIL)}")
    assert (evil.status, "<script>alert" in evil.text) == (200, False)


def test_the_list_of_all_proxies_can_be_filtered(site: Server) -> None:
    assert len(rows(site.get("/proxies").text)) == 13
    (dead,) = rows(site.get("/proxies?state=dead").text)
    assert "connection refused" in dead
    assert len(rows(site.get("/proxies?tag=provider%3Dacme").text)) == 1
    assert "No proxy matches" in site.get("/proxies?tag=a%3Db").text
    for bad in ("state=x", "tag=x", "page=x"):
        response = site.get(f"/proxies?{bad}")
        assert (response.status, "Invalid request" in response.text) == (400, True)


@pytest.mark.parametrize("path", PAGES)
def test_pages_obey_the_content_policy_and_link_to_this_server_only(site: Server, path: str) -> None:
    response = site.get(path)
    assert response.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script", response.text)
    for address in re.findall(r'<(?:link|img|a)[^>]+(?:href|src)="([^"]+)"', response.text):
        if not address.startswith("#"):
            assert site.get(address.replace("&amp;", "&")).status == 200, address


def test_long_tables_have_pages() -> None:
    pool = LocalPool()
    asyncio.run(pool.add([Proxy("http", f"10.0.{number // 250}.{number % 250}", 80) for number in range(250)]))
    with running(build_app(pool)) as server:
        assert len(rows(server.get("/proxies").text)) == 100
        page = server.get("/proxies?page=3").text
        assert (len(rows(page)), 'rel="next"' in page, "page 3 of 3" in page) == (50, False, True)
        assert 'href="/proxies?page=2"' in page
        assert server.get("/proxies?page=4").status == 404


def test_samples_of_the_history_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        now = FakeClock()
        pool = LocalPool(now=now)
        await fill(pool, now)
        history = History(pool, now)
        for _ in range(SAMPLES_MAX + 5):
            await history.sample()
        line = history.series("shop.example")
        assert len(line) == SAMPLES_MAX
        assert len(history.series()) == SAMPLES_MAX
        assert history.series()[-1] == pytest.approx(0.325)
        assert history.series("nowhere") == []
        monkeypatch.setattr(history_module, "SERIES_MAX", 20)
        await history.sample()
        assert len(history._series) == 20

    asyncio.run(story())


def test_a_slow_list_of_proxies_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    class CountingPool(LocalPool):
        async def proxies(self, target: str | None = None) -> Any:
            nonlocal calls
            calls += 1
            return await super().proxies(target)

    async def story(fast_s: float) -> int:
        nonlocal calls
        monkeypatch.setattr(snapshot_cache, "FAST_S", fast_s)
        monkeypatch.setattr(snapshot_cache, "HOLD_FACTOR", 1e9)
        calls, cache = 0, snapshot_cache.SnapshotCache(CountingPool())
        await asyncio.gather(*(cache.proxies() for _ in range(5)))
        return calls

    assert asyncio.run(story(-1.0)) == 1
    assert asyncio.run(story(1e9)) == 5


def test_a_sparkline_has_gaps_where_values_are_unknown() -> None:
    assert sparkline([]) is None
    assert sparkline([None, None]) is None
    drawn = sparkline([0.1, 0.2, None, 0.2, 0.2])
    assert drawn is not None
    assert len(drawn.pieces) == 2
    assert drawn.pieces[0].split()[0] == f"{EDGE},{HEIGHT - EDGE}"
    assert drawn.end == pytest.approx((WIDTH - EDGE, EDGE))
    assert sparkline([0.0, 0.0]) is not None
    flat = sparkline([0.100, 0.101])
    assert flat is not None
    assert flat.end is not None
    assert HEIGHT / 3 < flat.end[1] < HEIGHT / 2, "a small change looks small"


def test_the_smallest_part_of_a_bar_is_visible() -> None:
    parts = bar({ProxyState.READY: 100_000, ProxyState.BANNED: 1, ProxyState.DEAD: 0})
    assert [part.state for part in parts] == [ProxyState.READY, ProxyState.BANNED]
    assert parts[1].width > PART_MIN * 0.9
    assert sum(part.width for part in parts) == pytest.approx(BAR, abs=0.1)
    assert bar({}) == []


def test_latencies_are_formatted_in_milliseconds() -> None:
    assert [format_latency(each) for each in (None, 0.0123, 1.5)] == ["\N{EN DASH}", "12 ms", "1,500 ms"]
