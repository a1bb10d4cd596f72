"""The sites of the spider benchmark: a bookstore of generated pages, and a catalogue of real ones.

    catalogue/page-1.html ...    lists: each has 20 links to the pages below, and one link to the next list
    books/book-0.html ...        3 kB: title, price, stock, rating, description, breadcrumbs, a table of details

Every generated page is a function of its number, so that each run and each machine has the same pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import islice
from pathlib import Path
from random import Random

PER_LIST = 20
PAGE_BYTES = 3_000
START = "catalogue/page-1.html"
CATEGORIES = ("Travel", "Mystery", "Poetry", "History", "Science & Nature", "Children's", "Philosophy", "Crime")
PLAIN = re.compile(r"[\w./-]+", re.ASCII)
LEADS_AWAY = re.compile(rb"http-equiv\s*=\s*[\"']?refresh", re.IGNORECASE)
RATINGS = ("One", "Two", "Three", "Four", "Five")
WORDS = [
    "amber",
    "wolf",
    "spider",
    "river",
    "night",
    "garden",
    "café",
    "letter",
    "winter",
    "machine",
    "silent",
    "paper",
    "harbour",
    "stone",
    "fox",
    "été",
    "glass",
    "north",
    "morning",
    "archive",
    "compass",
    "velvet",
    "engine",
    "thread",
    "island",
    "orchard",
    "signal",
    "copper",
    "window",
    "atlas",
    "salt",
    "meadow",
    "naïve",
    "lantern",
]


def products_of(pages: int) -> int:
    """Return how many products make this number of pages, if the lists count as pages, too."""
    return max(1, pages * PER_LIST // (PER_LIST + 1))


def write_shop(folder: Path, products: int) -> list[str]:
    """Write the bookstore; return the paths of its product pages."""
    paths = [f"books/book-{number}.html" for number in range(products)]
    (folder / "books").mkdir(parents=True)
    for number, path in enumerate(paths):
        (folder / path).write_text(book_page(number), "utf-8")
    write_catalogue(folder, paths)
    return paths


def write_catalogue(folder: Path, paths: Sequence[str]) -> None:
    """Write lists that lead to all of these pages."""
    (folder / "catalogue").mkdir(parents=True)
    for number, (part, more) in enumerate(_parts(paths), 1):
        (folder / f"catalogue/page-{number}.html").write_text(list_page(number, part, more=more), "utf-8")


def _parts(paths: Sequence[str]) -> Iterator[tuple[Sequence[str], bool]]:
    for first in range(0, len(paths), PER_LIST):
        yield paths[first : first + PER_LIST], first + PER_LIST < len(paths)


def list_page(number: int, paths: Iterable[str], *, more: bool) -> str:
    """Return a list: a link to each page, and one to the next list if there are `more`."""
    entries = "".join(
        f'<li><article class="product_pod"><h3><a href="../{path}" title="{path}">{path}</a></h3>'
        f'<p class="price_color">£{Random(path).randrange(1000, 6000) / 100:.2f}</p></article></li>\n'
        for path in paths
    )
    following = f'<li class="next"><a href="page-{number + 1}.html">next</a></li>' if more else ""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>All products | page {number}</title></head>'
        f'<body><h1>All products</h1><ol class="row">\n{entries}</ol><ul class="pager">{following}</ul></body></html>'
    )


def book_page(number: int) -> str:
    """Return a product page of about 3 kB."""
    chance = Random(number)
    title = " ".join(chance.choice(WORDS).capitalize() for _ in range(chance.randrange(2, 7))) + f" & Vol. {number}"
    category = chance.choice(CATEGORIES)
    price, stock = chance.randrange(1000, 6000) / 100, chance.randrange(0, 30)
    details = {
        "UPC": f"{chance.getrandbits(64):016x}",
        "Product Type": "Books",
        "Price (excl. tax)": f"£{price:.2f}",
        "Price (incl. tax)": f"£{price * 1.2:.2f}",
        "Tax": f"£{price * 0.2:.2f}",
        "Availability": f"In stock ({stock} available)",
        "Number of reviews": str(chance.randrange(100)),
    }
    rows = "\n".join(f"<tr><th>{escape(name)}</th><td>{value}</td></tr>" for name, value in details.items())
    page = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} | A bookstore</title>
<link rel="stylesheet" href="/static/styles.css"><script src="/static/shop.js"></script></head>
<body class="default"><header class="header"><a href="/catalogue/page-1.html">A bookstore</a>
<small>We love books</small></header>
<ul class="breadcrumb"><li><a href="/catalogue/page-1.html">Home</a></li>
<li><a href="/catalogue/page-1.html">Books</a></li>
<li><a href="/catalogue/page-1.html">{escape(category)}</a></li><li class="active">{escape(title)}</li></ul>
<article class="product_page"><div class="row">
<div class="thumbnail"><img src="/media/{number}.jpg" alt="{escape(title)}"></div>
<div class="product_main"><h1>{escape(title)}</h1><p class="price_color">£{price:.2f}</p>
<p class="instock availability"><i class="icon-ok"></i> In stock ({stock} available)</p>
<p class="star-rating {chance.choice(RATINGS)}"><i></i><i></i><i></i><i></i><i></i></p></div></div>
<div id="product_description" class="sub-header"><h2>Product Description</h2></div>
<p>%s</p>
<div class="sub-header"><h2>Product Information</h2></div>
<table class="table table-striped">
{rows}
</table></article>
<footer><ul><li><a href="/about.html">About</a></li><li><a href="/terms.html">Terms</a></li></ul></footer></body></html>
"""
    return page % _prose(chance, PAGE_BYTES - len(page.encode()))


def _prose(chance: Random, size_bytes: int) -> str:
    words = []
    while size_bytes > 0:
        words.append(chance.choice(WORDS))
        size_bytes -= len(words[-1].encode()) + 1
    return " ".join(words).capitalize() + "."


def real_pages(site: Path, count: int) -> list[str]:
    """Return the paths of `count` HTML pages of a site, the same ones on each machine that has the same site.

    Pages that redirect at once (`http-equiv="refresh"`) are left out: not every crawler follows such a redirect.
    """
    files = (path for path in site.rglob("*.html") if path.is_file() and not LEADS_AWAY.search(path.read_bytes()))
    paths = (path.relative_to(site).as_posix() for path in files)
    found = sorted(path for path in paths if PLAIN.fullmatch(path))
    step = max(1, len(found) // count)
    return list(islice(found[::step], count))
