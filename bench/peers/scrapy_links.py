"""Scrapy as its tutorial has it: a spider, the LinkExtractor, the duplicate filter, a JSON lines feed. On uvloop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import scrapy
from item import CONCURRENCY, TIMEOUT_S, job, now, page_fields
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response
from scrapy.linkextractors import LinkExtractor

JOB = job()


class Docs(scrapy.Spider):
    name = "docs"
    links = LinkExtractor(allow=JOB.allowed)

    async def start(self) -> Any:
        for url in JOB.starts:
            yield scrapy.Request(url)  # not `start_urls`: those are fetched twice when pages link to them

    def parse(self, response: Response) -> Iterator[Any]:
        links = self.links.extract_links(response)
        url = response.url.partition("#")[0]  # Scrapy keeps the fragment of the link it followed
        yield {
            "url": url,
            "final_url": url,
            "status": response.status,
            "content_type": response.headers[b"Content-Type"].decode(),
            **page_fields(response.selector.root),
            "out_links": len(links),
            "fetched_at": now(),
            "depth": response.meta["depth"],
            "fingerprint": self.crawler.request_fingerprinter.fingerprint(response.request).hex(),
        }
        yield from response.follow_all(links)


SETTINGS = {
    "CONCURRENT_REQUESTS": CONCURRENCY,
    "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
    "DOWNLOAD_DELAY": 0,
    "DOWNLOAD_TIMEOUT": TIMEOUT_S,
    "FEEDS": {JOB.items: {"format": "jsonlines", "encoding": "utf8"}},
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
