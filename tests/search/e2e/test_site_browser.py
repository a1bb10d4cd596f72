"""The search site in headless Chromium (C7, D4): typing, results, pages; narrow screens; dark mode."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.search.e2e.browsing import NARROW, contrast, focused, luminance, screen, style, texts, wait
from tests.search.indexes import create_pages
from tests.search.site.sample_site import sample_pages, serving
from tests.servers.web_server import Server

pytestmark = pytest.mark.browser

PAGES = (
    "/",
    "/search?q=common&page=4",
    "/search?q=trap",
    "/search?q=zebra",
    "/search?q=common+zebra",
    "/search?q=*",
    "/api",
    "/nowhere",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[Server]:
    index = create_pages("tantivy", tmp_path_factory.mktemp("site") / "index")
    long_word = sample_pages()[0]._replace(
        key="long", title="trap" + "x" * 300, text="trap " + "y" * 500, url="http://h.example/" + "z" * 500
    )
    index.add([*sample_pages(), long_word])
    index.commit({})
    with serving(index) as server:
        yield server
    index.close()


def test_type_submit_read_and_page_forward(browser, site):
    browser.get(site.url)
    focused(browser, "q").send_keys("common", Keys.ENTER)
    wait(browser, lambda each: "q=common" in each.current_url)
    assert texts(browser, ".found")[0].startswith("95 results in ")
    assert browser.find_element(By.ID, "q").get_attribute("value") == "common"
    assert len(texts(browser, ".result")) == 10
    assert set(texts(browser, ".snippet b")) == {"common"}
    assert style(browser, ".snippet b", "background-color") != style(browser, "body", "background-color")
    first = texts(browser, ".result h2")
    browser.find_element(By.CSS_SELECTOR, "a[rel=next]").click()
    wait(browser, lambda each: "page=2" in each.current_url)
    assert not set(texts(browser, ".result h2")) & set(first)
    assert texts(browser, "[aria-current=page]") == ["2"]
    browser.find_element(By.CSS_SELECTOR, "a[rel=prev]").click()
    wait(browser, lambda each: "page=1" in each.current_url)
    assert texts(browser, ".result h2") == first


def test_finds_chinese_that_follows_latin_letters_without_a_space(browser, site):
    browser.get(site.url)
    focused(browser, "q").send_keys("爬虫", Keys.ENTER)
    wait(browser, lambda each: "/search" in each.current_url)
    assert texts(browser, ".result h2 b") == ["爬虫"]
    assert texts(browser, ".result h2")[0] == "DHT爬虫"
    assert texts(browser, ".result time") == ["21 November 2026"]


def test_slash_focuses_the_search_box(browser, site):
    browser.get(f"{site.url}/search?q=common")
    assert browser.switch_to.active_element.tag_name == "body"
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "q"
    browser.switch_to.active_element.send_keys("a/b")
    assert browser.find_element(By.ID, "q").get_attribute("value") == "a/b", (
        "the old text is selected, and / can be typed"
    )


def test_tab_key_reaches_results_in_order(browser, site):
    browser.get(f"{site.url}/search?q=common")
    focused = []
    for _ in range(6):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        focused.append(active.get_attribute("class") or active.get_attribute("id") or active.tag_name)
        assert active.value_of_css_property("outline-style") != "none", f"no focus ring on {focused[-1]}"
    assert focused[:4] == ["skip", "mark", "q", "button"]
    assert active.get_attribute("href").startswith("http://h.example/")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_narrow_screen_needs_no_horizontal_scrolling(browser, site, path, scheme):
    screen(browser, NARROW, scheme)
    browser.get(site.url + path)
    assert browser.execute_script("return window.innerWidth") == NARROW
    assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark_are_readable(browser, site, scheme):
    screen(browser, scheme=scheme)
    browser.get(f"{site.url}/search?q=common+爬虫")
    background = style(browser, "body", "background-color")
    assert (luminance(background) > 0.5) == (scheme == "light")
    for selector in ("body", ".found", ".result h2 a", ".snippet", ".where", ".where .step", ".foot a", ".meta"):
        assert contrast(style(browser, selector, "color"), background) >= 4.5, selector
    marked = style(browser, ".snippet b", "color"), style(browser, ".snippet b", "background-color")
    assert contrast(*marked) >= 4.5
    note = style(browser, ".note", "color"), style(browser, ".note", "background-color")
    assert contrast(*note) >= 4.5


def test_scripts_in_hostile_pages_do_not_run(browser, site):
    browser.get(f"{site.url}/search?q=trap")
    assert len(texts(browser, ".result")) >= 3
    assert browser.execute_script("return document.querySelectorAll('main img, main script').length") == 0
    addresses = browser.execute_script("return [...document.querySelectorAll('a')].map(a => a.protocol)")
    assert set(addresses) == {"http:"}


def test_works_without_javascript(browser, site):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.get(site.url)
        browser.find_element(By.ID, "q").send_keys("common", Keys.ENTER)
        wait(browser, lambda each: "q=common" in each.current_url)
        assert len(texts(browser, ".result")) == 10
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
