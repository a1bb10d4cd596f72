"""One crawl of `bench/goodput.py`, in a separate process: `python bench/goodput_crawl.py CRAWL`. CRAWL is JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from peers.proxy_strategies import BackOff, InTurn

import lycosa
from lycosa.app.crawl import proxies as pooling
from lycosa.proxies.ports import ProxyPool


@dataclass(frozen=True)
class Crawl:
    """The start URLs, the file of proxies, and the strategy that chooses among them."""

    strategy: str
    starts: list[str]
    proxies: str
    concurrency: int
    connect_timeout: float


class Tree(lycosa.Spider):
    """Follows every link. One in five pages with links, which is 2 % of all pages, also links to a missing page."""

    name = "tree"

    def parse(self, response: Any) -> Any:
        """Yield the next pages."""
        links = response.css("a::attr(href)").getall()
        for link in links:
            yield response.follow(link)
        if links and crc32(response.url.encode()) % 5 == 0:
            yield response.follow(f"/missing{links[0]}")


STRATEGIES: dict[str, Callable[[], ProxyPool]] = {"in-turn": InTurn, "back-off": BackOff}  # type: ignore[dict-item]


async def main(plan: Crawl) -> None:
    """Crawl."""
    if plan.strategy in STRATEGIES:

        async def open_pool(*_: Any) -> ProxyPool:
            return STRATEGIES[plan.strategy]()

        pooling.open_pool = open_pool
    spider = Tree()
    spider.start_urls = plan.starts
    async with lycosa.Crawl(
        spider,
        proxy_pool=plan.proxies,
        concurrency=plan.concurrency,
        concurrency_per_host=plan.concurrency // len(plan.starts),
        connect_timeout=plan.connect_timeout,
        retries=100,
        backoff_base=0.1,
        robots=False,
        log_level="ERROR",
    ) as crawl:
        await crawl.run()


if __name__ == "__main__":
    asyncio.run(main(Crawl(**json.loads(sys.argv[1]))))
