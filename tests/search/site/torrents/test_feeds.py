from __future__ import annotations

import csv
import io
import json
from xml.etree import ElementTree as ET

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


def test_json_of_a_search_and_limits(site):
    told = json.loads(site.get("/search.json?q=common&limit=3").text)
    assert (told["total"], len(told["torrents"]), told["exact"]) == (45, 3, True)
    assert site.get("/search.rss?limit=101").status == 400


def test_a_browser_can_search_here(site):
    description = ET.fromstring(site.get("/opensearch.xml").text)
    templates = [url.attrib["template"] for url in description if url.tag.endswith("Url")]
    assert templates[0] == f"{site.url}/search?q={{searchTerms}}"
    assert json.loads(site.get("/suggest?q=great+sho").text) == ["great sho", ["great show"]]
