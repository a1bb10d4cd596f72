"""Sitemaps, indexes, lists and feeds (C2): sloppy ones are understood, hostile ones cost little."""

from __future__ import annotations

import gzip
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lycosa.core.url import URL_MAX
from lycosa.http.core.sitemap import (
    ALTERNATES_MAX,
    ENTRIES_MAX,
    SITEMAP_BYTES_MAX,
    SitemapEntry,
    gunzip,
    parse_sitemap,
    sitemaps_in_robots,
    timestamp,
)

NS = "http://www.sitemaps.org/schemas/sitemap/0.9"
LINEAR_MAX_S = 10.0
"""Seconds for 2 MB of input that would take minutes if anything were quadratic.

Parsing takes up to 1.7 s on a busy machine.
"""


def urlset(*entries: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="{NS}">{"".join(entries)}</urlset>'.encode()


def locs(body: bytes) -> list[str]:
    return [entry.loc for entry in parse_sitemap(body).entries]


def test_fields_of_an_entry() -> None:
    body = urlset(
        "<url><loc> http://a.example/?a=1&amp;b=2 </loc><lastmod>2026-01-02</lastmod><changefreq>daily</changefreq>"
        "<priority>0.8</priority></url>\n<url><loc>/relative</loc><lastmod/></url>"
    )
    found = parse_sitemap(body)
    assert (found.kind, found.cut) == ("urlset", False)
    assert found.entries == [
        SitemapEntry("http://a.example/?a=1&b=2", "2026-01-02", "daily", 0.8),
        SitemapEntry("/relative", empty=frozenset({"lastmod"})),
    ]
    first, second = found.entries
    assert first.lastmod == 1767312000.0
    assert second.lastmod is None
    assert second["lastmod"] == ""


def test_entries_have_the_keys_of_scrapy() -> None:
    entry = SitemapEntry("http://a.example/", "2026-01-02", alternates=("http://a.example/de",))
    assert (entry["loc"], entry["lastmod"]) == ("http://a.example/", "2026-01-02")
    assert entry["alternate"] == ("http://a.example/de",)
    assert entry.get("changefreq") is None
    assert entry.get("changefreq", "never") == "never"
    with pytest.raises(KeyError):
        entry["changefreq"]
    with pytest.raises(KeyError):
        entry["priority"]


def test_entries_can_be_changed_as_in_scrapy() -> None:
    entry = SitemapEntry("http://a.example/")
    entry["loc"], entry["lastmod"] = "http://a.example/new", "2026-01-02"
    assert (entry.loc, entry["lastmod"], entry.lastmod) == ("http://a.example/new", "2026-01-02", 1767312000.0)
    with pytest.raises(KeyError):
        entry["unknown"] = 1


def test_sitemap_index() -> None:
    body = (
        f'<sitemapindex xmlns="{NS}"><sitemap><loc>http://a.example/1.xml.gz</loc><lastmod>2026-01-02T03:04:05+01:00'
        "</lastmod></sitemap><sitemap><loc>http://a.example/2.xml</loc></sitemap></sitemapindex>"
    )
    found = parse_sitemap(body.encode())
    assert found.kind == "index"
    assert [(entry.loc, entry.lastmod) for entry in found.entries] == [
        ("http://a.example/1.xml.gz", 1767319445.0),
        ("http://a.example/2.xml", None),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ('<url xmlns=""><loc>http://a.example/</loc></url>', ["http://a.example/"]),
        ("<url><!-- <loc>x</loc> --><loc>http://a.example/<!-- c --></loc></url>", ["http://a.example/"]),
        ("<url><loc><![CDATA[http://a.example/?a&b]]></loc></url>", ["http://a.example/?a&b"]),
        ("<url><loc>http://a.example/?a=1&b=2&copy=3</loc></url>", ["http://a.example/?a=1&b=2&copy=3"]),
        ("<url><loc>http://a.example/&#x41;&#66;&#xD800;&#9999999;</loc></url>", ["http://a.example/AB\ufffd\ufffd"]),
        ("<url><priority>1</priority></url>", []),
        ("<url><loc></loc></url><url/>", []),
        ("<url><loc>a</loc><url><loc>b</loc></url>", ["a", "b"]),
        ("<url><loc>a</loc></url><urls><loc>b</loc></urls>", ["a"]),
        ("<url>\n<loc\n>a</loc\n></url\n>", ["a"]),
        ("<url><loc>a</loc><loc>b</loc></url>", ["a"]),
        (f"<url><loc>http://a.example/{'x' * URL_MAX}</loc></url><url><loc>b</loc></url>", ["b"]),
        ("<url><image:image><image:loc>i.png</image:loc></image:image><loc>page</loc></url>", ["page"]),
        ("<url><loc>page</loc><image:image><image:loc>i.png</image:loc></image:image></url>", ["page"]),
    ],
)
def test_sloppy_entries_are_understood(entry: str, expected: list[str]) -> None:
    assert locs(urlset(entry)) == expected


def test_prefixed_elements() -> None:
    body = f'<s:urlset xmlns:s="{NS}"><s:url><s:loc>a</s:loc><s:lastmod>2026-01-02</s:lastmod></s:url></s:urlset>'
    assert parse_sitemap(body.encode()).entries == [SitemapEntry("a", "2026-01-02")]


def test_elements_with_another_prefix_do_not_end_an_entry() -> None:
    body = urlset("<url><v:url><v:loc>no</v:loc></v:url><loc>a</loc><lastmod>2026-01-02</lastmod></url>")
    assert parse_sitemap(body).entries == [SitemapEntry("a", "2026-01-02")]


def test_alternate_links_are_collected_and_bounded() -> None:
    links = '<xhtml:link rel="alternate" hreflang="de" href="/de?a&amp;b"/><xhtml:link rel="alternate" hreflang="fr"/>'
    (entry,) = parse_sitemap(urlset(f"<url><loc>/en</loc>{links}</url>")).entries
    assert entry.alternates == ("/de?a&b",)
    (entry,) = parse_sitemap(urlset("<url><loc>/en</loc>" + "<l:link href='/x'/>" * 1000 + "</url>")).entries
    assert len(entry.alternates) == ALTERNATES_MAX


def test_entries_of_rss() -> None:
    body = """<rss version="2.0"><channel><title>t</title><link>http://a.example/</link>
    <atom:link href="http://a.example/rss" rel="self"/><image><url>i.png</url></image>
    <item><title>1</title><link>http://a.example/1</link><pubDate>Fri, 02 Jan 2026 00:00:00 GMT</pubDate></item>
    <item><guid>http://a.example/2</guid><dc:date>2026-01-03T00:00:00Z</dc:date></item>
    <item><guid isPermaLink="false">http://a.example/3</guid></item>
    <item><description>&lt;loc>no&lt;/loc></description><atom:link href="/no"/></item></channel></rss>"""
    found = parse_sitemap(body.encode())
    assert found.kind == "feed"
    assert [(entry.loc, entry.lastmod) for entry in found.entries] == [
        ("http://a.example/1", 1767312000.0),
        ("http://a.example/2", 1767398400.0),
    ]


def test_entries_of_atom_and_rdf() -> None:
    atom = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="/"/><updated>2020-01-01T00:00:00Z</updated>
    <entry><link rel="edit" href="/edit"/><link href='/1'/><published>2026-01-01T00:00:00Z</published>
    <updated>2026-01-02T00:00:00Z</updated></entry></feed>"""
    assert [(e.loc, e.lastmod) for e in parse_sitemap(atom.encode()).entries] == [("/1", 1767312000.0)]
    rdf = "<rdf:RDF><channel><link>/</link></channel><item rdf:about='/x'><link>/1</link></item></rdf:RDF>"
    assert (parse_sitemap(rdf.encode()).kind, locs(rdf.encode())) == ("feed", ["/1"])


def test_plain_list_of_urls() -> None:
    body = b"\xef\xbb\xbf\r\nhttp://a.example/1\r\n  https://a.example/2  \r\n# no\nftp://a.example/\nhttp://a b\n"
    found = parse_sitemap(body)
    assert (found.kind, locs(body)) == ("text", ["http://a.example/1", "https://a.example/2"])


@pytest.mark.parametrize(
    "body",
    [b"", b"  ", b"<!doctype html><html><body>not found", b"not found", b'{"url": "http://a.example/"}', b"\x00\xff",
     b"<url><loc>http://a.example/</loc></url>", b"<HTML><urlset>"],
)  # fmt: skip
def test_other_content_is_no_sitemap(body: bytes) -> None:
    assert parse_sitemap(body) == ("", [], False)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "windows-1252"])
def test_encodings(encoding: str) -> None:
    declared = "windows-1252" if encoding == "windows-1252" else "utf-8"
    body = f'<?xml version="1.0" encoding="{declared}"?><urlset><url><loc>/größe</loc></url></urlset>'
    assert locs(body.encode(encoding)) == ["/größe"]


def test_broken_xml_gives_the_entries_before_the_break_and_no_half_url() -> None:
    body = urlset("<url><loc>/1</loc></url><url><loc>/2</loc><lastmod>2026-01-02</lastmod></url>")
    for cut in range(len(body)):
        assert locs(body[:cut]) in ([], ["/1"], ["/1", "/2"]), cut
    assert locs(body[:-10]) == ["/1", "/2"]
    packed = gzip.compress(urlset(*(f"<url><loc>/{n * n * 7919 % 100003}</loc></url>" for n in range(20_000))))
    assert 1_000 < len(locs(packed[: len(packed) // 2])) < 20_000


def test_gzip_members_are_decompressed_up_to_the_limit() -> None:
    body = urlset("<url><loc>/1</loc></url>")
    members = gzip.compress(body[:60]) + gzip.compress(body[60:]) + b"\x00" * 7
    assert locs(gzip.compress(body)) == ["/1"]
    assert gunzip(members) == (body, False)
    assert gunzip(gzip.compress(b"x" * 1000), 100) == (b"x" * 100, True)
    assert gunzip(gzip.compress(b"x" * 100), 100) == (b"x" * 100, False)
    assert gunzip(b"x" * 101, 100) == (b"x" * 100, True)
    assert gunzip(b"\x1f\x8bnot gzip") == (b"", False)


def test_decompression_bomb_is_cut() -> None:
    bomb = gzip.compress(b"<urlset><url><loc>/1</loc></url>" + b" " * 60_000_000)
    found = parse_sitemap(bomb)
    assert (found.cut, len(found.entries)) == (True, 1)


def test_cut_list_ends_with_a_complete_url() -> None:
    line = b"http://a.example/" + b"x" * 7_983 + b"\n"
    found = parse_sitemap(gzip.compress(line * (SITEMAP_BYTES_MAX // len(line) + 2)))
    assert found.cut
    assert {len(entry.loc) for entry in found.entries} == {8_000}


def test_number_of_entries_is_bounded() -> None:
    entry = "<url><loc>/1</loc></url>"
    assert not parse_sitemap(urlset(entry * ENTRIES_MAX)).cut
    found = parse_sitemap(urlset(entry * (ENTRIES_MAX + 1)))
    assert (found.cut, len(found.entries)) == (True, ENTRIES_MAX)
    assert len(parse_sitemap(b"http://a.example/\n" * (ENTRIES_MAX + 1)).entries) == ENTRIES_MAX


def test_entities_are_not_expanded() -> None:
    doctype = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    body = f"<?xml version='1.0'?>{doctype}<urlset><url><loc>/&b;&f;</loc></url></urlset>"
    assert locs(body.encode()) == ["/&b;&f;"]


SLOW = {
    "open tags": b"<loc ",
    "open comments": b"<url><loc><!--",
    "brackets": b"<",
    "tag names": b"<a",
    "prefixes": b"<a:",
    "quotes": b"<link href='",
    "texts": b"<url><loc>",
    "cdata": b"<url><loc><![CDATA[",
    "comments": b"<!---->",
    "instructions": b"<?",
    "references": b"&#1;",
    "blanks": b" ",
    "attributes": b" href=",
}


@pytest.mark.parametrize("kind", SLOW)
def test_time_is_linear_in_the_bytes(kind: str) -> None:
    body = b"<urlset><url><loc>" + SLOW[kind] * (1_000_000 // len(SLOW[kind]))
    started = time.process_time()
    parse_sitemap(body)
    parse_sitemap(b"<urlset><url><link " + body[18:])
    assert time.process_time() - started < LINEAR_MAX_S


@given(
    st.lists(st.sampled_from([*SLOW.values(), b"</loc>", b"</url>", b"<urlset>", b"]]>", b"-->", b"x", b"\xff", b">"]))
)
def test_no_bytes_raise(pieces: list[bytes]) -> None:
    for body in (b"".join(pieces), b"<urlset>" + b"".join(pieces), b"<rss>" + b"".join(pieces)):
        for entry in parse_sitemap(body).entries:
            assert entry.loc
            assert entry.lastmod is None


@settings(max_examples=50)
@given(st.text(max_size=40))
def test_any_date_text_is_accepted(text: str) -> None:
    assert timestamp(text) is None or isinstance(timestamp(text), float)


@pytest.mark.parametrize(
    ("date", "expected"),
    [
        ("2026-01-02", 1767312000.0),
        ("2026-01-02T00:00Z", 1767312000.0),
        ("2026-01-02T01:00:00.5+01:00", 1767312000.5),
        ("2026-01-02 00:00:00", 1767312000.0),
        ("Fri, 02 Jan 2026 01:00:00 +0100", 1767312000.0),
        ("Fri, 02 Jan 2026 00:00:00 -0000", 1767312000.0),
        ("2026", None),
        ("2026-01", None),
        ("0001-01-01T00:00:00+23:00", -62135679600.0),
        ("yesterday", None),
        ("", None),
    ],
)
def test_dates_of_entries(date: str, expected: float | None) -> None:
    assert timestamp(date) == expected


def test_sitemap_lines_of_robots_txt() -> None:
    body = b"""User-agent: *
Disallow: /sitemap: x
  SiteMap : http://a.example/1.xml # ours
Sitemap:/2.xml
Sitemap: HTTP://A.example:80/1.xml
Sitemap:
Sitemap: mailto:x@y
"""
    assert sitemaps_in_robots(body, "http://a.example/robots.txt") == [
        "http://a.example/1.xml",
        "http://a.example/2.xml",
    ]
    assert len(sitemaps_in_robots(b"".join(b"Sitemap: /%d\n" % n for n in range(5000)), "http://a.example/")) == 1000
