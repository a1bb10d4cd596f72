from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webdriver import WebDriver

from tests.search.e2e.browsing import screen
from tests.servers.ports import LOCALHOST, closed_port


@pytest.fixture(scope="module")
def chromium(tmp_path_factory) -> Iterator[WebDriver]:
    driver = shutil.which("chromedriver")
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    options = webdriver.ChromeOptions()
    options.binary_location = browser or ""
    profile = tmp_path_factory.mktemp("profile")
    for argument in ("headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu", f"user-data-dir={profile}"):
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(driver, port=closed_port(*LOCALHOST))
    with webdriver.Chrome(options=options, service=service) as driver_:
        yield driver_


@pytest.fixture
def browser(chromium) -> Iterator[WebDriver]:
    """A wide light window; the console must be empty after the test."""
    screen(chromium)
    chromium.get_log("browser")
    yield chromium
    complaints = [
        entry["message"] for entry in chromium.get_log("browser") if "the server responded with" not in entry["message"]
    ]
    assert complaints == []
