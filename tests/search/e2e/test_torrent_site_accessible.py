"""All pages of the torrent site, with administration: checked by axe-core in both themes, shown on a narrow screen, and
used by keyboard only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from lycosa.app.dht_state import RecordsLocation
from lycosa.app.torrent_admin import IndexProcess, StoredNameRules
from lycosa.search.rebuilds import FILE, TaskProgress
from lycosa.search.site.torrents.admin.parts import SAID, AdminParts
from lycosa.search.site.torrents.admin.passwords import hash_password
from lycosa.search.site.torrents.admin.site_store import SiteStore
from tests.conftest import ROOT, need
from tests.search.e2e.browsing import NARROW, focused, screen, texts, wait
from tests.search.site.torrents.admin.clients import PASSWORD, Session, post, session_of
from tests.search.site.torrents.sample_torrents import HASHES, torrent_site
from tests.servers.web_server import Server

pytestmark = pytest.mark.browser

AXE = ROOT / ".cache" / "axe.min.js"
PAGES = ("/", "/search?q=show&type=video", "/search?q=common&page=2", "/search?q=zebra", "/search?q=-x")
PAGES += (f"/torrent/{HASHES[1]}?q=show", "/browse", "/statistics", "/api", "/takedown", "/nowhere", "/admin/login")
ADMIN_PAGES = ("/admin", "/admin/deny", "/admin/rules", "/admin/users", "/admin/keys", "/admin/index")
RUN = """
const [rules, done] = arguments;
const only = rules.length ? {type: "rule", values: rules}
  : {type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]};
axe.run({runOnly: only, resultTypes: ["violations"]}).then(({violations}) => done(violations.map(
  (each) => each.id + ": " + each.nodes.map((node) => node.html + " " + node.failureSummary).join("; "))));
"""
TABS_MAX = 150


@contextmanager
def administered(folder: Path) -> Iterator[Server]:
    """Serve a site with an administrator, ada."""
    pytest.importorskip("argon2")
    with closing(SiteStore(folder / "site.sqlite")) as kept:
        kept.set_password("ada", hash_password(PASSWORD))
        rebuild = IndexProcess(RecordsLocation(str(folder), None), folder / "index")

        def parts(store):
            return AdminParts(kept, store, rules=StoredNameRules(store, folder, rebuild.update), rebuild=rebuild)

        with torrent_site(folder, admin=parts) as site:
            yield site.server


@pytest.fixture(scope="module")
def session(tmp_path_factory) -> Iterator[Session]:
    """A session on a site with data on every page of administrators."""
    folder = tmp_path_factory.mktemp("site")
    with administered(folder) as server:
        session = session_of(server)
        post(server, "/takedown", infohashes=" ".join(HASHES[10:13]), reason="It is mine.", contact="me@example.org")
        session.post("/admin/users", action="add", name="bob", password=PASSWORD)
        session.post("/admin/rules", action="try", name="albums", words="common album", reason="No albums")
        progress = TaskProgress(5_000_000, 1_234_567, started=time.time() - 60, noted=time.time())
        (folder / "index" / FILE).write_bytes(msgspec.json.encode(progress))
        yield session


@pytest.mark.parametrize("path", [*PAGES, *ADMIN_PAGES])
def test_axe_finds_nothing_in_either_theme(browser, session, path):
    need("axe-core (scripts/axe)", AXE.exists())
    screen(browser)
    browser.get(f"{session.server.url}/robots.txt")
    name, _, value = session.cookie.partition("=")
    browser.delete_all_cookies()
    if path in ADMIN_PAGES:
        browser.add_cookie({"name": name, "value": value, "path": "/admin"})
    browser.get(session.server.url + path)
    assert browser.current_url == session.server.url + path
    browser.execute_script(AXE.read_text(encoding="utf-8"))
    assert browser.execute_async_script(RUN, []) == []
    screen(browser, scheme="dark")  # only colours differ
    assert browser.execute_async_script(RUN, ["color-contrast"]) == []
    screen(browser, NARROW)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= NARROW


def go_to(browser, selector: str, *, backwards: bool = False):
    """Move the focus with the Tab key to the first element of the selector. The focus must be visible there."""
    wanted = browser.find_element(By.CSS_SELECTOR, selector)
    for _ in range(TABS_MAX):
        active = browser.switch_to.active_element
        if active == wanted:
            assert active.value_of_css_property("outline-style") != "none"
            return active
        active.send_keys(Keys.SHIFT + Keys.TAB if backwards else Keys.TAB)
    pytest.fail(f"the Tab key does not lead to {selector}")


def test_everything_works_by_keyboard_alone_and_without_javascript(browser, tmp_path):
    with administered(tmp_path) as server:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            browser.delete_all_cookies()
            search_and_ask_for_a_takedown(browser, server)
            administer(browser, server)
        finally:
            browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        assert [server.get(f"/torrent/{HASHES[n]}").status for n in (0, 1, 2, 20)] == [410, 200, 200, 410]


def search_and_ask_for_a_takedown(browser, server: Server) -> None:
    browser.get(server.url)
    focused(browser, "q").send_keys("great OR common", Keys.ENTER)
    wait(browser, lambda each: "q=great" in each.current_url)
    go_to(browser, "a[rel=next]", backwards=True).send_keys(Keys.ENTER)
    wait(browser, lambda each: "page=2" in each.current_url)
    go_to(browser, ".filters summary").send_keys(Keys.ENTER)
    go_to(browser, "select[name=type]").send_keys("Video")
    go_to(browser, ".choices .apply").send_keys(Keys.ENTER)
    wait(browser, lambda each: "type=video" in each.current_url)
    go_to(browser, ".result h2 a").send_keys(Keys.ENTER)
    wait(browser, lambda each: "/torrent/" in each.current_url)
    assert texts(browser, "h1 b") == ["Great"]
    go_to(browser, ".foot a[href='/takedown']", backwards=True).send_keys(Keys.ENTER)
    wait(browser, lambda each: each.current_url.endswith("/takedown"))
    go_to(browser, "textarea[name=infohashes]").send_keys(HASHES[0])
    go_to(browser, "textarea[name=reason]").send_keys("It is mine.")
    go_to(browser, "main button").send_keys(Keys.ENTER)
    wait(browser, lambda each: texts(each, "h1") == ["Request received"])


def administer(browser, server: Server) -> None:
    browser.get(f"{server.url}/admin")
    focused(browser, "name").send_keys("ada", Keys.TAB)
    browser.switch_to.active_element.send_keys(PASSWORD, Keys.ENTER)
    wait(browser, lambda each: texts(each, "h1") == ["Administration"])
    assert texts(browser, ".reason") == ["It is mine."]
    go_to(browser, ".request .apply").send_keys(Keys.ENTER)
    wait(browser, lambda each: texts(each, "[role=status]") == [SAID["accepted"]])
    go_to(browser, ".sections a[href='/admin/rules']").send_keys(Keys.ENTER)
    wait(browser, lambda each: each.current_url.endswith("/admin/rules"))
    go_to(browser, "input[name=name]").send_keys("albums")
    go_to(browser, "textarea[name=words]").send_keys("common album")
    go_to(browser, "input[name=reason]").send_keys("No albums")
    go_to(browser, "main .form .apply").send_keys(Keys.ENTER)
    until_done(browser, "Would be removed: 45 of 49 torrents.")
    assert server.get(f"/torrent/{HASHES[20]}").status == 200
    go_to(browser, ".request .apply").send_keys(Keys.ENTER)
    until_done(browser, "Removed: 45 of 49 torrents.")


def until_done(browser, said: str) -> None:
    """Wait for the end of the task; follow the refresh link of the page."""
    wait(browser, lambda each: texts(each, ".request h3"))

    def is_done(each) -> bool:
        if again := each.find_elements(By.CSS_SELECTOR, ".request a.button"):
            again[0].send_keys(Keys.ENTER)
            return False
        return texts(each, ".request [role=status]") == [said]

    wait(browser, is_done)
