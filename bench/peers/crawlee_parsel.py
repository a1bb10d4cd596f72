"""crawlee-python's ParselCrawler: everything in memory, the concurrency of the other peers from the start, uvloop."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import msgspec
import uvloop
from crawlee import ConcurrencySettings, service_locator
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient
from item import CONCURRENCY, TIMEOUT_S, job, now, page_fields
from xxhash import xxh3_64_hexdigest

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
        async def handle(context: ParselCrawlingContext) -> None:
            links = await context.extract_links(include=[JOB.allowed])
            url = context.request.url.partition("#")[0]
            item = {
                "url": url,
                "final_url": (context.request.loaded_url or url).partition("#")[0],
                "status": context.http_response.status_code,
                "content_type": context.http_response.headers["content-type"],
                **page_fields(context.selector.root),
                "out_links": len(links),
                "fetched_at": now(),
                "depth": context.request.crawl_depth,
                "fingerprint": xxh3_64_hexdigest(context.request.unique_key.encode()),
            }
            file.write(encode(item) + b"\n")
            await context.add_requests(links)

        await crawler.run(JOB.starts)


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)
    uvloop.run(main())
