"""The pages of a proxy pool in headless Chromium: wide, narrow, light, dark, without JavaScript."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from lycosa.proxies.api.app import build_app
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.pool import LocalPool
from tests.proxies.api.test_pages import EVIL, PAGES, FakeClock, fill
from tests.search.e2e.browsing import NARROW, screen, texts, wait
from tests.search.e2e.conftest import browser, chromium
from tests.servers.web_server import Server, running

__all__ = ["browser", "chromium"]

pytestmark = pytest.mark.browser


CUT_OFF = """
return [...document.querySelectorAll(".scroll, .scroll th, .scroll td, .scroll td > *")]
    .filter(each => each.scrollWidth > each.clientWidth && getComputedStyle(each).display != "inline"
            && !each.closest("thead"))
    .map(each => each.textContent.trim().replace(/\\s+/g, " "))
"""
"""The texts that are wider than their cells."""


async def add_long_names(pool: LocalPool) -> None:
    """Add proxies with long names, as providers have them, to a pool and a target."""
    host = "a-gateway-that-somebody-rents.eu-central-1.residential.provider.example"
    tags = {"country": "de", "provider": "residential", "city": "frankfurt-am-main", "source": "a-list-of-somebody"}
    proxies = [
        Proxy("https", host, 22225, "customer-1", "secret", tags, price_gb=12.5),
        Proxy("socks5h", "203.0.113.101", 18080, "ann", "secret", {"country": "de", "provider": "acme"}),
        Proxy("http", "[2001:db8:85a3:8d3:1319:8a2e:370:7348]", 13128),
    ]
    await pool.add(proxies)
    for proxy in proxies:
        await pool.report_check(proxy.key, Outcome(latency_s=1.234), "2001:db8:ffff:ffff:ffff:ffff:ffff:1")
    for proxy in proxies:
        others = frozenset(each.key for each in proxies if each != proxy)
        (lease,) = await pool.acquire("shop.example", request=ProxyRequest(avoid=others))
        await pool.release(lease, [Outcome(latency_s=12.345)] * 1234)
    await pool.ban("shop.example", proxies[1].key, reason="x" * 200)


@pytest.fixture(scope="module")
def site() -> Iterator[Server]:
    now = FakeClock()
    pool = LocalPool(now=now)
    asyncio.run(fill(pool, now))
    with running(build_app(pool, name="pool", now=now)) as server:
        yield server


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, NARROW])
def test_every_page_fits(site: Server, browser: WebDriver, width: int, scheme: str) -> None:
    screen(browser, width, scheme)
    for path in PAGES:
        browser.get(site.url + path)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width, path
        paper = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
        assert (paper == "rgba(22, 21, 18, 1)") == (scheme == "dark")


@pytest.mark.parametrize("width", [1200, NARROW])
def test_long_names_hide_no_column(browser: WebDriver, width: int) -> None:
    now = FakeClock()
    pool = LocalPool(now=now)
    asyncio.run(add_long_names(pool))
    screen(browser, width)
    with running(build_app(pool, now=now)) as server:
        for path in ("/", "/proxies", "/target?name=shop.example"):
            browser.get(server.url + path)
            assert browser.execute_script(CUT_OFF) == [], path


def test_narrow_cards_hide_the_dash_of_a_proxy_without_a_reason(site: Server, browser: WebDriver) -> None:
    screen(browser, NARROW)
    browser.get(f"{site.url}/proxies")
    reasons = [each.text for each in browser.find_elements(By.CSS_SELECTOR, "td.why") if each.is_displayed()]
    assert [each.partition(",")[0] for each in reasons] == ["connection refused"]
    screen(browser, 1200)
    assert "\N{EN DASH}" in [each.text for each in browser.find_elements(By.CSS_SELECTOR, "td.why")]


def test_a_user_finds_why_a_proxy_is_banned(site: Server, browser: WebDriver) -> None:
    browser.get(site.url)
    browser.find_element(By.LINK_TEXT, "shop.example").click()
    wait(browser, lambda each: "complaint" in " ".join(texts(each, "main")))
    tag = browser.find_element(By.NAME, "tag")
    tag.send_keys("provider=acme")
    tag.submit()
    wait(browser, lambda each: "may be leased next (100% chance)" in "".join(texts(each, "tbody tr")[:1]))
    bar = browser.find_element(By.CSS_SELECTOR, "svg.states rect.s-ready")
    assert bar.value_of_css_property("fill") == "rgb(47, 143, 91)", (
        "the content security policy allows the styles of inline drawings"
    )
    browser.get(site.url)
    assert browser.find_element(By.LINK_TEXT, EVIL).is_displayed()
