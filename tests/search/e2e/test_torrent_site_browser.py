"""The torrent site in headless Chromium: a visit from search to torrent, narrow screens, both themes, few bytes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from tests.search.e2e.browsing import NARROW, contrast, luminance, screen, style, texts, wait
from tests.search.site.torrents.sample_torrents import HASHES, torrent_site
from tests.servers.web_server import Server

pytestmark = pytest.mark.browser

PAGES = ("/", "/search?q=show", "/search?q=common&page=2", "/search?q=zebra", f"/torrent/{HASHES[1]}?q=show")
PAGES += (f"/torrent/{HASHES[3]}", "/browse", "/statistics", "/api")


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Server]:
    with torrent_site(tmp_path_factory.mktemp("site")) as site:
        yield site.server


def test_a_visitor_searches_filters_turns_pages_and_opens_a_torrent(browser, site):
    browser.get(site.url)
    browser.find_element(By.ID, "q").send_keys("great OR common", Keys.ENTER)
    wait(browser, lambda each: "q=great" in each.current_url)
    assert texts(browser, ".found")[0].startswith("47 results in ")
    browser.find_element(By.CSS_SELECTOR, "a[rel=next]").click()
    wait(browser, lambda each: "page=2" in each.current_url)
    browser.find_element(By.CSS_SELECTOR, ".filters summary").click()
    Select(browser.find_element(By.NAME, "type")).select_by_visible_text("Video")
    Select(browser.find_element(By.NAME, "sort")).select_by_visible_text("newest")
    browser.find_element(By.CSS_SELECTOR, ".apply").click()
    wait(browser, lambda each: "type=video" in each.current_url)
    assert texts(browser, ".result h2") == ["Great.Show.S01E02.2160p.HEVC", "Great.Show.S01E01.1080p.x264"]
    browser.find_element(By.CSS_SELECTOR, ".result h2 a").click()
    wait(browser, lambda each: "/torrent/" in each.current_url)
    assert texts(browser, "h1 b") == ["Great"]
    assert browser.find_element(By.CSS_SELECTOR, ".actions a").get_attribute("href").startswith("magnet:?xt=")
    assert texts(browser, ".tree .file") == ["en.srt", "Great.Show.S01E02.mkv"]


def test_words_are_completed_while_typing(browser, site):
    browser.get(site.url)
    browser.find_element(By.ID, "q").send_keys("common alb")
    values = "return [...document.querySelectorAll('#suggestions option')].map(option => option.value)"
    wait(browser, lambda each: each.execute_script(values) == ["common album"])


@pytest.mark.parametrize("path", PAGES)
def test_narrow_screen_needs_no_horizontal_scrolling(browser, site, path):
    screen(browser, NARROW)
    browser.get(site.url + path)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(browser, site, scheme):
    screen(browser, scheme=scheme)
    browser.get(f"{site.url}/search?q=show&type=video")
    background = style(browser, "body", "background-color")
    assert (luminance(background) > 0.5) == (scheme == "light")
    for selector in ("body", ".found", ".result h2 a", ".facts", ".facets .label", ".exports", ".filters summary"):
        assert contrast(style(browser, selector, "color"), background) >= 4.5, selector
    for selector in (".result h2 b", ".apply"):
        assert contrast(style(browser, selector, "color"), style(browser, selector, "background-color")) >= 4.5, (
            selector
        )


@pytest.mark.parametrize("path", ["/", "/search?q=common", f"/torrent/{HASHES[1]}", "/statistics"])
def test_a_page_with_all_that_it_loads_has_at_most_60_kilobytes(browser, site, path):
    browser.execute_cdp_cmd("Network.clearBrowserCache", {})
    browser.get(site.url + path)
    sizes = "return performance.getEntries().map(each => each.transferSize || 0)"
    assert 1000 < sum(browser.execute_script(sizes)) <= 60_000
