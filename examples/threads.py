"""Callbacks that block run in threads, so that the crawl goes on.

lycosa runspider examples/threads.py -a site=https://example.com/ -o items.jsonl
"""

from __future__ import annotations

import threading
import time

import lycosa


class Threads(lycosa.Spider):
    name = "threads"
    custom_settings = {"callback_mode": "thread", "callback_threads": 4, "depth": 1}

    async def start(self):
        yield lycosa.Request(self.site)

    def parse(self, response):
        time.sleep(0.1)  # a database, a model: anything that blocks
        robots = self.fetch_sync(response.urljoin("/robots.txt"))
        yield {"url": response.url, "thread": threading.current_thread().name, "robots": robots.status}
        yield from response.follow_all(css="a")
