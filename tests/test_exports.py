"""The public names: what `lycosa` exports exists and is documented, and nothing else is exported."""

from __future__ import annotations

import subprocess
import sys
from typing import get_type_hints

import pytest

import lycosa


def test_the_public_names() -> None:
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
def test_public_classes_name_the_package_as_their_module(name: str) -> None:
    """Pickles store the modules of classes."""
    assert getattr(lycosa, name).__module__ == "lycosa"


@pytest.mark.parametrize("name", [name for name in OURS if name != "ItemLoader"])
def test_the_types_of_public_names_can_be_evaluated(name: str) -> None:
    """ItemLoader is the exception: its base class in itemloaders imports the types for the type checker only."""
    assert isinstance(get_type_hints(getattr(lycosa, name)), dict)


@pytest.mark.parametrize("name", ["FormRequest", "Request", "Selector", "Spider", "Item", "Field"])
def test_names_at_the_top_level_of_scrapy_are_exported(name: str) -> None:
    assert getattr(lycosa, name).__name__ == name


def test_an_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Spyder"):
        lycosa.Spyder  # noqa: B018


def test_importing_the_package_loads_no_submodule() -> None:
    code = "import sys, lycosa; print([name for name in sys.modules if name.startswith('lycosa.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
