"""`scrapy_links.py` on scrapy-redis, as its README has it: scheduler and duplicate filter in the Redis of BENCH_REDIS.

All workers yield the start pages; the filter lets each of these pages through once. A worker waits for more requests
until a signal ends it: it does not see the end of a crawl.
"""

from __future__ import annotations

import os
from typing import Any

import scrapy_links
from scrapy.crawler import CrawlerProcess
from scrapy_redis.spiders import RedisMixin


class Waits(RedisMixin):
    """Connects a spider with the other workers through Redis."""

    @classmethod
    def from_crawler(cls, crawler: Any, *arguments: Any, **options: Any) -> Any:
        spider = super().from_crawler(crawler, *arguments, **options)  # type: ignore[misc]
        spider.setup_redis(crawler)
        return spider


class Docs(Waits, scrapy_links.Docs):
    pass


SETTINGS = scrapy_links.SETTINGS | {
    "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
    "REDIS_URL": os.environ["BENCH_REDIS"],
    "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
    "SCHEDULER_PERSIST": True,
}

if __name__ == "__main__":
    process = CrawlerProcess(SETTINGS)
    process.crawl(Docs)
    process.start()
