"""Lycosa: a crawler platform. What is imported here is public; everything else may change.

Names are loaded when they are first used, so that `lycosa --help` does not pay for a crawler.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from parsel import Selector as Selector

    from lycosa.app.crawl import run_crawl as run_crawl
    from lycosa.app.live import Crawl as Crawl
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
    from lycosa.core.formdata import FormFile as FormFile
    from lycosa.core.model import PageItem as PageItem
    from lycosa.core.model import Request as Request
    from lycosa.engine.adapting import ItemAdapter as ItemAdapter
    from lycosa.engine.failure import Failure as Failure
    from lycosa.engine.forms import FormRequest as FormRequest
    from lycosa.engine.items import Field as Field
    from lycosa.engine.items import Item as Item
    from lycosa.engine.jsonrequest import JsonRequest as JsonRequest
    from lycosa.engine.linkextractor import LinkExtractor as LinkExtractor
    from lycosa.engine.loader import ItemLoader as ItemLoader
    from lycosa.engine.media.files import FilesPipeline as FilesPipeline
    from lycosa.engine.media.images import ImagesPipeline as ImagesPipeline
    from lycosa.engine.response import Response as Response
    from lycosa.engine.spider import Spider as Spider
    from lycosa.engine.spiders.crawlspider import CrawlSpider as CrawlSpider
    from lycosa.engine.spiders.crawlspider import Rule as Rule
    from lycosa.engine.spiders.feeds import CSVFeedSpider as CSVFeedSpider
    from lycosa.engine.spiders.feeds import XMLFeedSpider as XMLFeedSpider
    from lycosa.engine.spiders.sitemap import SitemapSpider as SitemapSpider
    from lycosa.engine.stats import Snapshot as Snapshot
    from lycosa.engine.stats import Summary as Summary
    from lycosa.engine.statscollector import StatsCollector as StatsCollector

__version__ = "0.1.0"

_HOMES = {
    "BadMiddleware": "lycosa.core.errors",
    "CSVFeedSpider": "lycosa.engine.spiders.feeds",
    "CloseSpider": "lycosa.core.errors",
    "Crawl": "lycosa.app.live",
    "CrawlSpider": "lycosa.engine.spiders.crawlspider",
    "DontCloseSpider": "lycosa.core.errors",
    "DropItem": "lycosa.core.errors",
    "Failure": "lycosa.engine.failure",
    "FetchError": "lycosa.core.errors",
    "Field": "lycosa.engine.items",
    "FilesPipeline": "lycosa.engine.media.files",
    "FormFile": "lycosa.core.formdata",
    "FormRequest": "lycosa.engine.forms",
    "HttpError": "lycosa.core.errors",
    "IgnoreRequest": "lycosa.core.errors",
    "ImagesPipeline": "lycosa.engine.media.images",
    "Item": "lycosa.engine.items",
    "ItemAdapter": "lycosa.engine.adapting",
    "ItemLoader": "lycosa.engine.loader",
    "JsonRequest": "lycosa.engine.jsonrequest",
    "LinkExtractor": "lycosa.engine.linkextractor",
    "LycosaError": "lycosa.core.errors",
    "NotConfigured": "lycosa.core.errors",
    "PageItem": "lycosa.core.model",
    "Request": "lycosa.core.model",
    "Response": "lycosa.engine.response",
    "RetryRequest": "lycosa.core.errors",
    "Rule": "lycosa.engine.spiders.crawlspider",
    "Selector": "parsel",
    "Settings": "lycosa.config",
    "SitemapSpider": "lycosa.engine.spiders.sitemap",
    "Snapshot": "lycosa.engine.stats",
    "Spider": "lycosa.engine.spider",
    "StatsCollector": "lycosa.engine.statscollector",
    "StopDownload": "lycosa.core.errors",
    "Summary": "lycosa.engine.stats",
    "XMLFeedSpider": "lycosa.engine.spiders.feeds",
    "run_crawl": "lycosa.app.crawl",
}

__all__ = ["__version__", *sorted(_HOMES)]  # noqa: PLE0604  the names are strings


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'lycosa' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
