"""One crawl of `bench/goodput.py`, in a process of its own: `python bench/goodput_crawl.py CRAWL`, as JSON."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from peers.proxy_ways import BackOff, InTurn

import lycosa
from lycosa.app.crawl import proxies as pooling
from lycosa.proxies.ports import ProxyPool


@dataclass(frozen=True)
class Crawl:
    """What to crawl, through which proxies (a file), chosen in which way."""

    way: str
    starts: list[str]
    proxies: str
    concurrency: int
    connect_timeout: float


class Tree(lycosa.Spider):
    """Follows every link; one page of five that have links leads to nothing, too: 2 % are missing."""

    name = "tree"

    def parse(self, response: Any) -> Any:
        """Yield what the next pages are."""
        links = response.css("a::attr(href)").getall()
        for link in links:
            yield response.follow(link)
        if links and crc32(response.url.encode()) % 5 == 0:
            yield response.follow(f"/missing{links[0]}")


WAYS: dict[str, Callable[[], ProxyPool]] = {"in-turn": InTurn, "back-off": BackOff}  # type: ignore[dict-item]


async def main(options: Crawl) -> None:
    """Crawl."""
    if options.way in WAYS:

        async def opened(*_: Any) -> ProxyPool:
            return WAYS[options.way]()

        pooling.open_pool = opened
    spider = Tree()
    spider.start_urls = options.starts
    async with lycosa.Crawl(
        spider,
        proxy_pool=options.proxies,
        concurrency=options.concurrency,
        concurrency_per_host=options.concurrency // len(options.starts),
        connect_timeout=options.connect_timeout,
        retries=100,
        backoff_base=0.1,
        robots=False,
        log_level="ERROR",
    ) as crawl:
        await crawl.run()


if __name__ == "__main__":
    asyncio.run(main(Crawl(**json.loads(sys.argv[1]))))
