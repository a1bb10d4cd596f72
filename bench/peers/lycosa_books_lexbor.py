"""The bookstore spider of Lycosa with the lexbor tree; otherwise as `lycosa_books_parsel.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from products import LEXBOR, NEXT, PRODUCTS

from lycosa import Request, Response, Spider


class Books(Spider):
    name = "books"
    start_url = kind = ""

    async def start(self) -> Any:
        yield Request(self.start_url)

    def parse(self, response: Response) -> Iterator[Any]:
        tree = response.tree
        yield from response.follow_all([each.attributes["href"] for each in tree.css(PRODUCTS)], self.product)
        yield from response.follow_all([each.attributes["href"] for each in tree.css(NEXT)])

    def product(self, response: Response) -> Iterator[Any]:
        yield LEXBOR[self.kind](response.tree, response.url)
