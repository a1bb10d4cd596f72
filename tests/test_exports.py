"""The public names: what `lycosa` exports is there, documented, and nothing else is."""

from __future__ import annotations

import subprocess
import sys
from typing import get_type_hints

import pytest

import lycosa


def test_the_public_names_are_these() -> None:
    assert set(lycosa.__all__) == {
        "BadMiddleware",
        "CSVFeedSpider",
        "CloseSpider",
        "Crawl",
        "CrawlSpider",
        "DontCloseSpider",
        "DropItem",
        "Failure",
        "FetchError",
        "Field",
        "FilesPipeline",
        "FormFile",
        "FormRequest",
        "HttpError",
        "IgnoreRequest",
        "ImagesPipeline",
        "Item",
        "ItemAdapter",
        "ItemLoader",
        "JsonRequest",
        "LinkExtractor",
        "LycosaError",
        "NotConfigured",
        "PageItem",
        "Request",
        "Response",
        "RetryRequest",
        "Rule",
        "Selector",
        "Settings",
        "SitemapSpider",
        "Snapshot",
        "Spider",
        "StatsCollector",
        "StopDownload",
        "Summary",
        "XMLFeedSpider",
        "__version__",
        "run_crawl",
    }
    assert set(dir(lycosa)) == set(lycosa.__all__)


@pytest.mark.parametrize("name", [name for name in lycosa.__all__ if name != "__version__"])
def test_every_public_name_is_documented(name: str) -> None:
    assert getattr(lycosa, name).__doc__


OURS = [name for name in lycosa.__all__ if name not in {"ItemAdapter", "Selector", "__version__"}]


@pytest.mark.parametrize("name", OURS)
def test_every_public_name_of_ours_says_that_it_comes_from_the_package(name: str) -> None:
    """Stored pickles name the modules of classes."""
    assert getattr(lycosa, name).__module__ == "lycosa"


@pytest.mark.parametrize("name", [name for name in OURS if name != "ItemLoader"])
def test_the_types_of_what_is_public_can_be_read(name: str) -> None:
    """Not those of ItemLoader: its base class, of itemloaders, imports them for the type checker only."""
    assert isinstance(get_type_hints(getattr(lycosa, name)), dict)


@pytest.mark.parametrize("name", ["FormRequest", "Request", "Selector", "Spider", "Item", "Field"])
def test_what_scrapy_has_at_the_top_is_there(name: str) -> None:
    assert getattr(lycosa, name).__name__ == name


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(AttributeError, match="Spyder"):
        lycosa.Spyder  # noqa: B018


def test_importing_the_package_loads_no_part_of_it() -> None:
    code = "import sys, lycosa; print([name for name in sys.modules if name.startswith('lycosa.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
