"""`scrapy_redis_links.py` with the link extractor of `scrapy_links_cut.py`, which cuts off fragments."""

from __future__ import annotations

import scrapy_links_cut
from scrapy.crawler import CrawlerProcess
from scrapy_redis_links import SETTINGS, Waits


class Docs(Waits, scrapy_links_cut.CutDocs):
    pass


if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Docs)
    process.start()
