"""A spider that starts from the sitemaps of a site.

    class Shop(SitemapSpider):
        name = "shop"
        sitemap_urls = ["https://shop.example/robots.txt"]   # or sitemaps, or nothing where start_urls name the site
        sitemap_rules = [("/product/", "parse_product")]
        sitemap_since = "2026-01-01"

        def parse_product(self, response):
            yield {"name": response.css("h1::text").get()}

robots.txt leads to sitemaps, an index to further sitemaps, and those to pages; RSS and Atom feeds and plain lists of
URLs count as sitemaps too. A page is asked for once, however many sitemaps list it.
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
from lycosa.crawl.spiders.callbacks import stored_method_name
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.spider import Spider
from lycosa.html.links import join
from lycosa.http.core.request import Request
from lycosa.http.core.sitemap import SitemapEntry, parse_sitemap, sitemaps_in_robots, timestamp

NESTED_MAX = 10
"""How deep an index of sitemaps may be inside others."""

SITEMAP_TRANSFER_MAX = 64 * 2**20
"""Bytes of a sitemap that are fetched: more than of a page."""

NO_ROBOTS = [401, 403, 404, 410]
"""Statuses of a robots.txt that is not there for us, as its sitemap may be all the same."""


Since = str | float | date | None


@public
class SitemapSpider(Spider):
    """Fetches the pages that sitemaps list. Raises `BadSpider` for rules and dates that cannot work.

    `sitemap_urls`: sitemaps and robots.txt files; without any, the robots.txt of every site in `start_urls`, or else in
    `allowed_domains`, and `/sitemap.xml` where that names none. `sitemap_rules`: (regular expression, callback) pairs;
    the first one found in a URL counts, a URL that has none is left out. `sitemap_follow`: which sitemaps of an index
    to read. `sitemap_alternate_links`: also take the other languages of a page. `sitemap_since`: leave out what was
    changed last before that time (UTC); what does not say when is taken.
    """

    sitemap_urls: Sequence[str] = ()
    sitemap_rules: Sequence[tuple[str | re.Pattern[str], Any]] = (("", "parse"),)
    sitemap_follow: Sequence[str | re.Pattern[str]] = ("",)
    sitemap_alternate_links: bool = False
    sitemap_since: Since = None

    def __init__(self, **arguments: str) -> None:
        super().__init__(**arguments)
        what = type(self).__name__
        if isinstance(self.sitemap_urls, str):
            raise BadSpider(f"sitemap_urls of {what} is text: write a list, [{self.sitemap_urls!r}]")
        self._since = _unix(self.sitemap_since, what)
        self._follow = [_regex(each, f"sitemap_follow of {what}").search for each in self.sitemap_follow]
        self._callbacks = list(self._compiled(f"sitemap_rules of {what}"))

    def _compiled(self, where: str) -> Iterator[tuple[Callable[[str], object], str]]:
        rules: Iterable[Any] = self.sitemap_rules
        for rule in rules:
            if not isinstance(rule, (tuple, list)) or len(rule) != 2:
                raise BadSpider(f"{where} is {self.sitemap_rules!r:.60}: write [(regular expression, callback), ...]")
            regex, callback = rule
            yield _regex(regex, where).search, stored_method_name(self, callback, where)

    async def start(self) -> AsyncIterator[Request]:
        """Yield requests for the sitemaps to begin with."""
        for url in self.sitemap_urls:
            yield _sitemap_request(url)
        if not self.sitemap_urls:
            for url in self._robots_of_sites():
                yield _sitemap_request(url, handle_httpstatus_list=NO_ROBOTS)

    def sitemap_filter(self, entries: Iterable[SitemapEntry]) -> Iterable[SitemapEntry]:
        """Return the entries of a sitemap, or of an index, that are wanted. Yours to write."""
        return entries

    def _parse_sitemap(self, response: Response) -> Iterable[Request]:
        """Return the requests that follow from a sitemap or a robots.txt."""
        path = urlsplit(response.url).path
        if path.endswith("/robots.txt"):
            found = sitemaps_in_robots(response.body, response.url)
            return map(_sitemap_request, found or [response.urljoin("/sitemap.xml")])
        sitemap = parse_sitemap(response.body)
        if not sitemap.kind:
            self.logger.warning("%s is no sitemap: it is left out", response.url)
        if sitemap.cut:
            self.logger.warning(
                "%s is too large: only its first %d entries are read", response.url, len(sitemap.entries)
            )
        urls = self._urls(response.url, self.sitemap_filter(filter(self._is_recent, sitemap.entries)))
        return self._pages(urls) if sitemap.kind != "index" else self._sitemaps(urls, response)

    def _sitemaps(self, urls: Iterable[str], response: Response) -> Iterator[Request]:
        if response.depth >= NESTED_MAX:
            self.logger.warning("%s is an index inside %d others: it is left out", response.url, NESTED_MAX)
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
        """Yield the canonical URLs of entries, each once."""
        seen: set[str] = set()
        for entry in entries:
            for loc in (entry.loc, *entry.alternates) if self.sitemap_alternate_links else (entry.loc,):
                url = join(sitemap_url, loc)
                if url is not None and url not in seen:
                    seen.add(url)
                    yield url

    def _is_recent(self, entry: SitemapEntry) -> bool:
        if self._since is None or entry.lastmod is None:
            return True
        # Midnight is a date without a time of day: it may have been any time that day.
        return entry.lastmod >= self._since or (entry.lastmod % DAY_S == 0 and entry.lastmod + DAY_S > self._since)

    def _robots_of_sites(self) -> list[str]:
        sites = self.start_urls or [f"https://{domain.strip().removeprefix('.')}/" for domain in self.allowed_domains]
        found = [join(site, "/robots.txt") for site in sites]
        if not sites:
            what = type(self).__name__
            raise BadSpider(f"{what} has no sitemap_urls: name sitemaps there, or the site in start_urls")
        return list(dict.fromkeys(each for each in found if each is not None))


def _sitemap_request(url: str, **meta: Any) -> Request:
    return Request(url, "_parse_sitemap", meta={"download_maxsize": SITEMAP_TRANSFER_MAX, **meta})


def _regex(regex: str | re.Pattern[str], where: str) -> re.Pattern[str]:
    try:
        return re.compile(regex)
    except (re.error, TypeError) as error:
        raise BadSpider(f"{where}: {regex!r} is not a regular expression: {error}") from error


def _unix(since: Since, what: str) -> float | None:
    if since is None or isinstance(since, (int, float)):
        return since
    found = timestamp(since if isinstance(since, str) else since.isoformat())
    if found is None:
        raise BadSpider(f"sitemap_since of {what} is {since!r}: write a date, like '2026-01-31'")
    return found
