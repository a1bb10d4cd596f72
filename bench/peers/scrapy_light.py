"""Scrapy at its lightest, on uvloop.

One XPath for the links, a set of our own instead of the duplicate filter, the items encoded by msgspec, and every
middleware and extension off that this crawl can do without.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import msgspec
import scrapy
from item import CONCURRENCY, TIMEOUT_S, job, now, page_fields
from lxml import etree
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from xxhash import xxh3_64_hexdigest

JOB = job()
HREFS = etree.XPath("//a/@href", smart_strings=False)
encode = msgspec.json.Encoder().encode


class Docs(scrapy.Spider):
    name = "docs"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.seen = set(JOB.starts)
        self.file = Path(JOB.items).open("wb")  # noqa: SIM115  closed in `closed`

    async def start(self) -> Any:
        for url in JOB.starts:
            yield scrapy.Request(url, dont_filter=True, meta={"level": 0})

    def parse(self, response: Response) -> Iterator[scrapy.Request]:
        root = response.selector.root
        url, level = response.url, response.meta["level"]
        links = {urljoin(url, href) for href in {href.partition("#")[0] for href in HREFS(root)}}
        item = {
            "url": url,
            "final_url": url,
            "status": response.status,
            "content_type": response.headers[b"Content-Type"].decode(),
            **page_fields(root),
            "out_links": len(links),
            "fetched_at": now(),
            "depth": level,
            "fingerprint": xxh3_64_hexdigest(url.encode()),
        }
        self.file.write(encode(item) + b"\n")
        new = [link for link in links - self.seen if JOB.allowed.match(link)]
        self.seen.update(new)
        for link in new:
            yield scrapy.Request(link, dont_filter=True, meta={"level": level + 1})

    def closed(self, reason: str) -> None:
        self.file.close()


SETTINGS = {
    "CONCURRENT_REQUESTS": CONCURRENCY,
    "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
    "COOKIES_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_TIMEOUT": TIMEOUT_S,
    "DOWNLOADER_MIDDLEWARES_BASE": {
        "scrapy.downloadermiddlewares.retry.RetryMiddleware": 550,
        "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": 590,
    },
    "SPIDER_MIDDLEWARES_BASE": {"scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": 50},
    "EXTENSIONS_BASE": {},
    "LOG_LEVEL": "WARNING",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
}

if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Docs)
    process.start()
