"""The built-in spider for crawls of URLs: yields a `PageItem` for each page, and the page's links."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from lycosa.crawl.fetching.redirects import REDIRECT_URLS
from lycosa.crawl.items.page_item import PageItem
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import Results
from lycosa.crawl.spiders.spider import Spider
from lycosa.html.charset import detect_encoding
from lycosa.html.links import extract_links
from lycosa.html.page import extract_page, parse_html


class SiteSpider(Spider):
    """Crawls whole sites. With `nofollow`, links marked rel=nofollow are not followed."""

    name = "site"

    def __init__(self, *, nofollow: bool = False) -> None:
        super().__init__()
        self._nofollow = nofollow

    def parse(self, response: Response) -> Results:
        raw, record = response.raw, response.record
        assert record is not None, "a page of a crawl has a frontier record"
        encoding = detect_encoding(raw.body, raw.headers.get("content-type"))
        tree = parse_html(raw.body, encoding)
        links = extract_links(tree, record.url, encoding)
        page = extract_page(tree, raw.headers.get("content-language"))
        redirects = response.request.get_meta(REDIRECT_URLS)
        item = PageItem(
            url=redirects[0] if redirects else record.url,
            final_url=record.url,
            status=raw.status,
            content_type=response.content_type,
            title=page.title,
            headings=page.headings,
            text=page.text,
            lang=page.lang,
            out_links=len(links),
            fetched_at=iso_utc(int(response.fetched_at)),
            depth=record.depth,
            fingerprint=f"{record.fingerprint:016x}",
        )
        followed = [link for link in links if not link.nofollow] if self._nofollow else links
        return Results([item], [], followed)


@lru_cache(maxsize=8)
def iso_utc(second: int) -> str:
    """Format a unix time as ISO 8601 in UTC. Cached, because many pages are fetched in the same second."""
    return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")
