"""The kinds of spiders (C2): each is a file run by the command against a local site."""

from __future__ import annotations

import gzip
import re
from html import unescape
from pathlib import Path
from textwrap import dedent
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import pytest

from tests.cli.command import assert_exactly_once, items, lycosa, start_command
from tests.conftest import PROVE
from tests.servers.file_site import FileSite, serve
from tests.servers.nginx import serve as serve_folder
from tests.servers.tree import grow

HEAD = "from lycosa import CrawlSpider, CSVFeedSpider, LinkExtractor, Request, Rule, SitemapSpider, XMLFeedSpider\n"
HTML, XML = "text/html; charset=utf-8", "application/xml"


def command(site: str, *more: object) -> list[object]:
    return ["runspider", "spider.py", "-a", f"site={site}", "-o", "items.jsonl", *more]


def write(cwd: Path, spider: str) -> None:
    (cwd / "spider.py").write_text(HEAD + dedent(spider))


def run_spider(site: str, cwd: Path, spider: str, *more: object, code: int = 0) -> str:
    """Write a spider and run it to this exit code. Return its standard error."""
    write(cwd, spider)
    done = lycosa(*command(site, *more), cwd=cwd)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    return done.stderr


def written(cwd: Path) -> list[dict[str, Any]]:
    return items(cwd / "items.jsonl")


def paths(cwd: Path) -> list[str]:
    """Return the sorted paths of the items."""
    return sorted(urlsplit(item["url"]).path for item in written(cwd))


SECOND_RULE = 'Rule(LinkExtractor(allow=r"[0-9]$", restrict_xpaths="//li")),'
TREE = """
class Tree(CrawlSpider):
    name = "tree"
    rules = [
        Rule(LinkExtractor(allow=r"[02468]$", restrict_css="li"), callback="parse_even", follow=True,
             cb_kwargs={"kind": "even"}),
        SECOND
    ]
    def __init__(self, site, **arguments):
        self.start_urls = [site + "/0"]
        super().__init__(**arguments)
    def parse_start_url(self, response):
        return {"url": response.url, "kind": "start"}
    async def parse_even(self, response, kind):
        return {"url": response.url, "kind": kind, "text": response.meta["link_text"]}
""".replace("SECOND", SECOND_RULE)


def test_a_crawl_spider_follows_its_rules(tmp_path):
    with grow(60) as tree:
        site = tree.url.removesuffix("/0")
        run_spider(site, tmp_path, TREE, "--no-robots")
        assert sorted({hit.path for hit in tree.hits()}) == sorted(f"/{n}" for n in range(60))
    evens = [item for item in written(tmp_path) if item["kind"] == "even"]
    assert_exactly_once([item["url"] for item in evens], {f"{site}/{n}" for n in range(2, 60, 2)})
    assert all(item["text"] == f"page {item['url'].rsplit('/', 1)[1]}" for item in evens)
    assert [item["url"] for item in written(tmp_path) if item["kind"] == "start"] == [f"{site}/0"]


def test_a_killed_crawl_spider_resumes_by_its_rules(tmp_path):
    write(tmp_path, TREE)
    with grow(60, delay_s=0.1) as tree:
        site = tree.url.removesuffix("/0")
        # The delay keeps the crawl from ending before the kill.
        with start_command(*command(site, "--no-robots", "--delay", 0.1), cwd=tmp_path) as run:
            assert run.until(lambda: len(tree.hits()) > 12), run.stderr
            assert run.kill(), run.stderr
        run_spider(site, tmp_path, TREE, "--no-robots")
    evens = [item["url"] for item in written(tmp_path) if item["kind"] == "even"]
    assert_exactly_once(evens, {f"{site}/{n}" for n in range(2, 60, 2)})


def test_a_resumed_crawl_names_a_missing_rule(tmp_path):
    write(tmp_path, TREE)
    with grow(60, delay_s=0.2) as tree:
        site = tree.url.removesuffix("/0")
        # The delay keeps the crawl from ending before the kill.
        with start_command(*command(site, "--no-robots", "--delay", 0.1), cwd=tmp_path) as run:
            assert run.until(lambda: len(tree.hits()) > 16), run.stderr
            assert run.kill(), run.stderr
        stderr = run_spider(site, tmp_path, TREE.replace(SECOND_RULE, ""), "--no-robots", code=1)
    assert "was found by rule 1 (counted from 0), and Tree has 1 rules: restore the rule to resume" in stderr


PAGES = {
    f"/{name}": (HTML, f"<h1>{name}</h1>") for name in ("a", "b", "c", "d", "e", "old", "de/a", "news/1", "news/2")
}
SITEMAPS: dict[str, tuple[str, bytes | str]] = {
    **PAGES,
    "/robots.txt": ("text/plain", "User-agent: *\nDisallow: /e\nSitemap: {site}/index.xml\nSitemap: /list.txt\n"),
    "/index.xml": (
        XML,
        """<sitemapindex><sitemap><loc>{site}/pages.xml.gz</loc></sitemap><sitemap><loc>{site}/2019.xml</loc>
        <lastmod>2019-12-31</lastmod></sitemap><sitemap><loc>/feed.rss</loc></sitemap></sitemapindex>""",
    ),
    "/2019.xml": (XML, "<urlset><url><loc>/old</loc></url></urlset>"),
    "/list.txt": ("text/plain", "{site}/c\n{site}/e\n"),
    "/feed.rss": (
        "application/rss+xml",
        """<rss><channel><item><link>{site}/news/1</link><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate></item>
        <item><link>{site}/news/2</link><pubDate>Wed, 02 Jan 2019 00:00:00 GMT</pubDate></item></channel></rss>""",
    ),
    "/pages.xml.gz": (
        "application/x-gzip",
        gzip.compress(
            b'<urlset xmlns:x="http://www.w3.org/1999/xhtml"><url><loc>/a</loc><x:link rel="alternate" href="/de/a"/>'
            b"<lastmod>2026-01-01</lastmod></url><url><loc>/b</loc></url><url><loc>/d</loc>"
            b"<lastmod>2019-01-01</lastmod></url></urlset>"
        ),
    ),
}
SITEMAP_SPIDER = """
class Shop(SitemapSpider):
    name = "shop"
    def __init__(self, site, start="/robots.txt", **arguments):
        self.sitemap_urls = [site + start] if start else []
        self.start_urls = [site + "/somewhere/else"]
        super().__init__(**arguments)
    def parse(self, response):
        return {"url": response.url, "by": "parse"}
    def parse_news(self, response):
        return {"url": response.url, "by": "parse_news"}
"""
EVERYTHING = ["/a", "/b", "/c", "/d", "/news/1", "/news/2", "/old"]


@pytest.fixture
def site() -> Any:
    with serve(SITEMAPS) as site:
        yield site


@pytest.mark.parametrize("start", ["/robots.txt", ""])
def test_a_sitemap_spider_reads_the_sitemaps_of_robots_txt(site: FileSite, tmp_path, start):
    stderr = run_spider(site.url, tmp_path, SITEMAP_SPIDER, "-a", f"start={start}")
    assert paths(tmp_path) == EVERYTHING
    assert "/e" not in site.hits, "robots.txt forbids it"
    assert "robots" in stderr
    assert site.hits.count("/pages.xml.gz") == 1


def test_a_sitemap_spider_applies_rules_alternate_links_and_a_date(site: FileSite, tmp_path):
    more = """
    sitemap_rules = [("/news/", "parse_news"), ("/[a-d]", "parse")]
    sitemap_alternate_links = True
    sitemap_since = "2020-01-01"
    """
    run_spider(site.url, tmp_path, SITEMAP_SPIDER + more, "--no-robots")
    assert {(urlsplit(item["url"]).path, item["by"]) for item in written(tmp_path)} == {
        ("/a", "parse"),
        ("/b", "parse"),
        ("/c", "parse"),
        ("/de/a", "parse"),
        ("/news/1", "parse_news"),
    }
    assert "/2019.xml" not in site.hits


def test_without_robots_txt_the_sitemap_at_its_usual_path_is_read(tmp_path):
    files = {"/sitemap.xml": (XML, "<urlset><url><loc>/a</loc></url></urlset>"), "/a": (HTML, "<h1>a</h1>")}
    with serve(files) as site:
        run_spider(site.url, tmp_path, SITEMAP_SPIDER, "-a", "start=")
    assert paths(tmp_path) == ["/a"]


def test_an_invalid_date_is_reported_before_the_crawl(site: FileSite, tmp_path):
    stderr = run_spider(site.url, tmp_path, SITEMAP_SPIDER, "-a", "sitemap_since=soon", code=2)
    assert "sitemap_since of Shop is 'soon': write a date, like '2026-01-31'" in stderr
    assert site.hits == []


def test_an_xml_feed_spider_calls_parse_node_for_each_element(site: FileSite, tmp_path):
    spider = """
    class News(XMLFeedSpider):
        name = "news"
        itertag = "item"
        def __init__(self, site, **arguments):
            self.start_urls = [site + "/feed.rss"]
            super().__init__(**arguments)
        def parse_node(self, response, node):
            yield {"url": node.xpath("link/text()").get(), "by": "node"}
            yield response.follow(node.xpath("link/text()").get(), self.parse_page)
        def parse_page(self, response):
            return {"url": response.url, "by": response.css("h1::text").get()}
    """
    run_spider(site.url, tmp_path, spider, "--no-robots")
    assert sorted((item["by"], urlsplit(item["url"]).path) for item in written(tmp_path)) == [
        ("news/1", "/news/1"),
        ("news/2", "/news/2"),
        ("node", "/news/1"),
        ("node", "/news/2"),
    ]


def test_a_csv_feed_spider_calls_parse_row_for_each_valid_row(tmp_path):
    spider = """
    class Prices(CSVFeedSpider):
        name = "prices"
        delimiter = ";"
        def __init__(self, site, **arguments):
            self.start_urls = [site + "/prices.csv"]
            super().__init__(**arguments)
        def parse_row(self, response, row):
            return {"sku": row["sku"], "price": float(row["price"])}
    """
    with serve({"/prices.csv": ("text/csv", "sku;price\n1;1.5\nbroken\n2;2\n")}) as site:
        run_spider(site.url, tmp_path, spider, "--no-robots")
    assert written(tmp_path) == [{"sku": "1", "price": 1.5}, {"sku": "2", "price": 2.0}]


HREF = re.compile(r"""<a\s[^>]*?\bhref\s*=\s*["']?([^"'\s>]*)""", re.IGNORECASE)


def reachable(root: Path, start: str, followed: re.Pattern[str]) -> set[str]:
    """Return the paths of all pages that links lead to, as found by regular expressions."""
    found, pending = {start}, [start]
    while pending:
        path = pending.pop()
        for href in HREF.findall((root / unquote(path).lstrip("/")).read_text(encoding="utf-8")):
            target = urldefrag(urljoin(f"http://site{path}", unescape(href))).url
            parts = urlsplit(target)
            is_new = parts.netloc == "site" and followed.search(target) and parts.path not in found
            if is_new and (root / unquote(parts.path).lstrip("/")).is_file():
                found.add(parts.path)
                pending.append(parts.path)
    return found


@pytest.mark.nginx
@pytest.mark.site
def test_a_crawl_spider_fetches_all_linked_real_pages(docs_root, tmp_path):
    (folder,) = [each for each in docs_root.iterdir() if re.fullmatch(r"python3\.\d+", each.name)]
    start = f"/{folder.name}/html/library/index.html"
    followed = re.compile(rf"/html/library/{'' if PROVE else '[a-e]'}[^/]*\.html(\?|$)")
    expected = reachable(docs_root, start, followed)
    spider = f"""
    class Docs(CrawlSpider):
        name = "docs"
        rules = [Rule(LinkExtractor(allow=r"{followed.pattern}"), callback="parse_page", follow=True)]
        def __init__(self, site, **arguments):
            self.start_urls = [site + "{start}"]
            super().__init__(**arguments)
        def parse_start_url(self, response):
            return self.parse_page(response)
        def parse_page(self, response):
            return {{"url": response.url, "title": response.css("title::text").get()}}
    """
    with serve_folder(docs_root) as server:
        run_spider(server.url, tmp_path, spider, "--no-robots", "-q")
    assert len(expected) > (250 if PROVE else 80)
    assert_exactly_once([urlsplit(item["url"]).path for item in written(tmp_path)], expected)
    assert all(item["title"] for item in written(tmp_path))
