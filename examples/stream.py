"""A crawl inside a program: callbacks by decorator, items in a loop. Leaving the loop ends the crawl.

python examples/stream.py https://example.com/ 20
"""

from __future__ import annotations

import asyncio
import sys

import lycosa


async def main(site: str, limit: int) -> None:
    async with lycosa.Crawl(site, delay=0.01, depth=3) as crawl:

        @crawl.route()
        def page(response):
            yield {"url": response.url, "title": response.css("title::text").get()}
            yield from response.follow_all(css="a")

        @crawl.route(match="*.pdf")
        def document(response):
            yield {"url": response.url, "bytes": len(response.body)}

        count = 0
        async for item in crawl.stream():
            print(item["url"])
            count += 1
            if count == limit:
                break


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
