"""A spider that gets its URLs from elsewhere: it queues more when it is idle, and ends when there are none.

lycosa runspider examples/fed.py -a urls=FILE -o items.jsonl
"""

from __future__ import annotations

from pathlib import Path

import lycosa
from lycosa import signals


class Fed(lycosa.Spider):
    name = "fed"

    @classmethod
    def from_crawler(cls, crawler, **arguments):
        spider = super().from_crawler(crawler, **arguments)
        spider.waiting = Path(spider.urls).read_text(encoding="utf-8").split()
        crawler.signals.connect(spider.more, signals.spider_idle)
        return spider

    async def start(self):
        return
        yield

    async def more(self):
        while self.waiting:
            if await self.crawler.crawl(lycosa.Request(self.waiting.pop(0))):
                return
        # `raise lycosa.DontCloseSpider` here would keep the crawl open; the next call is in five seconds

    def parse(self, response):
        yield {"url": response.url}
