"""The bookstore spider of Lycosa, with parsel: `lycosa runspider FILE -a start_url=URL -a kind=shop`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from products import AWAIT_S, NEXT, PARSEL, PRODUCTS

from lycosa import Request, Response, Spider


class Books(Spider):
    name = "books"
    start_url = kind = ""

    async def start(self) -> Any:
        yield Request(self.start_url)

    def parse(self, response: Response) -> Iterator[Any]:
        product = self.awaiting if self.kind in AWAIT_S else self.product
        yield from response.follow_all(css=PRODUCTS, callback=product)
        yield from response.follow_all(css=NEXT)

    def product(self, response: Response) -> Iterator[Any]:
        yield PARSEL[self.kind](response, response.url)

    async def awaiting(self, response: Response) -> AsyncIterator[Any]:
        await asyncio.sleep(AWAIT_S[self.kind])
        yield PARSEL[self.kind](response, response.url)
