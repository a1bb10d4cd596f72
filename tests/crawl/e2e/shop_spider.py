"""The spider of `test_engine_killed.py`: it uses every part of the engine whose work a kill could interrupt.

`-a site=URL`, and `-a inline=1` to fetch the stock of each product in its callback. The pages of traders have their own
cookie jar.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from lycosa import HttpError, ImagesPipeline, ItemLoader, Request, Spider
from lycosa.processors import MapCompose, TakeFirst

TRADERS = "traders"


class AddsHeader:
    """Downloader middleware that adds the header the shop requires."""

    def process_request(self, request: Request) -> None:
        request.headers["X-Shop"] = "open"


class AddsDepth:
    """Spider middleware that adds the depth to every item, once."""

    def process_spider_output(self, response: Any, result: Any) -> Iterator[Any]:
        for each in result:
            if isinstance(each, dict):
                assert "depth" not in each
                each["depth"] = response.depth
            yield each


class Products(ItemLoader):
    default_item_class = dict
    default_output_processor = TakeFirst()
    n_in = MapCompose(lambda text: int(text.removeprefix("Product ")))
    price_in = MapCompose(float)
    image_urls_out = list


class ShopSpider(Spider):
    name = "shop"
    site = ""
    inline = ""
    pipelines = [ImagesPipeline]
    custom_settings = {
        "downloader_middlewares": {AddsHeader: 450},
        "spider_middlewares": {AddsDepth: 600},
        "images_store": "images",
        "images_thumbs": {"small": [8, 8]},
        "backoff_base": 0.05,
    }

    async def start(self) -> AsyncIterator[Request]:
        yield Request(self.site + "/", self.parse_list)
        yield Request(self.site + "/trade", self.parse_list, cookiejar=TRADERS)

    def parse_list(self, response: Any) -> Iterator[Any]:
        meta = {"cookiejar": response.meta["cookiejar"]} if "cookiejar" in response.meta else {}
        for link in response.css("a.product::attr(href)").getall():
            callback = self.parse_with_stock if self.inline else self.parse_product
            yield response.follow(link, callback, meta=meta, cb_kwargs={"way": link})
        yield from response.follow_all(css="a.missing", callback=self.parse_list, errback=self.missing, meta=meta)
        yield from response.follow_all(css="a.next", callback=self.parse_list, meta=meta)

    def parse_product(self, response: Any, way: str) -> dict[str, Any]:
        self.state.setdefault("seen", []).append(int(response.url.rpartition("/")[2]))
        loader = Products(response=response)
        loader.add_css("n", "h1::text")
        loader.add_css("price", ".price::text")
        loader.add_css("image_urls", "img::attr(src)", MapCompose(response.urljoin))
        loader.add_value("way", way)
        loader.add_value("hops", len(response.meta.get("redirect_urls", ())))
        return loader.load_item()

    async def parse_with_stock(self, response: Any, way: str) -> dict[str, Any]:
        item = self.parse_product(response, way)
        meta = {"cookiejar": response.meta["cookiejar"]} if "cookiejar" in response.meta else {}
        stock = await self.fetch(Request(response.url.replace("/product/", "/stock/"), meta=meta))
        return {**item, "stock": int(stock.text)}

    def missing(self, failure: Any) -> dict[str, Any]:
        failure.trap(HttpError)
        return {"missing": failure.request.url, "status": failure.response.status}
