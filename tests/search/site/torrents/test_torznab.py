"""The Torznab requests of Prowlarr, Sonarr and Radarr: connection test, searches, categories and errors."""

from __future__ import annotations

import tomllib
from email.utils import parsedate_to_datetime
from xml.etree import ElementTree as ET

import pytest

from lycosa.storage.core.content_facts import OTHER
from lycosa.storage.rules.rule_files import CONTENT, PACKAGE
from tests.search.site.torrents.sample_torrents import HASHES, SAMPLES

ATTR = "{http://torznab.com/schemas/2015/feed}attr"
RESPONSE = "{http://www.newznab.com/DTD/2010/feeds/attributes/}response"


def get(site, query: str) -> ET.Element:
    answer = site.get(f"/torznab/api?{query}")
    assert answer.status == 200
    assert "xml" in answer.headers["content-type"]
    return ET.fromstring(answer.text)


def titles(site, query: str) -> list[str]:
    return [item.findtext("title") for item in get(site, query).iter("item")]


def test_caps_list_the_supported_searches(site):
    caps = get(site, "t=caps&apikey=")
    assert caps.find("limits").attrib == {"default": "50", "max": "100"}
    searching = {each.tag: each.attrib for each in caps.find("searching")}
    assert searching["tv-search"] == {"available": "yes", "supportedParams": "q,season,ep"}
    assert searching["movie-search"]["available"] == "yes"
    assert searching["audio-search"]["available"] == "no"
    categories = {each.attrib["id"]: [sub.attrib["id"] for sub in each] for each in caps.find("categories")}
    assert "5040" in categories["5000"]
    assert "2040" in categories["2000"]


def test_caps_list_every_category_that_items_can_have(site):
    caps = {int(each.attrib["id"]): each for each in get(site, "t=caps").findall("categories//*")}
    assert all(each.attrib["name"] for each in caps.values())
    rules = tomllib.loads((PACKAGE / CONTENT).read_text(encoding="utf-8"))
    numbers = {OTHER, *(each["number"] for each in rules["category"])}
    assert sorted((numbers | {number // 1000 * 1000 for number in numbers}) - caps.keys()) == []
    for parent in get(site, "t=caps").find("categories"):
        assert {int(each.attrib["id"]) // 1000 * 1000 for each in parent} <= {int(parent.attrib["id"])}
    attributes = [each.attrib for each in get(site, "t=search").iter(ATTR)]
    of_items = {int(each["value"]) for each in attributes if each["name"] == "category"}
    assert {5000, 5040} <= of_items <= caps.keys()


def test_the_connection_test_gets_the_newest(site):
    found = get(site, "t=search&cat=5000,2000&extended=1&offset=0&limit=100&q=")
    items = list(found.iter("item"))
    assert [item.findtext("title") for item in items] == [SAMPLES[2].name, SAMPLES[1].name, SAMPLES[0].name]
    assert found.find(f"channel/{RESPONSE}").attrib == {"offset": "0", "total": "3"}
    for item in items:
        for name in ("title", "guid", "link", "pubDate", "size", "comments"):
            assert item.findtext(name), name
        assert item.find("enclosure").attrib["url"].startswith("magnet:?xt=urn:btih:")


def test_items_have_known_values_and_leave_out_unknown_ones(site):
    first, second = reversed(list(get(site, "t=tvsearch&q=great+show").iter("item")))
    attributes = [(each.attrib["name"], each.attrib["value"]) for each in first.iter(ATTR)]
    assert {("category", "5000"), ("category", "5040"), ("seeders", "12"), ("peers", "15")} <= set(attributes)
    assert {("infohash", HASHES[0]), ("season", "1"), ("episode", "1"), ("resolution", "1080p")} <= set(attributes)
    assert not {"seeders", "leechers", "peers"} & {each.attrib["name"] for each in second.iter(ATTR)}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("t=tvsearch&q=great+show&season=1&ep=2", [1]),
        ("t=tvsearch&q=great+show&season=01&ep=E02&cat=5030,5040", [1]),
        ("t=tvsearch&q=great+show&season=1", [1, 0]),
        ("t=tvsearch&q=great+show&season=2", []),
        ("t=tvsearch&season=1&ep=1", [0]),
        ("t=tvsearch&q=great+show&ep=2", [1]),
        ("t=tvsearch&q=great+show&season=&ep=E03", []),
        ("t=search&q=great+show&ep=2", [1, 0]),
        ("t=search&q=great+show&cat=5000", [1, 0]),
        ("t=search&q=great+show&cat=2000", []),
        ("t=search&cat=5000&limit=1&offset=1", [1]),
        ("t=search&cat=7020", [4]),
        ("t=movie&q=great&year=1999", []),
        ("t=search&q=!!!&cat=7020", []),
        ("t=search&q=%E8%8B%B1%E9%9B%84", [2]),
    ],
)
def test_searches_of_clients(site, query, found):
    shown = [name.replace("\x01", "") for name in (SAMPLES[n].name for n in found)]
    assert titles(site, query) == shown


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "200"),
        ("t=nonsense", "202"),
        ("t=music&q=x", "203"),
        ("t=search&cat=x", "201"),
        (f"t=search&cat={'5000,' * 200}5000", "201"),
        ("t=search&limit=-1", "201"),
        ("t=search&offset=99999", "201"),
        ("t=tvsearch&q=x&season=one", "201"),
        ("t=tvsearch&q=x&season=1&ep=two", "201"),
        ("t=tvsearch&q=x&ep=two", "201"),
        ("t=tvsearch&q=x&ep=11/05", "200"),
        ("t=search&q=-only", "201"),
    ],
)
def test_errors_have_their_numbers(site, query, code):
    error = get(site, query)
    assert (error.tag, error.attrib["code"]) == ("error", code)
    assert error.attrib["description"]


class Client:
    """Asks as Prowlarr and Sonarr do (NewznabCapabilitiesProvider, NewznabRequestGenerator, TorznabRssParser)."""

    def __init__(self, site, product: str) -> None:
        self._site, self._product = site, product

    def ask(self, query: str) -> ET.Element:
        headers = {
            "User_Agent": f"{self._product}/2.0 (debian 12)",
            "Accept": "application/rss+xml, text/rss+xml, text/xml",
        }
        answer = self._site.request("GET", f"/torznab/api?{query}", Accept_Encoding="identity", **headers)
        root = ET.fromstring(answer.text.encode())
        assert (answer.status, root.tag) == (200, "caps" if "t=caps" in query else "rss")
        return root

    def categories(self) -> list[str]:
        """Return the categories with their subcategories, if the searches that the client needs are supported."""
        caps = self.ask("t=caps")
        assert int(caps.find("limits").attrib["default"]) <= int(caps.find("limits").attrib["max"]) == 100
        assert caps.find("searching/search").attrib["available"] == "yes"
        assert "q" in caps.find("searching/search").attrib["supportedParams"].split(",")
        assert {"q", "season", "ep"} <= set(caps.find("searching/tv-search").attrib["supportedParams"].split(","))
        return [each.attrib["id"] for each in caps.findall("categories//*")]

    def releases(self, query: str) -> list[tuple[str, str, int, set[int]]]:
        """Return title, download link, size and categories. Refuse incomplete items, as the client does."""
        releases = []
        for item in self.ask(query).iter("item"):
            values = [(each.attrib["name"], each.attrib["value"]) for each in item.iter(ATTR)]
            enclosure = item.find("enclosure").attrib
            assert parsedate_to_datetime(item.findtext("pubDate")).tzinfo is not None
            assert enclosure["url"] == item.findtext("link") == dict(values)["magneturl"]
            assert enclosure["length"] == item.findtext("size") == dict(values)["size"]
            assert item.findtext("guid") == item.findtext("comments")
            categories = {int(value) for name, value in values if name == "category"}
            releases.append((item.findtext("title"), enclosure["url"], int(enclosure["length"]), categories))
        return releases


def test_prowlarr_adds_the_indexer_and_syncs_it_to_sonarr(site):
    prowlarr, sonarr = Client(site, "Prowlarr"), Client(site, "Sonarr")
    known = prowlarr.categories()
    assert prowlarr.releases(f"t=search&cat={','.join(known)}&extended=1&offset=0&limit=100"), "its connection test"
    for category in known:
        for _title, magnet, size, categories in prowlarr.releases(f"t=search&cat={category}&extended=1&limit=100"):
            parent = int(category) % 1000 == 0
            assert any(
                each == int(category) or (parent and each // 1000 == int(category) // 1000) for each in categories
            )
            assert magnet.startswith("magnet:?xt=urn:btih:")
            assert size > 0
    assert "5030" in sonarr.categories()
    newest = sonarr.releases("t=tvsearch&cat=5030,5040&extended=1&apikey=&offset=0&limit=100")
    assert [title for title, *_ in newest] == [SAMPLES[1].name, SAMPLES[0].name], "its connection test and RSS sync"
    found = sonarr.releases(
        "t=tvsearch&cat=5030,5040&extended=1&apikey=&offset=0&limit=100&q=Great%20Show&season=1&ep=2"
    )
    assert [title for title, *_ in found] == [SAMPLES[1].name]
    assert sonarr.releases("t=search&cat=5030,5040&extended=1&offset=100&limit=100&q=Great%20Show") == [], "no more"
