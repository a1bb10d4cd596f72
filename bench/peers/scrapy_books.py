"""Scrapy on the bookstore, as quick as its settings make it: uvloop, and everything off that is not needed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from products import AWAIT_S, CONCURRENCY, NEXT, PARSEL, PER_HOST, PRODUCTS, TIMEOUT_S, job
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response

JOB = job()


class Books(scrapy.Spider):
    name = "books"
    make = staticmethod(PARSEL[JOB.kind])

    async def start(self) -> Any:
        yield scrapy.Request(JOB.start)

    def parse(self, response: Response) -> Iterator[Any]:
        product = self.awaiting if JOB.kind in AWAIT_S else self.product
        yield from response.follow_all(css=PRODUCTS, callback=product)
        yield from response.follow_all(css=NEXT)

    def product(self, response: Response) -> Iterator[Any]:
        yield self.make(response, response.url)

    async def awaiting(self, response: Response) -> AsyncIterator[Any]:
        await asyncio.sleep(AWAIT_S[JOB.kind])
        yield self.make(response, response.url)


SETTINGS = {
    "CONCURRENT_REQUESTS": CONCURRENCY,
    "CONCURRENT_REQUESTS_PER_DOMAIN": PER_HOST.get(JOB.kind, CONCURRENCY),
    "COOKIES_ENABLED": False,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_TIMEOUT": TIMEOUT_S,
    "EXTENSIONS_BASE": {"scrapy.extensions.corestats.CoreStats": 0, "scrapy.extensions.feedexport.FeedExporter": 0},
    "FEEDS": {JOB.items: {"format": "jsonlines", "encoding": "utf8"}},
    "LOG_LEVEL": "WARNING",
    "METAREFRESH_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
}

if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Books)
    process.start()
