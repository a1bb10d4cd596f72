"""Several workers on one big site: each does its part, and together they are faster than one (C3, C5)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.frontier.e2e.test_shared_crawl import Crawl, crawl

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES = 1_000
SPIDER = """
import asyncio, time
from lycosa import Request, Spider

class OneHost(Spider):
    name = "onehost"
    pages = port = hosts = cpu_s = sleep_s = ""

    async def start(self):
        yield Request(f"http://127.0.0.1:{self.port}/page?n=0", cb_kwargs={"n": 0})

    async def parse(self, response, n):
        if n == 0:
            for child in range(1, int(self.pages)):
                yield Request(f"http://127.0.0.1:{self.port}/page?n={child}", cb_kwargs={"n": child})
        deadline = time.process_time() + float(self.cpu_s)
        while time.process_time() < deadline:
            pass
        await asyncio.sleep(float(self.sleep_s))
        yield {"n": n}
"""
