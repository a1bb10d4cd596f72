"""Lycosa: a crawler platform. The names in this module are public, and so are the names in `lycosa.dht`, `lycosa.pool`,
`lycosa.processors`, `lycosa.queue` and `lycosa.signals`. All other names may change.

Each name is imported on first use, so `lycosa --help` does not import the crawler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsel import Selector as Selector

    from lycosa.app.crawl.live import Crawl as Crawl
    from lycosa.app.crawl.run import run_crawl as run_crawl
    from lycosa.config import Settings as Settings
    from lycosa.core.errors import BadMiddleware as BadMiddleware
    from lycosa.core.errors import CloseSpider as CloseSpider
    from lycosa.core.errors import DontCloseSpider as DontCloseSpider
    from lycosa.core.errors import DropItem as DropItem
    from lycosa.core.errors import FetchError as FetchError
    from lycosa.core.errors import HttpError as HttpError
    from lycosa.core.errors import IgnoreRequest as IgnoreRequest
    from lycosa.core.errors import LycosaError as LycosaError
    from lycosa.core.errors import NotConfigured as NotConfigured
    from lycosa.core.errors import RetryRequest as RetryRequest
    from lycosa.core.errors import StopDownload as StopDownload
    from lycosa.crawl.events.stats import Snapshot as Snapshot
    from lycosa.crawl.events.stats import Summary as Summary
    from lycosa.crawl.events.stats_collector import StatsCollector as StatsCollector
    from lycosa.crawl.items.adapters import ItemAdapter as ItemAdapter
    from lycosa.crawl.items.items import Field as Field
    from lycosa.crawl.items.items import Item as Item
    from lycosa.crawl.items.loader import ItemLoader as ItemLoader
    from lycosa.crawl.items.media.files import FilesPipeline as FilesPipeline
    from lycosa.crawl.items.media.images import ImagesPipeline as ImagesPipeline
    from lycosa.crawl.items.page_item import PageItem as PageItem
    from lycosa.crawl.spiders.crawl_spider import CrawlSpider as CrawlSpider
    from lycosa.crawl.spiders.crawl_spider import Rule as Rule
    from lycosa.crawl.spiders.failure import Failure as Failure
    from lycosa.crawl.spiders.feeds import CSVFeedSpider as CSVFeedSpider
    from lycosa.crawl.spiders.feeds import XMLFeedSpider as XMLFeedSpider
    from lycosa.crawl.spiders.forms import FormRequest as FormRequest
    from lycosa.crawl.spiders.json_request import JsonRequest as JsonRequest
    from lycosa.crawl.spiders.link_extractor import LinkExtractor as LinkExtractor
    from lycosa.crawl.spiders.response import Response as Response
    from lycosa.crawl.spiders.sitemap import SitemapSpider as SitemapSpider
    from lycosa.crawl.spiders.spider import Spider as Spider
    from lycosa.html.forms import FormFile as FormFile
    from lycosa.http.core.request import Request as Request

__version__ = "0.1.0"

_NAMES = {
    "lycosa.app.crawl.live": "Crawl",
    "lycosa.app.crawl.run": "run_crawl",
    "lycosa.config": "Settings",
    "lycosa.core.errors": (
        "BadMiddleware CloseSpider DontCloseSpider DropItem FetchError HttpError"
        " IgnoreRequest LycosaError NotConfigured RetryRequest StopDownload"
    ),
    "lycosa.crawl.events.stats": "Snapshot Summary",
    "lycosa.crawl.events.stats_collector": "StatsCollector",
    "lycosa.crawl.items.adapters": "ItemAdapter",
    "lycosa.crawl.items.items": "Field Item",
    "lycosa.crawl.items.loader": "ItemLoader",
    "lycosa.crawl.items.media.files": "FilesPipeline",
    "lycosa.crawl.items.media.images": "ImagesPipeline",
    "lycosa.crawl.items.page_item": "PageItem",
    "lycosa.crawl.spiders.crawl_spider": "CrawlSpider Rule",
    "lycosa.crawl.spiders.failure": "Failure",
    "lycosa.crawl.spiders.feeds": "CSVFeedSpider XMLFeedSpider",
    "lycosa.crawl.spiders.forms": "FormRequest",
    "lycosa.crawl.spiders.json_request": "JsonRequest",
    "lycosa.crawl.spiders.link_extractor": "LinkExtractor",
    "lycosa.crawl.spiders.response": "Response",
    "lycosa.crawl.spiders.sitemap": "SitemapSpider",
    "lycosa.crawl.spiders.spider": "Spider",
    "lycosa.html.forms": "FormFile",
    "lycosa.http.core.request": "Request",
    "parsel": "Selector",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *sorted(_MODULES)]  # noqa: PLE0604  all are strings


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lycosa' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
