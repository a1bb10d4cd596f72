"""Every kind of spider over the same real pages, all middlewares on: each yields the same items (C1, C2).

The pages are the library reference of the packaged Python documentation. The spiders are a plain spider with parsel, a
plain spider with lexbor, a CrawlSpider, and a SitemapSpider. The sitemap is made for the test: an index with a
compressed part. `make test` takes the modules whose names begin with a to e, `make prove` takes all.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.cli.command import assert_exactly_once, items, lycosa
from tests.conftest import PROVE
from tests.crawl.e2e.test_spider_kinds import reachable
from tests.servers.file_site import serve as serve_files
from tests.servers.nginx import serve

pytestmark = [pytest.mark.nginx, pytest.mark.site]
PAGES_MIN, CODE_MIN = (250, 1000) if PROVE else (80, 300)
FOLLOWED = rf"/html/library/{'' if PROVE else '[a-e]'}[^/?]*\.html$"
HEAD = """
from lycosa import CrawlSpider, LinkExtractor, Rule, SitemapSpider, Spider

def by_parsel(response):
    return {
        "url": response.url,
        "title": response.css("title::text").get(),
        "headings": ["".join(each.css("::text").getall()) for each in response.css("h1")],
        "code": len(response.css("pre")),
        "links": response.xpath("//div[@role='main']//a/@href").getall(),
    }

def by_lexbor(response):
    tree = response.tree
    return {
        "url": response.url,
        "title": tree.css_first("title").text(),
        "headings": [each.text() for each in tree.css("h1")],
        "code": len(tree.css("pre")),
        "links": [link.attributes["href"] for link in tree.css("div[role=main] a[href]")],
    }

class Docs:
    name = "docs"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {
        "COOKIES_ENABLED": True, "HTTPCACHE_ENABLED": True, "HTTPCACHE_POLICY": "rfc9111", "METAREFRESH_ENABLED": True,
        "AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0, "AUTOTHROTTLE_MAX_DELAY": 0.005,
        "HTTPAUTH_USER": "ada", "HTTPAUTH_PASS": "x", "HTTPAUTH_DOMAIN": "127.0.0.1", "DEPTH_LIMIT": 20,
    }
    def __init__(self, start, sitemap, **arguments):
        self.start_urls, self.sitemap_urls = [start], [sitemap]
        super().__init__(**arguments)
"""
SPIDERS = {
    "parsel": """
    class Parsel(Docs, Spider):
        links = LinkExtractor(allow=r"FOLLOWED")
        def parse(self, response):
            yield by_parsel(response)
            yield from response.follow_all(self.links.extract_links(response))
    """,
    "lexbor": """
    class Lexbor(Docs, Spider):
        links = LinkExtractor(allow=r"FOLLOWED")
        async def parse(self, response):
            yield by_lexbor(response)
            for link in self.links.extract_links(response):
                yield response.follow(link)
    """,
    "crawl": """
    class Crawl(Docs, CrawlSpider):
        rules = [Rule(LinkExtractor(allow=r"FOLLOWED"), callback="parse_page", follow=True)]
        def parse_start_url(self, response):
            return by_parsel(response)
        def parse_page(self, response):
            return by_parsel(response)
    """,
    "sitemap": """
    class Sitemap(Docs, SitemapSpider):
        def parse(self, response):
            return by_lexbor(response)
    """,
}  # fmt: skip


@pytest.fixture(scope="module")
def found(docs_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Run each spider over the documentation. Return the items with paths instead of URLs, sorted by path."""
    start = start_in(docs_root)
    paths = reachable(docs_root, start, re.compile(FOLLOWED))
    items_by_kind = {}
    with serve(docs_root) as server:
        urls = "".join(f"<url><loc>{server.url}{path}</loc></url>" for path in sorted(paths))
        part = gzip.compress(f"<urlset>{urls}</urlset>".encode())
        index = "<sitemapindex><sitemap><loc>/part.xml.gz</loc></sitemap></sitemapindex>"
        with serve_files({"/index.xml": ("text/xml", index), "/part.xml.gz": ("application/gzip", part)}) as files:
            for kind, spider in SPIDERS.items():
                home = tmp_path_factory.mktemp(kind)
                (home / "spider.py").write_text(HEAD + dedent(spider).replace("FOLLOWED", FOLLOWED))
                arguments = ("-a", f"start={server.url}{start}", "-a", f"sitemap={files.url}/index.xml")
                done = lycosa("runspider", "spider.py", *arguments, "-o", "items.jsonl", "-q", cwd=home)
                assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
                items_by_kind[kind] = sorted_by_path(items(home / "items.jsonl"))
    return items_by_kind


def start_in(docs_root: Path) -> str:
    (folder,) = [each for each in docs_root.iterdir() if re.fullmatch(r"python3\.\d+", each.name)]
    return f"/{folder.name}/html/library/index.html"


def sorted_by_path(written: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = [{**item, "url": urlsplit(item["url"]).path} for item in written]
    return sorted(found, key=lambda item: item["url"])


def test_every_spider_yields_every_page_once(found: dict[str, list[dict[str, Any]]], docs_root: Path) -> None:
    expected = reachable(docs_root, start_in(docs_root), re.compile(FOLLOWED))
    assert len(expected) > PAGES_MIN
    for written in found.values():
        assert_exactly_once([item["url"] for item in written], expected)


def test_items_have_titles_headings_links_and_code(found: dict[str, list[dict[str, Any]]]) -> None:
    for item in found["parsel"]:
        assert item["title"], item["url"]
        assert item["headings"], item["url"]
        assert item["links"], item["url"]
    assert sum(item["code"] for item in found["parsel"]) > CODE_MIN


@pytest.mark.parametrize("kind", ["lexbor", "crawl", "sitemap"])
def test_the_items_match_those_of_parsel(found: dict[str, list[dict[str, Any]]], kind: str) -> None:
    differ = [pair for pair in zip(found["parsel"], found[kind], strict=True) if pair[0] != pair[1]]
    assert differ == []
