"""Helpers for tests of pages in Chromium."""

from __future__ import annotations

from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

DEADLINE_S = 30

NARROW = 360
"""Width of a phone, in pixels."""


def screen(browser: WebDriver, width: int = 1200, scheme: str = "light") -> None:
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})


def wait(browser: WebDriver, condition):
    """Return the first true value of the condition, which fails while the browser goes from page to page."""
    return WebDriverWait(browser, DEADLINE_S, ignored_exceptions=[WebDriverException]).until(condition)


def focused(browser: WebDriver, name: str) -> WebElement:
    """Return the input with this name when it has the focus, which it may get a moment after the page is loaded."""
    wait(browser, lambda each: each.switch_to.active_element.get_attribute("name") == name)
    return browser.switch_to.active_element


def texts(browser: WebDriver, selector: str) -> list[str]:
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, selector)]


def style(browser: WebDriver, selector: str, name: str) -> str:
    return browser.find_element(By.CSS_SELECTOR, selector).value_of_css_property(name)


def luminance(color: str) -> float:
    channels = [float(part) / 255 for part in color[color.index("(") + 1 : -1].split(",")[:3]]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)
