"""A spider that starts from the sitemaps of a site.

    class Shop(SitemapSpider):
        name = "shop"
        sitemap_urls = ["https://shop.example/robots.txt"]   # or sitemaps; not needed if start_urls name the site
        sitemap_rules = [("/product/", "parse_product")]
        sitemap_since = "2026-01-01"

        def parse_product(self, response):
            yield {"name": response.css("h1::text").get()}

RSS and Atom feeds and plain lists of URLs count as sitemaps too. Each page is fetched once, even if several sitemaps
list it.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from lycosa.core.errors import BadSpider
from lycosa.core.public import public
from lycosa.core.units import DAY_S
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.spiders.callbacks import compile_regex
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.spider import Spider, domains_as_urls
from lycosa.html.links import join
from lycosa.http.core.request import Request
from lycosa.http.core.sitemap import SitemapEntry, parse_sitemap, sitemaps_in_robots, timestamp

NESTED_MAX = 10

SITEMAP_TRANSFER_MAX = 64 * 2**20
"""Maximum bytes of a sitemap; the default limit for pages (`max_body`) is smaller."""

NO_ROBOTS = [401, 403, 404, 410]
"""If the robots.txt of a site has one of these statuses, `/sitemap.xml` is fetched instead. This does not apply to
`sitemap_urls`."""

Since = str | float | date | None


@public
class SitemapSpider(Spider):
    """Fetches the pages that sitemaps list. Raises `BadSpider` for invalid rules and dates.

    `sitemap_urls`: sitemaps and robots.txt files. The default is the robots.txt of each site in `start_urls`, or,
    without start URLs, of each domain in `allowed_domains`. If a robots.txt names no sitemap, `/sitemap.xml` is used.
    `sitemap_rules`: (regular expression, callback) pairs. The first expression that matches a URL selects its callback;
    other URLs are skipped. `sitemap_follow`: expressions that select sitemaps from an index. `sitemap_alternate_links`:
    whether to fetch a page in its other languages too. `sitemap_since`: skip pages and sitemaps last modified before
    this time (UTC); those without a date are fetched.
    """

    sitemap_urls: Sequence[str] = ()
    sitemap_rules: Sequence[tuple[str | re.Pattern[str], Any]] = (("", "parse"),)
    sitemap_follow: Sequence[str | re.Pattern[str]] = ("",)
    sitemap_alternate_links: bool = False
    sitemap_since: Since = None

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        owner = type(self).__name__
        if isinstance(self.sitemap_urls, str):
            raise BadSpider(f"sitemap_urls of {owner} is a string: write a list, [{self.sitemap_urls!r}]")
        self._since = _unix(self.sitemap_since, owner)
        self._follow = [compile_regex(regex, f"sitemap_follow of {owner}").search for regex in self.sitemap_follow]
        self._callbacks = list(self._compile_rules(f"sitemap_rules of {owner}"))

    def _compile_rules(self, where: str) -> Iterator[tuple[Callable[[str], object], str]]:
        rules: Iterable[Any] = self.sitemap_rules
        for rule in rules:
            if not isinstance(rule, (tuple, list)) or len(rule) != 2:
                raise BadSpider(f"{where} is {self.sitemap_rules!r:.60}: write [(regular expression, callback), ...]")
            regex, callback = rule
            if problem := user_errors.check_callback(callback, self):
                raise BadSpider(f"{where}: {problem}")
            name = callback if isinstance(callback, str) else callback.__name__
            yield compile_regex(regex, where).search, name

    async def start(self) -> AsyncIterator[Request]:
        for url in self.sitemap_urls:
            yield _sitemap_request(url)
        if not self.sitemap_urls:
            for url in self._robots_urls():
                yield _sitemap_request(url, handle_httpstatus_list=NO_ROBOTS)

    def sitemap_filter(self, entries: Iterable[SitemapEntry]) -> Iterable[SitemapEntry]:
        """Filter the entries of a sitemap or an index. Override this to skip some."""
        return entries

    def _parse_sitemap(self, response: Response) -> Iterable[Request]:
        if urlsplit(response.url).path.endswith("/robots.txt"):
            sitemaps = sitemaps_in_robots(response.body, response.url)
            return map(_sitemap_request, sitemaps or [response.urljoin("/sitemap.xml")])
        sitemap = parse_sitemap(response.body)
        if not sitemap.kind:
            self.logger.warning("%s is not a sitemap: it is skipped", response.url)
        if sitemap.cut:
            self.logger.warning(
                "%s is too large: only its first %d entries are read", response.url, len(sitemap.entries)
            )
        urls = self._urls(response.url, self.sitemap_filter(filter(self._is_recent, sitemap.entries)))
        return self._pages(urls) if sitemap.kind != "index" else self._sitemaps(urls, response)

    def _sitemaps(self, urls: Iterable[str], response: Response) -> Iterator[Request]:
        if response.depth >= NESTED_MAX:
            self.logger.warning("%s is a sitemap index nested in %d others: it is skipped", response.url, NESTED_MAX)
            return
        for url in urls:
            if any(search(url) for search in self._follow):
                yield _sitemap_request(url)

    def _pages(self, urls: Iterable[str]) -> Iterator[Request]:
        for url in urls:
            for search, callback in self._callbacks:
                if search(url):
                    yield Request(url, callback)
                    break

    def _urls(self, sitemap_url: str, entries: Iterable[SitemapEntry]) -> Iterator[str]:
        seen: set[str] = set()
        for entry in entries:
            for loc in (entry.loc, *(entry.alternates if self.sitemap_alternate_links else ())):
                url = join(sitemap_url, loc)
                if url is not None and url not in seen:
                    seen.add(url)
                    yield url

    def _is_recent(self, entry: SitemapEntry) -> bool:
        if self._since is None or entry.lastmod is None:
            return True
        # Midnight means a date without a time of day: the page may have changed at any time of that day.
        return entry.lastmod >= self._since or (entry.lastmod % DAY_S == 0 and entry.lastmod + DAY_S > self._since)

    def _robots_urls(self) -> list[str]:
        sites = self.start_urls or domains_as_urls(self.allowed_domains, "https")
        if not sites:
            owner = type(self).__name__
            raise BadSpider(f"{owner} has no sitemap_urls: list sitemaps there, or the site in start_urls")
        urls = (join(site, "/robots.txt") for site in sites)
        return list(dict.fromkeys(url for url in urls if url is not None))


def _sitemap_request(url: str, **meta: Any) -> Request:
    return Request(url, "_parse_sitemap", meta={"download_maxsize": SITEMAP_TRANSFER_MAX, **meta})


def _unix(since: Since, owner: str) -> float | None:
    if since is None or isinstance(since, (int, float)):
        return since
    seconds = timestamp(since if isinstance(since, str) else since.isoformat())
    if seconds is None:
        raise BadSpider(f"sitemap_since of {owner} is {since!r}: write a date, like '2026-01-31'")
    return seconds
