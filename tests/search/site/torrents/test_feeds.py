from __future__ import annotations

import csv
import importlib.util
import io
import json
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

import pytest
from lxml import etree

from lycosa.search.core.query import OFFSET_MAX
from lycosa.search.site.torrents.params import PAGE_MAX
from tests.conftest import need
from tests.search.site.torrents.sample_torrents import HASHES, SAMPLES

ATOM = "{http://www.w3.org/2005/Atom}"


def test_rss_of_a_search(site):
    answer = site.get("/search.rss?q=show&type=video&sort=date")
    assert answer.headers["content-type"].startswith("application/rss+xml")
    channel = ET.fromstring(answer.text).find("channel")
    assert channel.findtext("title") == "Spiders & co: show type:video"
    items = channel.findall("item")
    assert [item.findtext("guid") for item in items] == [HASHES[1], HASHES[0]]
    assert items[0].findtext("link") == f"{site.url}/torrent/{HASHES[1]}"
    enclosure = items[0].find("enclosure").attrib
    assert enclosure["url"].startswith(f"magnet:?xt=urn:btih:{HASHES[1]}&dn=")
    assert enclosure["length"] == str(SAMPLES[1].size_bytes)
    assert items[0].findtext("pubDate") == "Thu, 05 Nov 2026 00:00:02 GMT"


def test_atom_of_a_search(site):
    feed = ET.fromstring(site.get("/search.atom?q=show&sort=date").text)
    assert feed.findtext(f"{ATOM}updated") == "2026-11-05T00:00:02Z"
    assert [entry.findtext(f"{ATOM}id") for entry in feed.findall(f"{ATOM}entry")] == [
        f"urn:btih:{infohash}" for infohash in HASHES[1::-1]
    ]


def test_an_atom_feed_without_results_was_updated_today(site):
    feed = ET.fromstring(site.get("/search.atom?q=zebra").text)
    updated = datetime.fromisoformat(feed.findtext(f"{ATOM}updated"))
    assert timedelta(0) <= datetime.now(UTC) - updated < timedelta(days=1, minutes=1)
    assert (updated.hour, updated.minute, updated.second) == (0, 0, 0), "the ETag stays the same until tomorrow"


def test_characters_that_xml_forbids_are_left_out(site):
    for path in ("/search.rss", "/search.atom", "/torznab/api?t=search"):
        assert "'x'!A0 control" in "".join(ET.fromstring(site.get(path).text).itertext())


def test_csv_of_a_search_is_safe_in_spreadsheets(site):
    rows = list(csv.DictReader(io.StringIO(site.get("/search.csv?q=type:text").text)))
    assert [row["name"] for row in rows] == ["'=cmd()|'x'!A0 control"]
    rows = list(csv.DictReader(io.StringIO(site.get("/search.csv?q=show&sort=date").text)))
    assert [(row["infohash"], row["seeders"], row["files"], row["languages"]) for row in rows] == [
        (HASHES[1], "", "2", "en"),
        (HASHES[0], "12", "1", "en"),
    ]


def test_json_of_a_search_has_its_total_and_a_limit_that_is_too_high_is_refused(site):
    told = json.loads(site.get("/search.json?q=common&limit=3").text)
    assert (told["total"], len(told["torrents"]), told["exact"]) == (45, 3, True)
    assert site.get("/search.rss?limit=101").status == 400


def test_json_and_csv_have_the_results_of_the_page_also_if_no_torrent_has_all_words(site):
    query = "q=great+show+zzzzqq"
    page = site.get(f"/search?{query}").text
    assert "No torrent has all of these words" in page
    shown = re.findall(r'href="/torrent/(\w+)', page)
    assert set(shown) == set(HASHES[:2])
    told = json.loads(site.get(f"/search.json?{query}").text)
    assert (told["partial"], [each["infohash"] for each in told["torrents"]]) == (True, shown)
    assert [row["infohash"] for row in csv.DictReader(io.StringIO(site.get(f"/search.csv?{query}").text))] == shown
    for form in ("rss", "atom"):  # a feed reader would report them as new torrents
        assert not re.search("<item>|<entry>", site.get(f"/search.{form}?{query}").text)


@pytest.mark.parametrize("limit", [10, 20, 30])
def test_pages_of_exports_are_as_long_as_the_limit(site, limit):
    def infohashes(query: str) -> list[str]:
        return [each["infohash"] for each in json.loads(site.get(f"/search.json?q=common&{query}").text)["torrents"]]

    assert infohashes(f"limit={limit}&page=2") == infohashes("limit=100")[limit : 2 * limit]
    last = OFFSET_MAX // limit + 1
    far = site.get(f"/search.json?limit={limit}&page={last + 1}")
    assert (far.status, f"shows up to {min(last, PAGE_MAX):,} pages" in far.text) == (400, True)
    assert site.get(f"/search.json?limit={limit}&page={min(last, PAGE_MAX)}").status == 200


def test_a_browser_can_use_the_site_as_a_search_engine(site):
    description = ET.fromstring(site.get("/opensearch.xml").text)
    templates = [url.attrib["template"] for url in description if url.tag.endswith("Url")]
    assert templates[0] == f"{site.url}/search?q={{searchTerms}}"
    assert json.loads(site.get("/suggest?q=great+sho").text) == ["great sho", ["great show"]]


@pytest.mark.parametrize("form", ["rss", "atom"])
@pytest.mark.parametrize("query", ["", "q=show&sort=date", "q=英雄", "q=zebra", "q=trap"])
def test_feed_readers_read_every_feed_without_complaint(site, form, query):
    need("feedparser", importlib.util.find_spec("feedparser") is not None)
    import feedparser

    answer = site.get(f"/search.{form}?{quote(query, safe='=&')}")
    feed = feedparser.parse(answer.text.encode(), response_headers={"content-type": answer.headers["content-type"]})
    assert (feed.bozo, feed.get("bozo_exception"), feed.version) == (
        False,
        None,
        {"rss": "rss20", "atom": "atom10"}[form],
    )
    assert feed.feed.title
    assert [link.href for link in feed.feed.links if link.rel == "self"] == [
        f"{site.url}/search.{form}?{query_of(query)}"
    ]
    for entry in feed.entries:
        assert entry.id
        assert entry.title
        assert entry.link.startswith(f"{site.url}/torrent/")
        assert (entry.get("published_parsed") or entry.updated_parsed).tm_year == 2026
        assert [each.href[:12] for each in entry.enclosures] == ["magnet:?xt=u"]
    assert len({entry.id for entry in feed.entries}) == len(feed.entries)


def query_of(query: str) -> str:
    return quote(query, safe="=&")


@pytest.mark.parametrize("query", ["", "q=show&sort=date", "q=trap"])
def test_feeds_meet_their_specifications(site, query):
    """RSS 2.0 and RFC 4287, by the rules of the W3C's feed validator."""
    channel = etree.fromstring(site.get(f"/search.rss?{query}").text.encode()).find("channel")
    assert all(channel.findtext(name) for name in ("title", "link", "description"))
    for item in channel.findall("item"):
        assert item.findtext("title")
        assert parsedate_to_datetime(item.findtext("pubDate")).utcoffset().total_seconds() == 0
        assert set(item.find("enclosure").attrib) == {"url", "length", "type"}
        assert item.find("enclosure").attrib["length"].isdigit()
    feed = etree.fromstring(site.get(f"/search.atom?{query}").text.encode())
    for element in [feed, *feed.findall(f"{ATOM}entry")]:
        for name in ("id", "title", "updated"):
            assert len(element.findall(ATOM + name)) == 1, name
        assert urlsplit(element.findtext(f"{ATOM}id")).scheme in {"http", "urn"}
        assert datetime.fromisoformat(element.findtext(f"{ATOM}updated")).tzinfo is not None
    assert feed.findtext(f"{ATOM}author/{ATOM}name")
