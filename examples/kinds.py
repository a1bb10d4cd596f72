"""Four kinds of spiders in one run: links by rules, sitemaps, an XML feed, a table.

python examples/kinds.py https://example.com/ items.jsonl
"""

from __future__ import annotations

import sys

import lycosa
from lycosa import CrawlSpider, CSVFeedSpider, LinkExtractor, Rule, SitemapSpider, XMLFeedSpider


class ByRules(CrawlSpider):
    name = "by rules"
    rules = (
        Rule(LinkExtractor(deny="/1")),  # followed
        Rule(LinkExtractor(allow="/1"), callback="parse_one"),  # parsed, not followed
    )

    async def start(self):
        yield lycosa.Request(self.site)

    def parse_one(self, response):
        yield {"spider": self.name, "url": response.url, "link": response.meta["link_text"]}


class FromSitemaps(SitemapSpider):
    name = "from sitemaps"
    sitemap_rules = (("/product/", "parse_page"),)

    def __init__(self, site):
        super().__init__(start_urls=[site])  # its robots.txt names the sitemaps

    def parse_page(self, response):
        yield {"spider": self.name, "url": response.url}


class News(XMLFeedSpider):
    name = "news"
    itertag = "item"

    async def start(self):
        yield lycosa.Request(f"{self.site}feed.rss")

    def parse_node(self, response, node):
        yield {"spider": self.name, "title": node.xpath("title/text()").get()}


class Prices(CSVFeedSpider):
    name = "prices"
    delimiter = ";"

    async def start(self):
        yield lycosa.Request(f"{self.site}table.csv")

    def parse_row(self, response, row):
        yield {"spider": self.name, **row}


def main(site: str, output: str) -> None:
    settings = lycosa.Settings(output=output, max_pages=100)
    summary = lycosa.run_crawl(settings, [ByRules, FromSitemaps, News, Prices], spider_args={"site": site})
    print(f"{summary.snapshot.items} items of {summary.snapshot.pages} pages")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
