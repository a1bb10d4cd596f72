"""crawlee-python's ParselCrawler on the bookstore: everything in memory, full concurrency from the start, uvloop."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path
from urllib.parse import urljoin

import msgspec
import uvloop
from crawlee import ConcurrencySettings, Request, service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient
from products import CONCURRENCY, NEXT, PARSEL, PRODUCTS, TIMEOUT_S, job

JOB = job()
encode = msgspec.json.Encoder().encode


async def main() -> None:
    service_locator.set_storage_client(MemoryStorageClient())
    crawler = ParselCrawler(
        concurrency_settings=ConcurrencySettings(
            min_concurrency=CONCURRENCY, max_concurrency=CONCURRENCY, desired_concurrency=CONCURRENCY
        ),
        configure_logging=False,
        navigation_timeout=timedelta(seconds=TIMEOUT_S),
        respect_robots_txt_file=False,
        use_session_pool=False,
    )
    with Path(JOB.items).open("wb") as file:  # noqa: ASYNC230  a file of its own, written as the others do

        @crawler.router.default_handler
        async def parse(context: ParselCrawlingContext) -> None:
            page, url = context.selector, context.request.url
            products = (urljoin(url, each) for each in page.css(f"{PRODUCTS}::attr(href)").getall())
            await context.add_requests([Request.from_url(each, label="product") for each in products])
            await context.add_requests([urljoin(url, each) for each in page.css(f"{NEXT}::attr(href)").getall()])

        @crawler.router.handler("product")
        async def product(context: ParselCrawlingContext) -> None:
            file.write(encode(PARSEL[JOB.kind](context.selector, context.request.url)) + b"\n")

        await crawler.run([JOB.start])


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(main())
