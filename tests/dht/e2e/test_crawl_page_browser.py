"""The page of a DHT crawl in headless Chromium: wide, narrow, light, dark; it updates itself without JavaScript."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, Self

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from lycosa.dht.crawler import page
from lycosa.dht.crawler.page import crawl_pages
from lycosa.infra.web.small_site import serve_pages
from tests.dht.crawler.test_page import FixedMonitor
from tests.search.e2e.browsing import NARROW, screen, texts, wait
from tests.search.e2e.conftest import browser, chromium

__all__ = ["browser", "chromium"]

pytestmark = pytest.mark.browser

LONG_S = 30.0
CUT_OFF = """
return [...document.querySelectorAll(".sum, .chart, .scroll, .scroll th, .scroll td, .scroll td > *")]
    .filter(each => each.scrollWidth > each.clientWidth && getComputedStyle(each).display != "inline"
            && !each.closest("thead") && !each.matches("svg"))
    .map(each => each.textContent.trim().replace(/\\s+/g, " "))
"""
"""The texts that are wider than their boxes."""


class PageServer:
    """Serves the page of a crawl that has run for `monitor.seconds`, in a thread."""

    def __init__(self) -> None:
        self.monitor: Any = FixedMonitor(3600)
        self.url = ""
        self._is_up = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=lambda: self._loop.run_until_complete(self._serve()))
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._is_up.wait(LONG_S)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        self._task = asyncio.current_task()
        try:
            async with serve_pages("0", crawl_pages(self.monitor, "torrents"), "/", option="--page") as self.url:
                self._is_up.set()
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass


@pytest.fixture(scope="module")
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 900, NARROW])
def test_the_page_fits(site: PageServer, browser: WebDriver, width: int, scheme: str) -> None:
    screen(browser, width, scheme)
    browser.get(site.url + "?refresh=off")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script(CUT_OFF) == []
    paper = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert (paper == "rgba(22, 21, 18, 1)") == (scheme == "dark")


def test_the_lines_of_the_charts_are_drawn_in_their_colours(site: PageServer, browser: WebDriver) -> None:
    browser.get(site.url + "?refresh=off")
    lines = browser.find_elements(By.CSS_SELECTOR, ".plot polyline")
    assert len(lines) == 9
    assert {line.value_of_css_property("stroke") for line in lines} == {"rgb(43, 127, 176)", "rgb(176, 106, 18)"}
    assert all(line.size["width"] > 100 for line in lines)


def test_the_page_updates_itself_until_the_user_stops_it(
    site: PageServer, browser: WebDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "REFRESH_S", 1)
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(site.url)
        before = wait(browser, figure)
        site.monitor.seconds += 600
        after = wait(browser, lambda _: {figure(browser)} - {before, ""}).pop()
        # The page must not reload while its link is clicked, so the next page waits an hour before it updates itself.
        monkeypatch.setattr(page, "REFRESH_S", 3600)
        wait(browser, lambda _: 'content="3600' in browser.page_source)
        browser.find_element(By.LINK_TEXT, "Stop updating").click()
        wait(browser, lambda _: "Update again" in browser.page_source)
        assert "http-equiv" not in browser.page_source
        assert figure(browser) == after
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        site.monitor.seconds = 3600


def figure(browser: WebDriver) -> str:
    """Return the figure in the largest type; "" while the page is loading."""
    return "".join(texts(browser, ".big")[:1])
