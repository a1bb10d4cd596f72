"""The torrent site in headless Chromium: search, filter, page, details; no JavaScript, narrow screens, both themes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from lycosa.search.site.torrents.admin.parts import AdminParts
from lycosa.search.site.torrents.admin.passwords import hash_password
from lycosa.search.site.torrents.admin.site_store import SiteStore
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


@pytest.mark.parametrize("scripts", [True, False])
def test_search_filter_page_and_details(browser, site, scripts):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    try:
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
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_words_are_completed_while_typing(browser, site):
    browser.get(site.url)
    browser.find_element(By.ID, "q").send_keys("common alb")
    values = "return [...document.querySelectorAll('#suggestions option')].map(option => option.value)"
    wait(browser, lambda each: each.execute_script(values) == ["common album"])


def test_a_takedown_from_the_form_to_the_administrator(browser, tmp_path):
    pytest.importorskip("argon2")
    with closing(SiteStore(tmp_path / "site.sqlite")) as kept:
        kept.set_password("ada", hash_password("correct horse battery"))
        with torrent_site(tmp_path, admin=lambda store: AdminParts(kept, store)) as (server, _store, _run):
            browser.get(f"{server.url}/takedown?infohash={HASHES[0]}")
            browser.find_element(By.NAME, "reason").send_keys("It is mine.")
            browser.find_element(By.CSS_SELECTOR, "main button").click()
            wait(browser, lambda each: texts(each, "h1") == ["Request received"])
            browser.get(f"{server.url}/admin")
            browser.find_element(By.NAME, "name").send_keys("ada")
            browser.find_element(By.NAME, "password").send_keys("correct horse battery", Keys.ENTER)
            wait(browser, lambda each: texts(each, "h1") == ["Administration"])
            assert texts(browser, ".reason") == ["It is mine."]
            browser.find_element(By.CSS_SELECTOR, ".request .apply").click()
            wait(
                browser,
                lambda each: (
                    texts(each, "[role=status]") == ["The torrents were removed, and will not be stored again."]
                ),
            )
            browser.get(f"{server.url}/torrent/{HASHES[0]}")
            assert texts(browser, "h1") == ["This torrent was removed"]


def test_a_torrent_can_be_reached_by_keyboard_only(browser, site):
    browser.get(site.url)
    browser.switch_to.active_element.send_keys("needle", Keys.ENTER)
    wait(browser, lambda each: "q=needle" in each.current_url)
    for _ in range(20):
        active = browser.switch_to.active_element
        active.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        assert active.value_of_css_property("outline-style") != "none"
        if "/torrent/" in (active.get_attribute("href") or ""):
            break
    active.send_keys(Keys.ENTER)
    wait(browser, lambda each: f"/torrent/{HASHES[3]}" in each.current_url)
    assert browser.execute_script("return document.querySelectorAll('main img, main script').length") == 0


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
