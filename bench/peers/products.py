"""Shared by the spiders of the bookstore benchmark: their arguments and items.

    python bench/peers/PEER.py ITEMS KIND START_URL

KIND is `shop` (generated product pages), `awaiting` (the same pages, but the callback of each product waits a second)
or `docs` (real pages of documentation behind the same kind of lists). Scrapy, crawlee and Lycosa all use the parsel
functions as they are; the lexbor functions select the same values from a tree of lexbor.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

CONCURRENCY = 64
PER_HOST = {"awaiting": 8}
"""Number of transfers at a time, for the kinds that have fewer than CONCURRENCY."""

AWAIT_S = {"awaiting": 1.0}
"""How many seconds the callback of a product waits, for the kinds in which it does."""

TIMEOUT_S = 30
PRODUCTS = "article.product_pod h3 a"
NEXT = "li.next a"


class Job(NamedTuple):
    """What one run has to do."""

    items: str
    kind: str
    start: str


def job() -> Job:
    """Read the command line."""
    return Job(*sys.argv[1:])


def words(texts: list[str]) -> str:
    """Return the text in one line."""
    return " ".join(" ".join(texts).split())


# --- with parsel


def book(page: Any, url: str) -> dict[str, Any]:
    """Return the item of a generated product page."""
    return {
        "url": url,
        "title": page.css("h1::text").get(),
        "price": page.css("p.price_color::text").get(),
        "stock": page.css("p.availability::text").re_first(r"\d+"),
        "rating": page.css("p.star-rating::attr(class)").get(),
        "description": page.css("#product_description + p::text").get(),
        "breadcrumbs": page.css("ul.breadcrumb li a::text").getall(),
        "details": dict(zip(page.css("table th::text").getall(), page.css("table td::text").getall(), strict=True)),
    }


def document(page: Any, url: str) -> dict[str, Any]:
    """Return the item of a real page."""
    return {
        "url": url,
        "title": words(page.css("title::text").getall()),
        "headings": [words(each.css("::text").getall()) for each in page.css("h1, h2")],
        "links": page.css("a::attr(href)").getall(),
        "samples": len(page.css("pre")),
        "rows": len(page.css("table tr")),
        "meta": page.css("meta[name=generator]::attr(content)").get(),
    }


PARSEL = {"shop": book, "awaiting": book, "docs": document}


# --- with lexbor


def lexbor_book(tree: Any, url: str) -> dict[str, Any]:
    """Return what `book` returns."""
    stock = "".join(filter(str.isdigit, tree.css_first("p.availability").text()))
    names, values = tree.css("table th"), tree.css("table td")
    return {
        "url": url,
        "title": tree.css_first("h1").text(),
        "price": tree.css_first("p.price_color").text(),
        "stock": stock,
        "rating": tree.css_first("p.star-rating").attributes["class"],
        "description": tree.css_first("#product_description + p").text(),
        "breadcrumbs": [each.text() for each in tree.css("ul.breadcrumb li a")],
        "details": {name.text(): value.text() for name, value in zip(names, values, strict=True)},
    }


def lexbor_document(tree: Any, url: str) -> dict[str, Any]:
    """Return what `document` returns."""
    generator = tree.css_first("meta[name=generator]")
    return {
        "url": url,
        "title": words([each.text() for each in tree.css("title")]),
        "headings": [words([each.text(separator=" ")]) for each in tree.css("h1, h2")],
        "links": [href for each in tree.css("a[href]") if (href := each.attrs["href"]) is not None],
        "samples": len(tree.css("pre")),
        "rows": len(tree.css("table tr")),
        "meta": generator.attributes.get("content") if generator is not None else None,
    }


LEXBOR = {"shop": lexbor_book, "docs": lexbor_document}
