"""`SitemapSpider` (C2): from robots.txt through indexes to pages."""

from __future__ import annotations

import asyncio
import gzip
import logging
from datetime import UTC, date, datetime
from typing import Any

import pytest

from lycosa.core.errors import BadSpider
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.spiders import sitemap as module
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.sitemap import SITEMAP_TRANSFER_MAX, SitemapSpider
from lycosa.http.core.request import Request

SITE = "http://shop.example"


class Shop(SitemapSpider):
    name = "shop"
    sitemap_urls = (f"{SITE}/sitemap.xml",)

    def parse(self, response: Response) -> Any:
        return None

    def parse_item(self, response: Response) -> Any:
        return None


def shop(**attributes: Any) -> Any:
    return type("Shop", (Shop,), attributes)()


def started(spider: SitemapSpider) -> list[Request]:
    async def all_of() -> list[Request]:
        return [request async for request in spider.start()]

    return asyncio.run(all_of())


def answer(body: str | bytes, path: str = "/sitemap.xml", depth: int = 0) -> Response:
    request = Request(SITE + path)
    request.record = to_record(request, object(), segment="")
    for _ in range(depth):
        request.record = to_record(request, object(), request.record)
    return Response(request.url, body=body if isinstance(body, bytes) else body.encode(), request=request)


def found(
    spider: SitemapSpider, body: str | bytes, path: str = "/sitemap.xml", depth: int = 0
) -> list[tuple[str, str]]:
    """Return the requests of a sitemap as (path, stored callback)."""
    requests = list(spider._parse_sitemap(answer(body, path, depth)))
    records = [to_record(request, spider) for request in requests]
    return [(record.url.removeprefix(SITE), record.extras.callback if record.extras else "") for record in records]


def urlset(*locs: str, more: str = "") -> str:
    return "<urlset>" + "".join(f"<url><loc>{loc}</loc>{more}</url>" for loc in locs) + "</urlset>"


def index(*locs: str, more: str = "") -> str:
    return f"<sitemapindex>{urlset(*locs, more=more)[8:-9].replace('url>', 'sitemap>')}</sitemapindex>"


def test_the_spider_starts_with_sitemap_urls() -> None:
    (request,) = started(Shop())
    assert (request.url, request.callback) == (f"{SITE}/sitemap.xml", "_parse_sitemap")
    assert request.meta["download_maxsize"] == SITEMAP_TRANSFER_MAX


@pytest.mark.parametrize(
    ("attributes", "urls"),
    [
        ({"start_urls": [f"{SITE}/a/b", f"{SITE}/c", "https://x.example"]}, [f"{SITE}/robots.txt", "https://x.example/robots.txt"]),
        ({"allowed_domains": [".shop.example"]}, ["https://shop.example/robots.txt"]),
        ({"allowed_domains": ["x.example"], "start_urls": [f"{SITE}/"]}, [f"{SITE}/robots.txt"]),
    ],
)  # fmt: skip
def test_without_sitemap_urls_robots_txt_is_fetched(attributes: dict[str, Any], urls: list[str]) -> None:
    requests = started(shop(sitemap_urls=(), **attributes))
    assert [request.url for request in requests] == urls
    assert 404 in requests[0].meta["handle_httpstatus_list"]


def test_robots_txt_names_sitemaps_or_sitemap_xml_is_tried() -> None:
    lines = "User-agent: *\nDisallow: /\nSitemap: http://shop.example/a.xml\nsitemap: /b.xml\n"
    expected = [("/a.xml", "_parse_sitemap"), ("/b.xml", "_parse_sitemap")]
    assert found(Shop(), lines, "/robots.txt") == expected
    assert found(Shop(), "User-agent: *", "/robots.txt") == [("/sitemap.xml", "_parse_sitemap")]


def test_the_first_matching_rule_handles_a_page() -> None:
    spider = shop(sitemap_rules=[("/item/", "parse_item"), ("/item/2", "parse"), ("^http.*/list", Shop.parse)])
    body = urlset("/item/1", f"{SITE}/item/2", f"{SITE}/list", f"{SITE}/about", "mailto:x@y", "/item/1#again")
    assert found(spider, body) == [("/item/1", "parse_item"), ("/item/2", "parse_item"), ("/list", "")]
    assert found(Shop(), body) == [("/item/1", ""), ("/item/2", ""), ("/list", ""), ("/about", "")]


def test_sitemaps_of_an_index_are_filtered_by_sitemap_follow() -> None:
    body = index(f"{SITE}/items.xml", "/news.xml.gz")
    assert found(Shop(), body) == [("/items.xml", "_parse_sitemap"), ("/news.xml.gz", "_parse_sitemap")]
    assert found(shop(sitemap_follow=["news"]), body) == [("/news.xml.gz", "_parse_sitemap")]
    assert found(shop(sitemap_follow=[]), body) == []


def test_gzip_is_detected_by_content() -> None:
    assert found(Shop(), gzip.compress(urlset("/1").encode()), "/sitemap") == [("/1", "")]
    assert found(Shop(), urlset("/1"), "/sitemap.xml.gz") == [("/1", "")]


def test_lists_and_feeds_count_as_sitemaps() -> None:
    assert found(Shop(), f"{SITE}/1\n{SITE}/2\n", "/sitemap.txt") == [("/1", ""), ("/2", "")]
    assert found(Shop(), "<rss><item><link>/1</link></item></rss>") == [("/1", "")]
    assert found(Shop(), '<feed><entry><link href="/1"/></entry></feed>') == [("/1", "")]


def test_alternate_links_are_fetched_on_request() -> None:
    body = urlset("/en", "/de", more='<x:link href="/en"/><x:link href="/de"/><x:link href="/fr"/>')
    assert found(Shop(), body) == [("/en", ""), ("/de", "")]
    assert found(shop(sitemap_alternate_links=True), body) == [("/en", ""), ("/de", ""), ("/fr", "")]


def test_sitemap_filter_selects_entries() -> None:
    class Filtered(Shop):
        def sitemap_filter(self, entries: Any) -> Any:
            for entry in entries:
                if entry["lastmod"] > "2026" and entry.lastmod > 0:
                    yield entry

    body = urlset("/old", more="<lastmod>2025-01-01</lastmod>") + urlset("/new", more="<lastmod>2026-01-01</lastmod>")
    assert found(Filtered(), body) == [("/new", "")]
    assert found(Filtered(), index("/old", more="<lastmod>2025-01-01</lastmod>")) == []


SINCE = [
    "2026-01-02",
    "2026-01-02T00:00:00Z",
    date(2026, 1, 2),
    datetime(2026, 1, 2),  # noqa: DTZ001  without a zone it is UTC
    datetime(2026, 1, 2, tzinfo=UTC),
    1767312000,
]


@pytest.mark.parametrize("since", SINCE)
def test_entries_older_than_sitemap_since_are_skipped(since: Any) -> None:
    dates = {
        "/old": "2026-01-01T23:59:59Z",
        "/older": "2025-01-01",
        "/same": "2026-01-02",
        "/new": "2026-02-01T00:00:00+01:00",
        "/unknown": "yesterday",
        "/none": "",
    }
    body = "<urlset>" + "".join(f"<url><loc>{p}</loc><lastmod>{d}</lastmod></url>" for p, d in dates.items())
    expected = ["/same", "/new", "/unknown", "/none"]
    spider = shop(sitemap_since=since)
    assert found(spider, body) == [(path, "") for path in expected]
    as_index = body.replace("url>", "sitemap>").replace("urlset", "sitemapindex")
    assert [path for path, _ in found(spider, as_index)] == expected


def test_a_date_without_time_counts_for_the_whole_day() -> None:
    body = urlset("/day", more="<lastmod>2026-01-02</lastmod>") + urlset(
        "/t", more="<lastmod>2026-01-02T11:00Z</lastmod>"
    )
    assert found(shop(sitemap_since="2026-01-02T12:00:00Z"), body) == [("/day", "")]
    assert found(shop(sitemap_since="2026-01-03"), body) == []


def test_a_body_that_is_no_sitemap_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert found(Shop(), "<!doctype html><p>no") == []
    assert "http://shop.example/sitemap.xml is not a sitemap" in caplog.text


def test_a_sitemap_that_is_too_large_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    assert len(found(Shop(), "\n".join(f"{SITE}/{n}" for n in range(50_001)))) == 50_000
    assert "only its first 50000 entries are read" in caplog.text


def test_nesting_of_indexes_is_bounded(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "NESTED_MAX", 3)
    assert found(Shop(), index("/next.xml"), depth=2) == [("/next.xml", "_parse_sitemap")]
    assert found(Shop(), index("/next.xml"), depth=3) == []
    assert "is a sitemap index nested in 3 others" in caplog.text
    assert found(Shop(), urlset("/1"), depth=3) == [("/1", "")]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"sitemap_urls": "http://x/"}, "sitemap_urls of Shop is a string: write a list, ['http://x/']"),
        ({"sitemap_rules": [("[", "parse")]}, "sitemap_rules of Shop: '[' is not a regular expression"),
        (
            {"sitemap_rules": [("", "parse_itm")]},
            "sitemap_rules of Shop: Shop has no method 'parse_itm' for the callback: did you mean 'parse_item'?",
        ),
        ({"sitemap_rules": [("", lambda response: None)]}, "sitemap_rules of Shop: the callback is a lambda"),
        ({"sitemap_rules": "parse"}, "sitemap_rules of Shop is 'parse': write [(regular expression, callback), ...]"),
        ({"sitemap_follow": ["("]}, "sitemap_follow of Shop: '(' is not a regular expression"),
        ({"sitemap_since": "soon"}, "sitemap_since of Shop is 'soon': write a date, like '2026-01-31'"),
    ],
)
def test_wrong_attributes_are_refused_at_once(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadSpider) as caught:
        shop(**attributes)
    assert message in str(caught.value)


def test_a_spider_without_a_site_is_refused() -> None:
    with pytest.raises(BadSpider, match="Shop has no sitemap_urls: list sitemaps there, or the site in start_urls"):
        started(shop(sitemap_urls=()))
