"""Requests that wait for a proxy do not use up the concurrency of the crawl."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import lycosa
from lycosa import Request, Spider
from tests.servers.banning import Banning, banning
from tests.servers.proxies import new_address
from tests.servers.proxy import proxying

CONCURRENCY = 24
PAGES = 80
DELAY_S = 0.05


class TwoSites(Spider):
    """Requests of site 0 need German proxies."""

    name = "two-sites"

    def __init__(self, server: Banning) -> None:
        super().__init__()
        self.server = server

    async def start(self):
        for number in range(PAGES):
            yield Request(self.server.url(f"/page/{number}", site=0), meta={"proxy_tags": {"country": "de"}})
            yield Request(self.server.url(f"/page/{number}", site=1))

    def parse(self, response):
        yield {"url": response.url}


def test_a_site_with_few_proxies_does_not_slow_down_others(tmp_path: Path) -> None:
    """Site 0 has one proxy, site 1 has twelve: site 1 is complete before half of the pages of site 0 are fetched."""

    async def main() -> None:
        async with (
            asyncio.timeout(120),
            banning(sites=2, pages=PAGES, delay_s=DELAY_S) as server,
            AsyncExitStack() as stack,
        ):
            proxies = [await stack.enter_async_context(proxying(exit=new_address())) for _ in range(12)]
            file = tmp_path / "proxies.txt"
            file.write_text("".join(f"{each.url}{' country=de' * (each is proxies[0])}\n" for each in proxies))
            crawl = lycosa.Crawl(
                TwoSites(server),
                proxy_pool=str(file),
                robots=False,
                concurrency=CONCURRENCY,
                concurrency_per_host=CONCURRENCY,
                log_level="ERROR",
            )
            async with crawl:
                summary = await crawl.run()
            assert summary.reasons == {"200": 2 * PAGES}
            order = [hit.site for hit in server.hits]
            last = max(index for index, site in enumerate(order) if site == 1)
            assert order[:last].count(0) < PAGES / 2

    asyncio.run(main())
